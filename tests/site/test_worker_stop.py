"""Worker processes end at a signal, or if one of their parts fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightcone_site.worker import STOP_S

pytestmark = pytest.mark.slow

PATIENCE_S = 120
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def maintenance(data_dir: Path, redis_url: str) -> Iterator[subprocess.Popen[str]]:
    names = {
        "LIGHTCONE_ROLE": "maintenance",
        "LIGHTCONE_DATA_DIR": str(data_dir),
        "LIGHTCONE_REDIS_URL": redis_url,
        "LIGHTCONE_METRICS_PORT": "0",
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "lightcone_site.settings",
    }
    command = [sys.executable, "-m", "lightcone_site.worker"]
    worker = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | names, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    patience = threading.Timer(PATIENCE_S, worker.kill)
    patience.start()
    try:
        yield worker
    finally:
        patience.cancel()
        worker.kill()
        worker.wait()


def wait_for_words(worker: subprocess.Popen[str], words: str) -> None:
    assert worker.stdout is not None
    said = []
    for line in worker.stdout:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


def test_a_worker_whose_beat_fails_exits_to_be_restarted(valkey: str, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where beat wants a folder")
    with maintenance(tmp_path, valkey) as worker:
        wait_for_words(worker, "beat cannot go on")
        assert worker.wait(60) == 1


def test_a_worker_without_valkey_ends_at_sigterm(tmp_path: Path) -> None:
    """The worker waited for the broker with all its threads, for ever."""
    with maintenance(tmp_path, f"unix://{tmp_path}/nobody.sock") as worker:
        wait_for_words(worker, "rying again in")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(STOP_S["maintenance"] + 30) == 0
