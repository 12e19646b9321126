"""A stopping web process is not ready, in any state of its workers."""

from __future__ import annotations

import io
import json

import pytest
from django.core.handlers.asgi import ASGIRequest

from chat.api import status
from chat.api.server_contract import STOP, Stop


@pytest.fixture(autouse=True)
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def state() -> str:
        return "ready"

    monkeypatch.setattr(status, "installation_state", state)


def request(path: str, stop: Stop) -> ASGIRequest:
    return ASGIRequest(
        {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], STOP: stop}, io.BytesIO()
    )


async def test_a_stopping_process_is_live_and_not_ready() -> None:
    stop = Stop()
    assert (await status.ready(request("/health/ready", stop))).status_code == 200
    stop.is_announced = True
    answer = await status.ready(request("/health/ready", stop))
    assert (answer.status_code, json.loads(answer.content), answer["Retry-After"]) == (503, {"status": "draining"}, "1")
    assert (await status.live(request("/health/live", stop))).status_code == 200
