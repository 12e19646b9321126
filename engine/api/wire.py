"""Converts requests and events to plain JSON-ready values and back. Standard library only.

Used wherever a request or event leaves a process: stored request, log of the run, channel layer message. The plain
values are dicts, lists, strings, numbers, booleans and None, for any encoding (JSON, msgpack); bytes become lists of
integers.

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
)
from engine.api.request import GenerationRequest
from engine.api.tools import Json

T = TypeVar("T")
Convert = Callable[[typing.Any], typing.Any]

PAYLOAD_TYPES: dict[str, type[Payload]] = {
    "admitted": Admitted,
    "rejected": Rejected,
    "prompt_scored": PromptScored,
    "embedded": Embedded,
    "delta": Delta,
    "choice_finished": ChoiceFinished,
    "completed": Completed,
    "failed": Failed,
}
_KIND_OF = {payload_type: kind for kind, payload_type in PAYLOAD_TYPES.items()}


def request_to_plain(request: GenerationRequest) -> dict[str, Json]:
    """Return the request as a JSON-ready dict."""
    return _to_plain(request)


def request_from_plain(plain: dict[str, Json]) -> GenerationRequest:
    """Return the request of a plain dict. Raises ValueError."""
    return _from_plain(GenerationRequest, plain)


def event_to_plain(event: Event) -> list[Json]:
    """Return the event as a JSON-ready list."""
    return [event.start, event.count, _KIND_OF[type(event.payload)], _to_plain(event.payload)]


def event_from_plain(plain: list[Json]) -> Event:
    """Return the event of a plain list. Raises ValueError."""
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
    """A field of a dataclass."""

    name: str
    default: object
    """MISSING if the field is required."""
    encode: Convert | None
    """None if the value is used unchanged."""
    decode: Convert | None


def _to_plain(value: object) -> dict[str, Json]:
    plain: dict[str, Json] = {}
    for field in _plan(type(value)):  # type: ignore[arg-type]  # mypy takes a class for unhashable
        item = getattr(value, field.name)
        if field.default is MISSING or item != field.default:
            plain[field.name] = field.encode(item) if field.encode and item is not None else item
    return plain


def _from_plain(cls: type[T], plain: dict[str, Json]) -> T:
    if not isinstance(plain, dict):
        raise ValueError(f"{cls.__name__} must be an object")
    decoders, required = _reading(cls)  # type: ignore[arg-type]  # mypy takes a class for unhashable
    values = {}
    for name, item in plain.items():
        if name in decoders:
            decode = decoders[name]
            values[name] = item if decode is None or item is None else decode(item)
    if not required <= values.keys():
        raise ValueError(f"{cls.__name__}.{min(required - values.keys())} is missing")
    return cls(**values)


@cache
def _reading(cls: type) -> tuple[dict[str, Convert | None], frozenset[str]]:
    """Return how each field is decoded, and the required fields."""
    plan = _plan(cls)
    return {field.name: field.decode for field in plan}, frozenset(
        field.name for field in plan if field.default is MISSING
    )


@cache
def _plan(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    plan = []
    for field in fields(cls):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        plan.append(_Field(field.name, default, *_conversion(hints[field.name])))
    return tuple(plan)


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
