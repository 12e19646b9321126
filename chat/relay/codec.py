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
    """Join neighbouring deltas of one choice: fewer, larger events over the same positions. Only for events that were never packed."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if last is not None and _can_join(last, event):
            first, second = last.payload, event.payload
            logprobs = None if first.logprobs is None else first.logprobs + (second.logprobs or ())
            payload = Delta(first.choice, first.token_ids + second.token_ids, first.text + second.text, logprobs)
            joined[-1] = Event(last.start, last.count + event.count, payload)
        else:
            joined.append(event)
    return joined


def _can_join(first: Event, second: Event) -> bool:
    one, two = first.payload, second.payload
    if not isinstance(one, Delta) or not isinstance(two, Delta) or one.choice != two.choice:
        return False
    return (one.logprobs is None) == (two.logprobs is None) and first.start + first.count == second.start
