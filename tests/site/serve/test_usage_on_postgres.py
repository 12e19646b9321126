"""Usage, prices, the search of requests and budgets on PostgreSQL: upgraded, written by two, read by indexes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.served import ROOT
from tests.site.serve.test_serving_on_postgres import database_url

pytestmark = [pytest.mark.slow, pytest.mark.postgres]
__all__ = ["database_url"]


def run(database_url: str, folder: Path, *steps: str) -> dict[str, Any]:  # noqa: F811
    """Run steps of usage_on_postgres.py on a new database whose order of letters is not that of bytes."""
    name = f"usage_{secrets.token_hex(4)}"
    with psycopg.connect(database_url, autocommit=True) as server:
        icu = " LOCALE_PROVIDER icu ICU_LOCALE 'de'" if server.info.server_version >= 150_000 else ""
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0{icu}")
    environment = os.environ | {
        "DATABASE_URL": database_url.replace("@/light", f"@/{name}"),
        "LIGHTCONE_DATA_DIR": str(folder),
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    command = [sys.executable, "-m", "tests.site.serve.usage_on_postgres", *steps]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_rows_of_an_earlier_version_are_kept_by_the_upgrade(database_url, tmp_path):  # noqa: F811
    assert run(database_url, tmp_path, "upgrade")["upgrade"] == {
        "accounts": [True],
        "hours": [[2, 25], [3, 15]],
        "price": ["1.000000", "2.000000", True],
    }


def test_usage_and_budgets_work_on_a_new_database(database_url, tmp_path):  # noqa: F811
    found = run(database_url, tmp_path, "fresh", "sums", "prices", "search", "budgets")
    assert found["fresh"] == {"tables": True}
    assert found["sums"] == {"upsert": True, "waits": True, "rebuilt": True, "right": True, "audited": 1}
    assert found["prices"] == {"costs": [0, 1_000_000, 3_000_000], "right": True}
    assert found["search"] == {
        "indexes": {"batch_id": "log_batch_run", "client_request_id": "log_client_request", "user_label": "log_label"},
        "found": {"job-00012": [10, True], "00012": [10, True], "batch_00012": [1, True]},
        "many": [20_000],
    }
    assert found["budgets"] == {"answers": ["refused"], "spent": 50, "level": 50}
