"""The migration gives every account the playground permission."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

migration: Any = import_module("chat.migrations.0007_people")
EDITOR = SimpleNamespace(connection=connection)


@pytest.mark.django_db
def test_existing_accounts_get_the_playground_permission(django_user_model: Any) -> None:
    ann = django_user_model.objects.create_user("ann")
    ann.user_permissions.clear()
    migration.let_everybody_chat(apps, EDITOR)
    assert ann.user_permissions.filter(codename="use_playground").exists()
