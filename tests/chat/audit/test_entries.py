"""An entry is written with its act, says who acted from where, and is neither changed nor deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from chat.access.keys import key_create, key_disable, key_update
from chat.audit.actions import ActorKind
from chat.audit.models import Unchangeable
from chat.audit.origin import Origin, acting
from chat.audit.services import Subject, audit_prune, audit_record
from chat.models import AuditEntry, Project
from chat.tasks import audit_retention

pytestmark = pytest.mark.django_db
ANN = Origin(ActorKind.USER, "7", "ann", "192.0.2.1", "console", "request-1")


def entry(*, days: float = 0) -> AuditEntry:
    return AuditEntry.objects.create(
        at=timezone.now() - timedelta(days=days), actor_kind="user", action="key.create", object_kind="key"
    )


# Nobody changes them.


def test_code_can_neither_change_nor_delete_an_entry() -> None:
    made = entry(days=500)
    made.actor_name = "somebody else"
    for act in (
        made.save,
        made.delete,
        AuditEntry.objects.all().delete,
        lambda: AuditEntry.objects.update(actor_name="x"),
        lambda: AuditEntry.objects.bulk_update([made], ["actor_name"]),
        lambda: AuditEntry.objects.update_or_create(pk=made.pk, defaults={"actor_name": "x"}),
    ):
        with pytest.raises(Unchangeable):
            act()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chat_auditentry SET actor_name = 'x'",
        "DELETE FROM chat_auditentry",
        "REPLACE INTO chat_auditentry SELECT * FROM chat_auditentry",
        "INSERT INTO chat_auditentry SELECT * FROM chat_auditentry WHERE 1 ON CONFLICT (id) DO UPDATE SET action = 1",
    ],
)
def test_the_database_refuses_what_code_might_still_try(statement: str) -> None:
    entry(days=364)
    with pytest.raises(DatabaseError, match="audit"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert AuditEntry.objects.get().actor_name == ""


def test_entries_older_than_retention_are_removed_and_the_removal_is_an_entry(settings: Any) -> None:
    settings.LIGHTCONE_AUDIT_DAYS = 400
    for days in (390, 401, 402, 900):
        entry(days=days)
    audit_retention()
    kept = list(AuditEntry.objects.order_by("pk"))
    assert [one.action for one in kept] == ["key.create", "audit.prune"]
    assert kept[1].after["number"] == 3
    audit_retention()
    assert AuditEntry.objects.count() == 2, "nothing was removed, so nothing is said"


def test_no_retention_reaches_into_the_last_year() -> None:
    entry(days=364)
    assert audit_prune(before=timezone.now()) == 0


def test_old_entries_are_removed_some_at_a_time() -> None:
    for _ in range(5):
        entry(days=400)
    assert audit_prune(before=timezone.now(), at_once=2) == 5


# What they say.


def test_a_change_and_its_entry_are_stored_together_or_not_at_all(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("chat.access.keys.configuration_touch", fail)
    with pytest.raises(RuntimeError):
        key_create(project=project, name="one")
    assert not AuditEntry.objects.exists()


def test_an_entry_has_who_acted_and_the_changed_fields_alone(project: Project) -> None:
    key, _ = key_create(project=project, name="one")
    key.name, key.requests_per_minute = "two", 60
    with acting(lambda: ANN):
        key_update(key=key)
    made = AuditEntry.objects.first()
    assert made is not None
    assert (made.actor_kind, made.actor_id, made.actor_name) == ("user", "7", "ann")
    assert (made.address, made.source, made.request_id) == ("192.0.2.1", "console", "request-1")
    assert (made.action, made.object_kind, made.object_id, made.object_name) == (
        *("key.change", "key"),
        key.public_id,
        "two",
    )
    assert (made.org_id, made.project_id) == (project.org_id, project.pk)
    assert made.before == {"name": "one", "requests_per_minute": None}
    assert made.after == {"name": "two", "requests_per_minute": 60}


def test_what_changes_nothing_leaves_no_entry(project: Project) -> None:
    key, _ = key_create(project=project, name="one")
    key_disable(key=key)
    before = AuditEntry.objects.count()
    key_disable(key=key)
    key_update(key=key)
    assert AuditEntry.objects.count() == before


def test_a_command_is_named_by_its_user_and_its_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ["/srv/lightcone/manage.py", "chat", "--key", f"lc_accept0001_{'0' * 48}", "a\nb"]
    monkeypatch.setattr("sys.argv", line)
    monkeypatch.setattr("chat.audit.origin._user_name", lambda: "ops")
    key_create(project=project, name="one")
    made = AuditEntry.objects.get()
    assert (made.actor_kind, made.actor_name) == ("command", "ops")
    assert made.source == r"manage.py chat --key lc_accept0001_*** 'a\nb'"
    assert made.address, "the machine"


def test_a_task_is_an_act_of_the_server(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTCONE_ROLE", "maintenance")
    key_create(project=project, name="one")
    made = AuditEntry.objects.get()
    assert (made.actor_kind, made.actor_name) == ("system", "maintenance")


def test_texts_are_cut_to_their_columns() -> None:
    long = Origin(ActorKind.KEY, *("x" * 1000 for _ in range(5)))
    with acting(lambda: long):
        audit_record(action="key.create", on=Subject("y" * 1000, "z\0" * 1000))
    made = AuditEntry.objects.get()
    assert len(made.actor_name) == 150
    assert made.object_name.startswith("z\ufffd")


def test_an_unknown_action_is_a_defect() -> None:
    with pytest.raises(ValueError, match="no action"):
        audit_record(action="key.admire", on=Subject())
