"""The migration names the person behind requests that were sent with personal keys."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from chat.access.keys import key_create
from chat.models import Project, RequestLog
from chat.usage.services import usage_records_write
from tests.chat.records import record
from tests.people import member

migration: Any = import_module("chat.migrations.0026_request_log_accounts")


def test_requests_of_personal_keys_and_chats_get_their_person(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "BATCH", 2)
    ann = member("ann", org=project.org)
    hers, shared = key_create(project=project, name="hers", owner=ann)[0], key_create(project=project, name="shared")[0]
    usage_records_write([record(key_public_id=key.public_id) for key in (hers, hers, hers, shared)])
    usage_records_write([record(key_public_id="", dialect="playground", user_label=name) for name in ("ann", "gone")])
    for _ in range(2):
        migration.name_accounts(apps, SimpleNamespace(connection=connection))
        assert set(RequestLog.objects.values_list("key_public_id", "user_label", "account_id")) == {
            (hers.public_id, "", ann.pk),
            (shared.public_id, "", None),
            ("", "ann", ann.pk),
            ("", "gone", None),
        }
