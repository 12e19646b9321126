"""An installation on PostgreSQL: migrated, served, authenticated against, and left clean."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db.utils import ConnectionHandler

from lightcone_site.databases import database_settings
from tests.conftest import POSTGRES_BINARIES
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.postgres]


@pytest.fixture(scope="module")
def database_url(tmp_path_factory) -> Iterator[str]:
    """A PostgreSQL of its own on a private socket. It refuses to run as root, so it runs as the packaged user then."""
    folder = Path("/tmp") / f"lc-pg-{os.getpid()}"  # noqa: S108  (a socket's path must be short, and readable by another user)
    folder.mkdir(mode=0o755)
    binaries = POSTGRES_BINARIES[-1] if POSTGRES_BINARIES else Path(shutil.which("initdb") or "").parent
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    if user:
        shutil.chown(folder, **user)
    data = str(folder / "data")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **user}
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "light", "-A", "trust", "-E", "UTF8", "--no-sync"], check=True, **quiet
    )
    server = subprocess.Popen(
        [binaries / "postgres", "-D", data, "-k", str(folder), "-h", "", "-c", "fsync=off"], **quiet
    )
    try:
        deadline = time.monotonic() + 30
        while subprocess.run(
            [binaries / "createdb", "-h", str(folder), "-U", "light", "light"], check=False, **quiet
        ).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"postgres://light@/light?host={folder}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_lightcone_is_served_on_postgresql(database_url, tmp_path):
    served = ServedLightcone(
        tmp_path, {"DATABASE_URL": database_url, "LIGHTCONE_MODEL": str(tmp_path / "missing.gguf")}, model="missing"
    )
    served.start()
    try:
        served.wait_for(lambda: served.get("/v1/models")[0] == 200, timeout_s=120, what="the key to open")
        assert '"missing"' in served.get("/v1/models")[2]
        assert "PostgreSQL" in served.console()
        assert not (served.data_dir / "lightcone.sqlite3").exists()
    finally:
        assert served.stop() == 0
    assert served.processes_left() == []


def test_a_closed_database_connection_fails_no_request(database_url, tmp_path, django_db_blocker):
    """After a restart of PostgreSQL each pooled connection failed one request with a 500."""
    pooled = ConnectionHandler({"default": database_settings(database_url, tmp_path)})["default"]
    with django_db_blocker.unblock():  # not the database of the tests
        try:
            for _ in range(2):
                with pooled.cursor() as cursor:
                    cursor.execute("SELECT 1")
                pooled.close()  # back into the pool
            with psycopg.connect(database_url) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE "
                    "datname = 'light' AND pid <> pg_backend_pid()"
                )
            for _ in range(2):
                with pooled.cursor() as cursor:
                    cursor.execute("SELECT 1")
                pooled.close()
        finally:
            pooled.close()
            pooled.close_pool()
