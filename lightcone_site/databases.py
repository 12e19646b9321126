"""The SQL database and the address of Valkey, from the two URLs that an operator may set."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

MAX_SOCKET_PATH_BYTES = 103
"""Unix socket paths end at 104 bytes on macOS and 108 on Linux, terminator included."""

SQLITE_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA busy_timeout=30000",
    "PRAGMA cache_size=-65536",
    "PRAGMA mmap_size=268435456",
    "PRAGMA foreign_keys=ON",
)


def database_settings(url: str, data_dir: Path) -> dict[str, Any]:
    """Return Django's settings of the default database: SQLite in the data directory, or the PostgreSQL of `url`.

    `url`: postgres://user:password@host:port/name?sslmode=require. Query parameters go to libpq; a host among them
    (`?host=/run/postgresql`) names a socket directory. Raises ImproperlyConfigured.
    """
    if not url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": data_dir / "lightcone.sqlite3",
            "CONN_MAX_AGE": 0,
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": ";".join(SQLITE_PRAGMAS)},
        }
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {error}") from None
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            "DATABASE_URL must start with postgres:// (or be unset for SQLite in the data directory), "
            f"got {parts.scheme or 'no scheme'!r}"
        )
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise ImproperlyConfigured("DATABASE_URL must name a database: postgres://user:password@host:5432/name")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    host = options.pop("host", None) or unquote(parts.hostname or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port or options.pop("port", "")),
        "CONN_MAX_AGE": 0,
        # The pool checks a connection before use, and replaces those that a restarted server has closed.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**options, "pool": {"min_size": 1, "max_size": 16, "timeout": 10}},
    }


def embedded_valkey_socket(data_dir: Path) -> Path:
    """Return the socket path of the embedded Valkey: in the data directory, or a private folder if that is too long."""
    path = data_dir / "run" / "valkey.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) if len(tempfile.gettempdir()) < 40 else Path("/tmp")  # noqa: S108
    return short / f"lightcone-{os.getuid()}-{digest}" / "valkey.sock"


def broker_url(redis_url: str) -> str:
    """Return the URL of the same Valkey for Celery's transport, which writes redis+socket:// for a socket."""
    return re.sub(r"\Aunix://", "redis+socket://", redis_url)
