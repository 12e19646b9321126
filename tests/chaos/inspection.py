"""A served Lightcone seen from outside: its processes, their memory, engine counters and request log."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.served import ROOT, ServedLightcone

WORDS = {"web": "lightcone_site.web", "worker": "model@", "core": "engine.core.process", "maintenance": "maintenance@"}
"""A part of the command line of each process."""
ASK = """
import json, socket
from lightcone_site.celery import app
node = f"model@{socket.gethostname()}"
print(json.dumps(app.control.broadcast("lightcone_stats", destination=[node], reply=True, timeout=20, limit=1)))
"""


def pid_of(served: ServedLightcone, process: str) -> int | None:
    """Return the process of this name in `WORDS`, None while there is none.

    A launcher that has not yet become its component does not count.
    """
    found = [
        pid for pid, command in served.processes_left() if WORDS[process] in command and "launch.py" not in command
    ]
    return found[0] if found else None


def resident_bytes(pid: int) -> int:
    """Return the memory of the process without mapped files."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def engine_stats(served: ServedLightcone) -> dict[str, Any]:
    """Return the worker's answer to the control command `lightcone_stats`; the core has verified its blocks."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("LIGHTCONE_", "DJANGO_", "DATABASE_"))
    }
    environment["LIGHTCONE_DATA_DIR"] = str(served.data_dir)
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert asked.returncode == 0, asked.stderr
    [answers] = json.loads(asked.stdout)
    [(_, models)] = answers.items()
    [stats] = models.values()
    return stats


def request_log(served: ServedLightcone) -> list[dict[str, Any]]:
    """Return all rows, oldest first."""
    with closing(sqlite3.connect(f"file:{served.data_dir / 'lightcone.sqlite3'}?mode=ro", uri=True)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM chat_requestlog ORDER BY run_id")]
