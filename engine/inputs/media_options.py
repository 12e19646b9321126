"""Check the options of media in a request: those of the model's processor, and those of decoding.

The processor's child declares its own, with what each may be (engine/media/options.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import Json

PROCESSOR, DECODING = "mm_processor_kwargs", "media_io_kwargs"
IMAGE, BACKGROUND = "image", "rgba_background_color"
WHITE = (255, 255, 255)
MAX_COLOUR = 255
ECHO_CHARS = 60


def processor_options(options: Mapping[str, Any], declared: Mapping[str, list[Any]]) -> dict[str, Json]:
    """Return what a request sets of the processor. Raises RequestError for what it does not declare."""
    given = options.get(PROCESSOR) or {}
    for name, value in given.items():
        if name not in declared:
            known = ", ".join(declared)
            choice = f"it has {known}" if known else "it has none"
            raise _refused(f"{PROCESSOR}.{name[:200]}", f"is no option of this model's processor; {choice}", value)
        if (wanted := _problem(value, *declared[name])) is not None:
            raise _refused(f"{PROCESSOR}.{name}", f"must be {wanted}", value)
    return dict(given)


def image_background(options: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the colour behind what is transparent in images. Raises RequestError for any other option."""
    given = options.get(DECODING) or {}
    for kind, values in given.items():
        if kind != IMAGE:
            message = "sets what this model does not take; it takes images, so image alone may have options"
            raise _refused(f"{DECODING}.{kind[:200]}", message, values)
        for name in values:
            if name != BACKGROUND:
                message = f"is no option of decoding images; there is {BACKGROUND}"
                raise _refused(f"{DECODING}.{kind}.{name[:200]}", message, values[name])
    colour = (given.get(IMAGE) or {}).get(BACKGROUND, WHITE)
    is_colour = isinstance(colour, list | tuple) and len(colour) == len(WHITE)
    if not is_colour or any(type(part) is not int or not 0 <= part <= MAX_COLOUR for part in colour):
        message = f"must be three integers from 0 to {MAX_COLOUR}: red, green and blue"
        raise _refused(f"{DECODING}.{IMAGE}.{BACKGROUND}", message, colour)
    return colour[0], colour[1], colour[2]


def refuse_options(options: Mapping[str, Any]) -> None:
    """Raise RequestError for any option, of a model that takes no media."""
    for name, values in options.items():
        raise _refused(name, "sets what this model does not take: it reads text alone", values)


def _problem(value: Any, kind: str, *bounds: float) -> str | None:
    """Return what a value must be, if it is something else."""
    if kind == "boolean":
        return None if isinstance(value, bool) else "true or false"
    least, most = bounds
    if kind == "longest_edge":
        is_one = isinstance(value, dict) and list(value) == [kind]
        inner = _problem(value[kind], "integer", *bounds) if is_one else ""
        return None if inner is None else f"an object with longest_edge, an integer from {least:g} to {most:g}"
    types = (int,) if kind == "integer" else (int, float)
    if type(value) in types and least <= value <= most:
        return None
    return f"{'an integer' if kind == 'integer' else 'a number'} from {least:g} to {most:g}"


def _refused(param: str, message: str, value: Any) -> RequestError:
    got = json.dumps(value, default=str)[:ECHO_CHARS]
    return RequestError(ErrorCode.INVALID_VALUE, f"{param} {message}, got {got}", param)
