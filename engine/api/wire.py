"""Converts requests and events to plain values and back, wherever they leave a process.

Plain values are dicts, lists, strings, numbers, booleans and None, for any encoding (JSON, msgpack); bytes become lists
of integers.

    request   {field: value}, fields at their default left out
    event     [start, count, kind, {field: value}]

Tolerance between versions: unknown keys are ignored, missing ones take their default. A missing field without a
default, an unknown kind or an unknown enum value raises `ValueError`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TypeVar, cast

from engine.api.events import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Embedded,
    Event,
    Failed,
    Payload,
    PromptScored,
    Rejected,
    Scored,
    SegmentSpoken,
    Transcribed,
)
from engine.api.request import GenerationRequest, Json

T = TypeVar("T")
Convert = Callable[[typing.Any], typing.Any]

PAYLOAD_TYPES: dict[str, type[Payload]] = {
    "admitted": Admitted,
    "rejected": Rejected,
    "prompt_scored": PromptScored,
    "embedded": Embedded,
    "scored": Scored,
    "segment_spoken": SegmentSpoken,
    "transcribed": Transcribed,
    "delta": Delta,
    "choice_finished": ChoiceFinished,
    "completed": Completed,
    "failed": Failed,
}
_KIND_OF = {payload_type: kind for kind, payload_type in PAYLOAD_TYPES.items()}


def request_to_plain(request: GenerationRequest) -> dict[str, Json]:
    return _to_plain(request)


def request_from_plain(plain: dict[str, Json]) -> GenerationRequest:
    """Return the request of its plain form. Raises ValueError."""
    return _from_plain(GenerationRequest, plain)


def event_to_plain(event: Event) -> list[Json]:
    return [event.start, event.count, _KIND_OF[type(event.payload)], _to_plain(event.payload)]


def event_from_plain(plain: list[Json]) -> Event:
    """Return the event of its plain form. Raises ValueError."""
    start, count, kind, payload = plain[:4]
    if kind not in PAYLOAD_TYPES:
        raise ValueError(f"unknown kind of event: {kind!r}")
    return Event(
        cast(int, start),
        cast(int, count),
        _from_plain(PAYLOAD_TYPES[cast(str, kind)], cast("dict[str, Json]", payload)),
    )


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field of a dataclass is encoded and decoded; None if its value is used unchanged."""

    default: object
    """MISSING if the field is required."""
    encode: Convert | None
    decode: Convert | None


def _to_plain(value: object) -> dict[str, Json]:
    plain: dict[str, Json] = {}
    for name, field in _fields_of(type(value)).items():  # type: ignore[arg-type]  # mypy takes a class for unhashable
        item = getattr(value, name)
        if field.default is MISSING or item != field.default:
            plain[name] = field.encode(item) if field.encode and item is not None else item
    return plain


def _from_plain(cls: type[T], plain: dict[str, Json]) -> T:
    if not isinstance(plain, dict):
        raise ValueError(f"{cls.__name__} must be an object")
    known = _fields_of(cls)  # type: ignore[arg-type]  # mypy takes a class for unhashable
    values = {}
    for name, item in plain.items():
        field = known.get(name)
        if field is not None:
            values[name] = item if field.decode is None or item is None else field.decode(item)
    try:
        return cls(**values)
    except TypeError as error:
        missing = [name for name, field in known.items() if field.default is MISSING and name not in values]
        raise ValueError(f"{cls.__name__}.{min(missing)} is missing") from error


@cache
def _fields_of(cls: type) -> dict[str, _Field]:
    hints = typing.get_type_hints(cls)
    found = {}
    for field in fields(cls):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        found[field.name] = _Field(default, *_conversion(hints[field.name]))
    return found


def _conversion(hint: object) -> tuple[Convert | None, Convert | None]:
    """Return how values of an annotated type are encoded and decoded: dataclasses, enums, bytes and tuples of them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        chosen = [argument for argument in arguments if argument is not types.NoneType]
        return _conversion(chosen[0]) if len(chosen) == 1 else (None, None)
    if origin is tuple:
        encode, decode = _conversion(arguments[0])
        return (
            (lambda items: [encode(item) for item in items]) if encode else list,
            (lambda items: tuple([decode(item) for item in items])) if decode else tuple,
        )
    if hint is bytes:
        return list, bytes
    if isinstance(hint, type) and issubclass(hint, Enum):
        return (lambda item: item.value), hint
    if isinstance(hint, type) and is_dataclass(hint):
        return _to_plain, lambda plain: _from_plain(hint, plain)
    return None, None
