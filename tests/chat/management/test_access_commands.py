"""api_key, password, model_add and logs_prune from the command line."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client

from chat.access.keys import KeyInvalid, keys_cache_clear
from chat.management.commands import api_key, password
from chat.models import ApiKey, Project, RequestLog, ServedModel
from chat.usage.services import usage_records_write
from tests.chat.records import key_authenticate, record


def run(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def test_keys_can_be_created_listed_rotated_and_revoked(project: Project) -> None:
    raw = run("api_key", "create", "night job", "--model", "small", "--days", "30").strip()
    trusted = run("api_key", "create", "trusted", "--right", "inference", "--right", "chat_template").strip()
    assert key_authenticate(raw=trusted).rights == {"inference", "chat_template"}
    caller = key_authenticate(raw=raw)
    assert caller.models == frozenset({"small"})
    listed = run("api_key", "list")
    assert "night job" in listed
    assert caller.public_id in listed
    assert raw not in listed
    new = run("api_key", "rotate", caller.public_id, "--overlap-hours", "0").strip()
    keys_cache_clear()
    assert key_authenticate(raw=new).key_id == caller.key_id
    run("api_key", "revoke", caller.public_id)
    keys_cache_clear()
    with pytest.raises(KeyInvalid):
        key_authenticate(raw=new)
    assert "night job" not in run("api_key", "list")


def test_unknown_keys_and_projects_are_named(project: Project) -> None:
    with pytest.raises(CommandError, match="no key 'nothere1'"):
        run("api_key", "revoke", "nothere1")
    with pytest.raises(CommandError, match="no project is named 'Nowhere'"):
        run("api_key", "create", "x", "--project", "Nowhere")
    with pytest.raises(CommandError, match="character"):
        run("api_key", "create", "x" * 121)
    assert not ApiKey.objects.exists()


@pytest.mark.django_db
def test_a_password_reset_ends_all_sessions(client: Client) -> None:
    """After the first start there was no documented way to sign in again."""
    get_user_model().objects.create_superuser("admin", "", "the first one")
    assert client.login(username="admin", password="the first one")
    password = run("password").strip()
    assert client.get("/admin/").status_code == 302, "signed out"
    assert not client.login(username="admin", password="the first one")
    assert client.login(username="admin", password=password)
    with pytest.raises(CommandError, match="no user is named 'root'; there are admin"):
        run("password", "root")


@pytest.mark.django_db
def test_without_users_password_refers_to_the_first_start() -> None:
    with pytest.raises(CommandError, match="there is none yet: run make serve first"):
        run("password")


@pytest.mark.parametrize("command", [("password",), ("api_key", "create", "x")])
def test_an_unmigrated_database_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("no such table: chat_project")

    for module, name in ((password, "password_renew"), (api_key, "default_project")):
        monkeypatch.setattr(module, name, fail)
    with pytest.raises(CommandError, match=r"no such table.*start Lightcone once"):
        run(*command)


@pytest.mark.django_db
def test_model_add_registers_a_model(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    assert "model.small" in run("model_add", "small", str(file), "--alias", "tiny", "--default")
    model = ServedModel.objects.get()
    assert (model.path, model.aliases, model.is_default) == (str(file), ["tiny"], True)
    with pytest.raises(CommandError, match="no file or folder"):
        run("model_add", "large", str(tmp_path / "missing.gguf"))
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(CommandError, match="not a GGUF file"):
        run("model_add", "large", str(tmp_path / "notes.txt"))
    with pytest.raises(CommandError, match="already leads to"):
        run("model_add", "tiny", str(file))
    assert ServedModel.objects.count() == 1


@pytest.mark.django_db
def test_model_add_keeps_the_name_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "0123abcd").write_bytes(b"GGUF")
    link = tmp_path / "small-00001-of-00002.gguf"
    link.symlink_to("0123abcd")
    run("model_add", "small", str(link))
    assert ServedModel.objects.get().path == str(link)


@pytest.mark.django_db
def test_model_add_elsewhere_accepts_a_path_missing_here() -> None:
    run("model_add", "far", "/models/far.gguf", "--elsewhere")
    assert ServedModel.objects.get().path == "/models/far.gguf"


@pytest.mark.django_db
def test_old_logs_are_pruned_by_days() -> None:
    now = time.time()
    usage_records_write([record(at_s=now - days * 86_400) for days in (0, 2, 8, 9)])
    assert "2 request logs deleted" in run("logs_prune", "--days", "7")
    assert RequestLog.objects.count() == 2
    with pytest.raises(CommandError, match="at least 1"):
        run("logs_prune", "--days", "0")
