"""Answer heads and event lists for the tests of the writers."""

from __future__ import annotations

import json
from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead
from engine.api import ChoiceFinished, Completed, Delta, Event, FinishReason, Outcome, Payload, Timings, Usage


def head(**fields: Any) -> AnswerHead:
    known: dict[str, Any] = {
        "request_id": "r",
        "created": 5,
        "model": "m",
        "fingerprint": "fp_1",
        "role": "assistant",
        "num_choices": 1,
        "has_logprobs": False,
        "include_usage": False,
        "continuous_usage": False,
        "service_tier": None,
        "num_prompt_tokens": 3,
    }
    return AnswerHead(**{**known, **fields})


def finished(choice: int = 0, reason: FinishReason = FinishReason.STOP, **fields: Any) -> ChoiceFinished:
    return ChoiceFinished(choice, reason, **fields)


def completed(**counts: int) -> Completed:
    return Completed(Outcome.FINISHED, Usage(**counts), Timings(0.0))


def events(payloads: list[Payload]) -> list[Event]:
    made, position = [], 1
    for payload in payloads:
        count = max(1, len(payload.token_ids)) if isinstance(payload, Delta) else 1
        made.append(Event(position, count, payload))
        position += count
    return made


def answer(payloads: list[Payload], **fields: Any) -> dict[str, Any]:
    writer = ChatAnswer(head(**fields))
    for event in events([*payloads, completed()]):
        writer.feed(event)
    return json.loads(writer.body())


def stream(payloads: list[Payload], **fields: Any) -> list[dict[str, Any]]:
    """Return the chunks of a stream, without its end."""
    writer = ChatStream(head(**fields))
    text = b"".join(writer.feed(event) for event in events([*payloads, completed()])).decode("ascii")
    *frames, done, rest = text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def choices(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["choices"][0] for chunk in chunks if chunk["choices"]]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in choices(chunks)]


def accumulate(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """Return one choice as a client has it after the stream: strings joined, calls by index."""
    seen: dict[str, Any] = {
        "role": "",
        "content": "",
        "reasoning": "",
        "calls": [],
        "token_ids": [],
        "logprobs": [],
        "finish": [],
    }
    for choice in choices(chunks):
        if choice["index"] != index:
            continue
        assert not seen["finish"], "something follows the last chunk"
        delta = choice["delta"]
        for name in ("role", "content", "reasoning"):
            seen[name] += delta.get(name, "")
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(seen["calls"]):
                assert call["type"] == "function"
                assert call["function"]["arguments"] == ""
                seen["calls"].append({"id": call["id"], "type": "function", "function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"}
                assert set(call["function"]) == {"arguments"}
                seen["calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        seen["token_ids"] += choice.get("token_ids", ())
        seen["logprobs"] += (choice["logprobs"] or {"content": ()})["content"]
        if choice["finish_reason"] is not None:
            seen["finish"] = [choice["finish_reason"], choice["stop_reason"]]
    return seen
