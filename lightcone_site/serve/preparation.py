"""What must be true of an installation before its processes start: tables, static files. Done again only when something changed."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connections


def prepare(console: Any) -> None:
    """Migrate the database and collect static files, unless the mark of the last preparation still fits."""
    mark = settings.DATA_DIR / "run" / "prepared"
    fingerprint = installation_fingerprint()
    if _is_local_database_present() and mark.exists() and mark.read_text() == fingerprint:
        console.ok("database", f"{database_words()}, up to date")
        return
    mark.unlink(missing_ok=True)
    console.progress("database", "applying migrations")
    call_command("migrate", interactive=False, verbosity=0)
    console.ok("database", f"{database_words()}, migrated")
    console.progress("static files", "collecting")
    call_command("collectstatic", interactive=False, verbosity=0, stdout=io.StringIO())
    console.ok("static files", str(settings.STATIC_ROOT))
    connections.close_all()
    mark.write_text(fingerprint)


def installation_fingerprint() -> str:
    """A digest of everything whose change needs migrations or static files: interpreter, requirements, our files, the database's place."""
    database = settings.DATABASES["default"]
    digest = hashlib.sha256()
    for part in (
        sys.version,
        *(str(database.get(key, "")) for key in ("ENGINE", "NAME", "HOST", "PORT")),
        str(settings.STATIC_ROOT),
    ):
        digest.update(part.encode() + b"\0")
    digest.update((settings.BASE_DIR / "requirements.txt").read_bytes())
    for path in sorted(_watched_files(settings.BASE_DIR / "chat")):
        status = path.stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def database_words() -> str:
    """The kind and place of the database, without its password."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        return f"SQLite {database['NAME']}"
    return f"PostgreSQL {database['HOST'] or 'local socket'}/{database['NAME']}"


def _watched_files(package: Path) -> Iterator[Path]:
    yield from (package / "migrations").glob("*.py")
    yield from (path for path in (package / "static").rglob("*") if path.is_file())


def _is_local_database_present() -> bool:
    """SQLite's file exists; a server's tables are never taken for granted."""
    database = settings.DATABASES["default"]
    return database["ENGINE"].endswith("sqlite3") and Path(database["NAME"]).exists() and settings.STATIC_ROOT.exists()
