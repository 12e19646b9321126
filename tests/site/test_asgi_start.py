"""The web process starts quickly and without torch."""

import subprocess
import sys

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
