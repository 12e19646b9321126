"""A dialect is one folder and one registry entry: one from a temporary folder is served everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = {
    "__init__.py": "",
    "entry.py": """
from chat.api.dialect import DialectEntry

SHOUT = DialectEntry(
    urls=("shout.urls",),
    error_format="shout.dialect:SHOUT_FORMAT",
    path_prefixes=("/v9",),
    segments=("v9",),
    counted_routes=("/v9/shout",),
    described_in=("shout.openapi",),
    batch_endpoints={"/v9/shout": "shout.urls"},
    stored_endings={"shout": "shout.dialect:shout_ended"},
)
""",
    "dialect.py": """
class ShoutFormat:
    name = "shout"
    key_header = "authorization"
    header_limits = {}

    def error_body(self, error):
        return {"SHOUT": error.message.upper()}

SHOUT_FORMAT = ShoutFormat()
""",
    "urls.py": """
from django.urls import re_path

from chat.api.view import api_view, json_response
from shout.dialect import SHOUT_FORMAT

async def shout(request, dialect):
    return json_response({"shout": "HELLO"})

urlpatterns = [re_path(r"^v9/shout/?\\Z", api_view(SHOUT_FORMAT, is_open=True, post=shout))]
""",
    "openapi.py": """
from chat.api.openapi.describe import routes
from chat.api.openapi.notation import components

SCHEMAS = components("Shout = {shout: string}")
OPERATIONS = routes("shout", "POST /v9/shout shout() -> Shout Shout", needs_key=False)
""",
}
VISIT = """
import asyncio, json
from chat.api import registry
from shout.entry import SHOUT
registry.DIALECTS = (SHOUT, *registry.DIALECTS)
import django
django.setup()

import httpx
from lightcone_site.asgi import http
from chat.batches.services import ENDPOINTS
from chat.usage.metrics import route_label

async def visit():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(http), base_url="http://localhost") as client:
        return [await client.post("/v9/shout"), await client.get("/v9/nowhere"), await client.get("/api/schema")]

answer, unknown, schema = asyncio.run(visit())
print(json.dumps({
    "answer": answer.json(),
    "unknown": [unknown.status_code, unknown.json()],
    "described": "/v9/shout" in schema.json()["paths"],
    "counted": route_label("/v9/shout/", registry.counted_routes()),
    "in_batches": "/v9/shout" in ENDPOINTS,
    "ends_stored": registry.stored_endings()["shout"],
}))
"""


def test_a_dialect_is_one_folder_and_one_entry(tmp_path: Path) -> None:
    folder = tmp_path / "shout"
    folder.mkdir()
    for name, text in FOLDER.items():
        (folder / name).write_text(text)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{tmp_path}:{ROOT}",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "LIGHTCONE_DATA_DIR": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-c", VISIT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["answer"] == {"shout": "HELLO"}
    assert seen["unknown"][0] == 401
    assert list(seen["unknown"][1]) == ["SHOUT"]
    assert seen["described"]
    assert seen["counted"] == "/v9/shout"
    assert seen["in_batches"]
    assert seen["ends_stored"] == "shout.dialect:shout_ended"
