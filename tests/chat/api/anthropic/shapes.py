"""Requests and readers of answers that the tests of this dialect share."""

from __future__ import annotations

import json
from typing import Any

import httpx

from chat.api.dialect import AnswerHead
from engine.api import Event, Payload

ROUTE = "/v1/messages"
COUNT_ROUTE = "/v1/messages/count_tokens"
TURN = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "The weather.", "input_schema": SCHEMA}


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [TURN], "max_tokens": 9, **fields}


async def post(api: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await api.post(ROUTE, json=message(**fields))


def head(**fields: Any) -> AnswerHead:
    known = {
        "request_id": "r",
        "created": 1,
        "model": "m",
        "fingerprint": "fp",
        "role": "assistant",
        "num_choices": 1,
        "has_logprobs": False,
        "include_usage": False,
        "continuous_usage": False,
        "service_tier": None,
        "num_prompt_tokens": 3,
    }
    return AnswerHead(**{**known, **fields})


def events(*payloads: Payload) -> list[Event]:
    return [Event(0, 1, payload) for payload in payloads]


def frames(text: str) -> list[dict[str, Any]]:
    """Return the data of all events. Each frame names its event, as clients demand; pings between them are comments."""
    values = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        lines = [line for line in frame.split("\n") if line != ": ping"]
        if not lines:
            continue
        name, data = lines
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        values.append(value)
    return values


def joined(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content blocks that a client puts together from the events of a stream; check their order."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for value in values:
        kind = value["type"]
        if kind == "content_block_start":
            assert not is_open
            assert value["index"] == len(blocks)
            block = dict(value["content_block"])
            blocks.append(block | {"json": ""} if block["type"] == "tool_use" else block)
            is_open = True
        elif kind == "content_block_delta":
            assert is_open
            assert value["index"] == len(blocks) - 1
            _grow(blocks[-1], value["delta"])
        elif kind == "content_block_stop":
            assert is_open
            assert value["index"] == len(blocks) - 1
            is_open = False
        else:
            assert not is_open
    return blocks


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    member = {
        "text_delta": "text",
        "thinking_delta": "thinking",
        "signature_delta": "signature",
        "input_json_delta": "partial_json",
    }[delta["type"]]
    if member == "partial_json":
        block["json"] += delta[member]
    else:
        block[member] += delta[member]
