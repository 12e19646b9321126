"""Requests and readers of answers that the tests of this dialect share."""

from __future__ import annotations

import json
from typing import Any

import httpx

from engine.api import Event, Payload
from tests.chat.api.anthropic.shapes import head

__all__ = ["CHAT", "GENERATE", "TURN", "chat", "events", "generate", "head", "lines", "written"]

CHAT, GENERATE = "/api/chat", "/api/generate"
TURN = {"role": "user", "content": "hi"}
CHANGING = ("created_at",)


async def chat(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await api.post(CHAT, json={"model": "tiny", "messages": [TURN], "stream": False, **fields})


async def generate(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await api.post(GENERATE, json={"model": "tiny", "prompt": "hi", "stream": False, **fields})


def lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of a stream: one on each line, and nothing else."""
    assert text.isascii()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


def written(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what differs from run to run."""
    assert all(name in value for name in CHANGING)
    return {name: member for name, member in value.items() if name not in CHANGING}


def events(*payloads: Payload) -> list[Event]:
    return [Event(0, 1, payload) for payload in payloads]
