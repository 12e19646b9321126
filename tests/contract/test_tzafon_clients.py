"""Both generations of the published tzafon client, each in an environment of its own, against a served Lightcone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("tzafon_script.py")


def client_python(version: str) -> Path:
    """The interpreter of an environment with this client, made on first use."""
    folder = ROOT / "build" / "clients" / f"tzafon-{version}"
    python = folder / "bin" / "python"
    mark = folder / "complete"
    if not mark.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"tzafon=={version}"], check=True)
        mark.touch()
    return python


@pytest.mark.parametrize("version", ["2.44.1", "2.28.0"])
def test_the_client_chats_streams_lists_and_sees_errors(lightcone, version):
    environment = {**os.environ, "TZAFON_API_KEY": lightcone.api_key}
    command = [str(client_python(version)), str(SCRIPT), lightcone.base_url, lightcone.model]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["version"] == version
    assert seen["text"]
    assert seen["streamed"] == seen["text"]
    assert seen["last"] == "[DONE]"
    assert seen["lines"] > 2
    assert seen["call"] == {"name": "now", "arguments": "{}"}
    assert seen["formed"] in ("tea", "coffee")
    assert lightcone.model in seen["models"]
    assert seen["error"]["error"]["param"] == "temperature"
    assert seen["error"]["message"] == seen["error"]["error"]["message"]
    assert seen["status"] == 401
