"""Bytes of the relay: msgpack over the plain forms of engine.api.wire.

An entry is packed once and goes unchanged into the log and the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgpack

from engine.api import Delta, Event, GenerationRequest
from engine.api.wire import event_from_plain, event_to_plain, request_from_plain, request_to_plain


def pack_events(events: Iterable[Event]) -> bytes:
    return msgpack.packb([event_to_plain(event) for event in events])


def unpack_events(payload: bytes) -> list[Event]:
    """Raises ValueError on anything that is not a packed list of events."""
    return [event_from_plain(plain) for plain in msgpack.unpackb(payload)]


def pack_request(request: GenerationRequest) -> bytes:
    return msgpack.packb(request_to_plain(request))


def unpack_request(payload: bytes) -> GenerationRequest:
    return request_from_plain(msgpack.unpackb(payload))


def pack_record(record: Mapping[str, Any]) -> bytes:
    return msgpack.packb(record)


def unpack_record(payload: bytes) -> dict[str, Any]:
    return msgpack.unpackb(payload)


def join_deltas(events: list[Event]) -> list[Event]:
    """Join neighbouring deltas of one choice to fewer events over the same positions. Only for unpacked events."""
    joined: list[Event] = []
    for event in events:
        one = _joined(joined[-1], event) if joined else None
        if one is None:
            joined.append(event)
        else:
            joined[-1] = one
    return joined


def _joined(first: Event, second: Event) -> Event | None:
    """Join two events, or return None if they cannot be joined."""
    one, two = first.payload, second.payload
    if not isinstance(one, Delta) or not isinstance(two, Delta) or one.choice != two.choice:
        return None
    if (one.logprobs is None) != (two.logprobs is None) or first.start + first.count != second.start:
        return None
    if (one.text and two.reasoning) or (one.tool_calls and (two.reasoning or two.text)):
        return None  # within one delta reasoning goes before text, and text before calls
    logprobs = None if one.logprobs is None else one.logprobs + (two.logprobs or ())
    reasoning, tool_calls = one.reasoning + two.reasoning, one.tool_calls + two.tool_calls
    payload = Delta(one.choice, one.token_ids + two.token_ids, one.text + two.text, logprobs, reasoning, tool_calls)
    return Event(first.start, first.count + second.count, payload)
