"""The backend of tests: SQLite whose connections and tables outlive what Django and Lightcone would do to them."""

from typing import Any

from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from django.db.backends.sqlite3.operations import DatabaseOperations

from chat.audit.triggers import DROPS, TABLE, TRIGGERS


class Operations(DatabaseOperations):
    def sql_flush(self, style: Any, tables: Any, **options: Any) -> list[str]:
        """Empty the audit log too, after a test that has committed; it refuses that otherwise."""
        statements = list(super().sql_flush(style, tables, **options))
        return [*DROPS["sqlite"], *statements, *TRIGGERS["sqlite"]] if TABLE in tables else statements


class DatabaseWrapper(SQLite):
    ops_class = Operations

    def close(self) -> None:
        """Close the connection outside of transactions, as Django does with databases in memory never.

        Asynchronous views close connections after each query, and would end the transaction of the test.
        """
        if not self.in_atomic_block:
            super().close()
