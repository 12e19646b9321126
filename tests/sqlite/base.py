"""The backend: asynchronous views close connections after each query, and would end the transaction of the test."""

from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite


class DatabaseWrapper(SQLite):
    def close(self) -> None:
        """Close the connection outside of transactions, as Django does with databases in memory never."""
        if not self.in_atomic_block:
            super().close()
