"""Check the options of media in a request: those of the model's processor, and those of decoding.

The processor's child declares its own, with what each may be (engine/media/options.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.api.errors import ErrorCode, RequestError
from engine.api.media import MediaLimits
from engine.api.request import Json
from engine.inputs.processor_child import PLURALS

PROCESSOR, DECODING = "mm_processor_kwargs", "media_io_kwargs"
IMAGE, BACKGROUND = "image", "rgba_background_color"
VIDEO, FPS, NUM_FRAMES = "video", "fps", "num_frames"
AUDIO = "audio"
DECODED: dict[str, tuple[str, ...]] = {IMAGE: (BACKGROUND,), VIDEO: (FPS, NUM_FRAMES), AUDIO: ()}
"""The options of decoding, by what is decoded."""
FPS_FORM = ("number", 0.01, 60)
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


def image_background(options: Mapping[str, Any], taken: Sequence[str]) -> tuple[int, int, int]:
    """Return the colour behind what is transparent in images. Raises RequestError for an option that there is not.

    `taken`: the kinds of media that the model takes.
    """
    given = options.get(DECODING) or {}
    for kind, values in given.items():
        if kind not in taken:
            kinds, names = " and ".join(PLURALS[name] for name in taken), " and ".join(taken)
            message = f"sets what this model does not take; it takes {kinds}, so {names} alone may have options"
            raise _refused(f"{DECODING}.{kind[:200]}", message, values)
        for name in values:
            if name not in DECODED[kind]:
                message = f"is no option of decoding {PLURALS[kind]}; there is {' and '.join(DECODED[kind]) or 'none'}"
                raise _refused(f"{DECODING}.{kind}.{name[:200]}", message, values[name])
    colour = (given.get(IMAGE) or {}).get(BACKGROUND, WHITE)
    is_colour = isinstance(colour, list | tuple) and len(colour) == len(WHITE)
    if not is_colour or any(type(part) is not int or not 0 <= part <= MAX_COLOUR for part in colour):
        message = f"must be three integers from 0 to {MAX_COLOUR}: red, green and blue"
        raise _refused(f"{DECODING}.{IMAGE}.{BACKGROUND}", message, colour)
    return colour[0], colour[1], colour[2]


def video_decoding(options: Mapping[str, Any], limits: MediaLimits) -> dict[str, Any]:
    """Return the `fps` or `num_frames` that a request sets for videos. Raises RequestError."""
    given = (options.get(DECODING) or {}).get(VIDEO) or {}
    for name, form in ((FPS, FPS_FORM), (NUM_FRAMES, ("integer", 1, limits.max_video_frames))):
        if name in given and (wanted := _problem(given[name], *form)) is not None:
            raise _refused(f"{DECODING}.{VIDEO}.{name}", f"must be {wanted}", given[name])
    if len(given) > 1:
        raise _refused(f"{DECODING}.{VIDEO}.{NUM_FRAMES}", f"cannot go with {FPS}; send one of them", given[NUM_FRAMES])
    return dict(given)


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
