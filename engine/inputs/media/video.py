"""Decode frames of the first video stream of a file, at a rate or in a number, as RGB bytes with their times."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
from av.container import InputContainer

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.media.decoded import content_hash
from engine.killable import LargeResult

MAX_FRAME_PIXELS = 4096 * 2304
"""Of a frame in the file. A decoder holds up to sixteen of them."""
MAX_FRAME_SIDE = 8192
SEEK_S = 3.0
"""A gap between wanted frames that is skipped by way of a key frame rather than decoded."""


def decode(container: InputContainer, name: str, options: dict[str, Any]) -> LargeResult:
    """Return ([frames, height, width, times, seconds, hash, format], RGB bytes) of an open file.

    `options`: fps and num_frames (one is None), max_seconds, max_frames, max_pixels (of a frame, which is shrunk to
    them), max_bytes. Raises RequestError and whatever the library raises.

    1. Check size and length as the file says them.
    2. Choose the times: of the rate, or evenly over the length where that would be too many.
    3. Decode the frame that is shown at each, once.
    """
    stream = next((each for each in container.streams.video if not _is_cover(each)), None)
    if stream is None:
        raise _refused("the video has no pictures; send a file with a video stream")
    width, height = stream.codec_context.width, stream.codec_context.height
    _check_size(width, height)
    seconds = _seconds(container, stream)
    if seconds > options["max_seconds"]:
        raise _too_long(options["max_seconds"])
    times = _times(seconds, options)
    share = min(math.sqrt(options["max_pixels"] / (width * height)), 1.0)
    size = (max(int(width * share), 1), max(int(height * share), 1))
    if len(times) * size[0] * size[1] * 3 > options["max_bytes"]:
        raise _refused(f"the video must have at most {options['max_bytes']} bytes of pixels; ask for fewer frames")
    frames, shown = [], []
    for time_s, frame in _frames(container, stream, times, options["max_seconds"]):
        frames.append(_upright(frame, size))
        shown.append(time_s)
    if not frames:
        raise _refused("the video has no frames; send a file that has some")
    pixels = np.stack(frames)
    flat = pixels.reshape(-1).data
    count, height, width, _ = pixels.shape
    digest = content_hash("video", ("RGB", count, height, width, shown), flat)
    return LargeResult([count, height, width, shown, max(seconds, shown[-1]), digest, name], flat)


def _is_cover(stream: Any) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def _seconds(container: InputContainer, stream: Any) -> float:
    """Return the length: as the file says, or else of its packets, which costs no decoding."""
    if stream.duration is not None and stream.time_base:
        return float(stream.duration * stream.time_base)
    if container.duration is not None:
        return container.duration / av.time_base
    first, last = math.inf, 0.0
    for packet in container.demux(stream):
        if packet.pts is not None:
            first = min(first, float(packet.pts * stream.time_base))
            last = max(last, float((packet.pts + (packet.duration or 0)) * stream.time_base))
    container.seek(0)
    return max(last - first, 0.0)


def _times(seconds: float, options: dict[str, Any]) -> list[float]:
    """Return the times of the wanted frames, in seconds from the start."""
    count, fps = options["num_frames"], options["fps"]
    if count is None:
        count = max(math.ceil(seconds * fps - 1e-6), 1)
        if count <= options["max_frames"]:
            return [place / fps for place in range(count)]
        count = options["max_frames"]
    return [(place + 0.5) * seconds / count for place in range(count)]


def _frames(
    container: InputContainer, stream: Any, times: list[float], max_seconds: int
) -> Iterator[tuple[float, Any]]:
    """Yield the frame that is shown at each time, with its own time. A frame comes once, even for several times."""
    start = float((stream.start_time or 0) * stream.time_base)
    reading = container.decode(stream)
    held, upcoming = None, next(reading, None)
    may_seek = True
    given_at = -1.0
    for wanted in times:
        if may_seek and upcoming is not None and wanted - _time(upcoming, start) > SEEK_S:
            reached = _time(upcoming, start)
            container.seek(int((wanted + start) / stream.time_base), stream=stream)
            reading = container.decode(stream)
            held, upcoming = None, next(reading, None)
            if upcoming is None or _time(upcoming, start) <= reached:  # few key frames, or none that can be found
                may_seek = False
        while upcoming is not None and (held is None or _time(upcoming, start) <= wanted + 1e-6):
            held, upcoming = upcoming, next(reading, None)
            if _time(held, start) > max_seconds:
                raise _too_long(max_seconds)
        if held is not None and _time(held, start) > given_at:
            given_at = _time(held, start)
            yield given_at, held


def _time(frame: Any, start: float) -> float:
    """Return the time of a frame, in seconds from the start of its stream."""
    return max((frame.time or 0.0) - start, 0.0)


def _upright(frame: Any, size: tuple[int, int]) -> np.ndarray:
    _check_size(frame.width, frame.height)
    pixels = frame.reformat(width=size[0], height=size[1], format="rgb24", interpolation="BICUBIC").to_ndarray()
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90) % 4))


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise _refused("the video has no pixels; send one of at least 1 x 1")
    if width * height > MAX_FRAME_PIXELS or max(width, height) > MAX_FRAME_SIDE:
        message = f"frames of the video must have at most {MAX_FRAME_PIXELS} pixels, and {MAX_FRAME_SIDE} a side"
        raise _refused(f"{message}, got {width} x {height}; shrink it")


def _too_long(max_seconds: int) -> RequestError:
    return _refused(f"the video must have at most {max_seconds} seconds; send a part of it")


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)
