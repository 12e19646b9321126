"""The Scale routes with the scripted service behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.chat.api.conftest import KEY

ROUTE = "/v4/beta/chat/completions"
ROUTES = (ROUTE, "/v5/chat/completions")


@pytest.fixture
async def scale(scripted) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the key where Scale's clients put it."""
    from lightcone_site.asgi import http

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(http), base_url="http://localhost", headers={"x-api-key": KEY}
    ) as client:
        yield client


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], **fields}


async def post(scale: httpx.AsyncClient, route: str = ROUTE, **fields: Any) -> httpx.Response:
    return await scale.post(route, json=body(**fields))


def events(text: str) -> list[tuple[str, str]]:
    """Return (event name, data) of every frame; every line must belong to one."""
    found, name = [], ""
    for line in text.split("\n"):
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            found.append((name, line[6:]))
            name = ""
        else:
            assert line in ("", ": ping"), line
    return found
