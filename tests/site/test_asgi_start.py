"""The web process starts light: no torch, and quickly."""

import subprocess
import sys

SCRIPT = """
import sys, time
started = time.process_time()
import lightcone_site.asgi
import chat.http_server
heavy = sorted({"torch", "transformers", "engine.engine", "engine.core", "numpy"} & set(sys.modules))
print(heavy, time.process_time() - started)
"""


def test_importing_the_application_loads_neither_torch_nor_the_engine_in_under_three_seconds():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    heavy, _, seconds = done.stdout.strip().rpartition(" ")
    assert heavy == "[]"
    assert float(seconds) < 3.0, "processor time, as the machine may be busy"
