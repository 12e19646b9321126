"""`manage.py model` in processes of its own: what it prints, and a pull that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chat.catalog.model_choice import DEFAULT_NAME, model_choice
from tests.chat.model_store.local_hub import LocalHub
from tests.served import ROOT

pytestmark = pytest.mark.slow
HELD_AFTER = 60 << 20

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    """Run a hub with the default model, in a format that is preferred and in one that is not."""
    data = model_choice(path="", name="").path.read_bytes()
    files = {"Smol-Q4_1.gguf": data, "Smol-Q2_K.gguf": data[:-1], "broken-Q8_0.gguf": data[:5000], "README.md": b"x"}
    with LocalHub({"org/Smol-GGUF": files}).running() as running:
        yield running


@pytest.fixture
def environment(hub: LocalHub, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LIGHTCONE_", "DJANGO_"))}
    return kept | {"HF_ENDPOINT": hub.url, "LIGHTCONE_DATA_DIR": str(tmp_path / "data")}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "manage.py", "model", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)

    return run


def test_a_model_is_pulled_listed_shown_copied_checked_and_removed(run: Run) -> None:
    assert "No model is stored in" in run("list").stdout
    pulled = run("pull", "org/Smol-GGUF").stdout
    assert "Q4_1 (the first of Q4_K_M" in pulled
    assert "Smol:Q4_1 is stored: llama, Q4_1, 0.10 GB, context 8,192." in pulled
    assert [line.split()[:2] for line in run("list").stdout.splitlines()] == [["NAME", "FORMAT"], ["Smol:Q4_1", "Q4_1"]]
    shown = run("show", "Smol:Q4_1").stdout
    assert all(words in shown for words in ("8,192 tokens", "apache-2.0", "temperature 0.2", "hermes", "a" * 40))
    assert "small is stored" in run("copy", "Smol:Q4_1", "small").stdout
    checked = run("check", "small").stdout
    assert "as they were stored" in checked
    assert "llama, 30 layers" in checked
    assert "Smol:Q4_1 is removed: 0.10 GB.\nsmall is removed: 0.10 GB.\n" in run("rm", "Smol:Q4_1", "small").stdout


def test_a_pull_that_is_killed_goes_on_where_it_was(run: Run, hub: LocalHub, environment: dict[str, str]) -> None:
    hub.holds_after = HELD_AFTER
    command = [sys.executable, "manage.py", "model", "pull", "org/Smol-GGUF", "--name", "kept"]
    pulling = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert hub.held.wait(60)
    finally:
        pulling.send_signal(signal.SIGKILL)
        pulling.wait()
    hub.holds_after = 0
    hub.released.set()
    assert run("list").stdout == "Not finished: kept. Pull them again, or remove them.\n"
    hub.requests.clear()
    done = run("pull", "org/Smol-GGUF", "--name", "kept")
    assert "kept is stored" in done.stdout, done.stderr
    [(_, _, asked)] = hub.requests
    assert int(asked.removeprefix("bytes=").partition("-")[0]) > HELD_AFTER // 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pull", "org/Smol-GGUF:Q9"], "org/Smol-GGUF has no format 'Q9'. There are: Q8_0"),
        (["pull", "org/Smol-GGUF:Q8_0"], "cannot be served: "),
        (["pull", "org/Smol-GGUF", "--name", "../x"], "'../x' cannot be a model's name"),
        (["show", "absent"], "There is no model 'absent'"),
        (["rm", "absent"], "There is no model 'absent'"),
        (["copy", "absent", "other"], "There is no model 'absent'"),
        (["import", "README.md"], "There is no model at"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(run: Run, arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_of_this_machine_is_imported_and_chosen_by_its_name(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    default = model_choice(path="", name="").path
    (tmp_path / "smol.gguf").symlink_to(default)
    (tmp_path / "mmproj-broken.gguf").write_bytes(b"GGUF")
    imported = run("import", str(tmp_path / "smol.gguf"), "--name", "mine")
    assert "mine is stored" in imported.stdout
    assert "mine reads text alone, as no projector beside it could be taken: " in imported.stderr
    store = Path(environment["LIGHTCONE_DATA_DIR"]) / "models"
    chosen = model_choice(path="mine", name="", store=store)
    assert (chosen.name, chosen.path.read_bytes() == default.read_bytes()) == ("mine", True)
    assert model_choice(path="mine", name="public", store=store).name == "public"
    assert model_choice(path="", name="", store=store).name == DEFAULT_NAME
