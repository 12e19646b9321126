"""The web process starts quickly and without torch, and commands without pages."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, time
started = time.process_time()
import lightcone_site.asgi
import lightcone_site.http_server
seconds = time.process_time() - started
import chat.tasks, chat.catalog.named_models, lightcone_site.celery, lightcone_site.urls
ours = {"engine.engine", "engine.core.loop", "engine.config", "chat.workers.model", "chat.api.openapi.answers"}
heavy = sorted(({"torch", "transformers", "numpy"} | ours) & set(sys.modules))
print(heavy, seconds)
"""
COMMAND = """
import sys
import django
django.setup()
from django.contrib.auth.models import User
from django.db.models.signals import pre_delete
pages = ("daphne", "lightcone_site.urls", "chat.access.admin.users", "chat.batches.admin")
print([name for name in pages if name in sys.modules], pre_delete.has_listeners(User))
"""


def start() -> tuple[str, float]:
    """Return forbidden modules that were loaded, and the processor seconds."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )
    heavy, _, seconds = done.stdout.strip().rpartition(" ")
    return heavy, float(seconds)


def test_importing_the_application_loads_neither_torch_nor_the_engine_in_under_three_seconds():
    for _ in range(5):  # a processor that is shared takes up to twice its own time
        heavy, seconds = start()
        assert heavy == "[]"
        if seconds < 3.0:
            return
    raise AssertionError(f"{seconds} s of processor time, and no less in five tries")


def test_a_command_loads_no_pages_and_keeps_the_history_of_accounts_that_it_deletes(tmp_path: Path) -> None:
    ours = {"DJANGO_SETTINGS_MODULE": "lightcone_site.settings", "LIGHTCONE_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMMAND]
    done = subprocess.run(command, env=os.environ | ours, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[] True\n"
