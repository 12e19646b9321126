"""New columns of the request log come without a copy of the table, which may have millions of rows."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

SINCE = "0025"
"""Older ones are on every installation."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite copies tables")
def test_no_migration_copies_the_request_log() -> None:
    names = [name for app, name in MigrationLoader(connection).disk_migrations if app == "chat" and name >= SINCE]
    assert names
    for name in sorted(names):
        out = StringIO()
        call_command("sqlmigrate", "chat", name, stdout=out)
        assert "new__chat_requestlog" not in out.getvalue(), name
