"""The migration gives every account the playground permission and counts disconnects from the log."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from chat.models import UsageHour
from chat.usage.services import usage_records_write
from tests.chat.records import NOON, record

migration: Any = import_module("chat.migrations.0007_people")
EDITOR = SimpleNamespace(connection=connection)


@pytest.mark.django_db
def test_existing_accounts_get_the_playground_permission(django_user_model: Any) -> None:
    ann = django_user_model.objects.create_user("ann")
    ann.user_permissions.clear()
    migration.let_everybody_chat(apps, EDITOR)
    assert ann.user_permissions.filter(codename="use_playground").exists()


@pytest.mark.django_db
def test_disconnected_clients_are_counted_from_the_log() -> None:
    records = [record(at_s=NOON + hour * 3600, status=status) for hour in (0, 0, 1) for status in (200, 404, 499, 499)]
    usage_records_write(records)
    counted = list(
        UsageHour.objects.order_by("pk").values_list("period_start", "status_class", "num_requests", "num_left")
    )
    UsageHour.objects.update(num_left=0)
    migration.count_clients_who_left(apps, EDITOR)
    assert (
        list(UsageHour.objects.order_by("pk").values_list("period_start", "status_class", "num_requests", "num_left"))
        == counted
    )
    assert sorted(row[1:] for row in counted) == [(2, 1, 0), (2, 2, 0), (4, 3, 2), (4, 6, 4)]
