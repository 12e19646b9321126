"""Every command that changes anything leaves an entry of the operating-system user; `audit` reads the log."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands

from chat.access.keys import key_create
from chat.catalog.services import model_register
from chat.models import ApiKey, AuditEntry, Project
from chat.usage.services import usage_records_write
from tests.chat.audit.secrets_of_tests import entries_after, last_entry
from tests.chat.records import record

ROOMS = ("chat", "lightcone_site")
READ_ONLY = {"audit list", "api_key list", "messages", "doctor", "chat", "run", "serve", "model", "budgets"}
"""`chat` and `run` are clients; `serve` starts processes, whose first entries tests/chat/audit/test_people.py has.
`model` registers and removes by the services of `model_add`. `budgets` makes Valkey agree with the database."""
CASES = {
    "api_key create": ("key.create", ("api_key", "create", "new")),
    "api_key rotate": ("key.rotate", ("api_key", "rotate", "KEY")),
    "api_key revoke": ("key.delete", ("api_key", "revoke", "KEY")),
    "audit export": ("audit.export", ("audit", "export", "--actor", "ann")),
    "logs_prune": ("requests.prune", ("logs_prune", "--days", "30")),
    "model_add": ("model.create", ("model_add", "new", "/m/new", "--elsewhere")),
    "model rm": ("model.delete", ("model", "rm", "small")),
    "usage rebuild": ("usage.rebuild", ("usage", "rebuild", "--from", "2026-01-01", "--until", "2026-01-01")),
    "password": ("user.password", ("password", "admin")),
}
"""By command: the action of its entry and the words."""


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_each_command_has_a_case_or_changes_nothing() -> None:
    names = {name for name, room in get_commands().items() if room in ROOMS}
    assert names == {name.partition(" ")[0] for name in (*CASES, *READ_ONLY)}


@pytest.mark.usefixtures("admin_user")
@pytest.mark.parametrize("command", CASES)
def test_each_command_leaves_one_entry(project: Project, settings: Any, tmp_path: Path, command: str) -> None:
    settings.LIGHTCONE_MODEL_STORE = tmp_path
    key, _ = key_create(project=project, name="one")
    model_register(name="small", path="/m/small")
    usage_records_write([record()])
    action, words = CASES[command]
    last = last_entry()
    run(*(key.public_id if word == "KEY" else word for word in words))
    (entry,) = entries_after(last)
    assert entry.action == action
    assert entry.actor_kind == "command"
    assert entry.actor_name
    assert entry.source


def test_the_log_is_listed_newest_first_with_filters(project: Project) -> None:
    run("api_key", "create", "first")
    run("api_key", "create", "second")
    lines = run("audit", "list", "--action", "key.create").splitlines()
    assert [("second" in line, "first" in line) for line in lines] == [(True, False), (False, True)]
    assert run("audit", "list", "--object", f"key:{ApiKey.objects.first().public_id}").count("\n") == 1
    assert run("audit", "list", "--limit", "1").count("\n") == 1
    assert run("audit", "list", "--until", "2020-01-01") == ""
    assert AuditEntry.objects.count() == 2, "reading in a terminal of the server leaves no entry"


def test_an_export_writes_the_same_files_as_the_console(project: Project) -> None:
    run("api_key", "create", "=first")
    (row,) = csv.DictReader(io.StringIO(run("audit", "export", "--format", "csv", "--action", "key.create")))
    assert row["object_name"] == "'=first"
    exported, made = (json.loads(line) for line in run("audit", "export").splitlines()[1:])
    assert (exported["action"], made["object_name"]) == ("audit.export", "=first")


@pytest.mark.parametrize(
    "words",
    [("list", "--limit", "0"), ("list", "--from", "soon"), ("export", "--format", "xml"), ("list", "--action", "x")],
)
def test_a_bad_option_is_refused(db: None, words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run("audit", *words)
