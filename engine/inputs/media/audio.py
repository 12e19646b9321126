"""Decode the first audio stream of a file: float32 samples of one channel at the wanted rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import av
import numpy as np
from av.container import InputContainer

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.media.decoded import content_hash
from engine.killable import LargeResult

MIN_RATE, MAX_RATE = 1_000, 384_000
"""Samples a second that a file may say. A forged rate would make hours out of seconds, or seconds out of hours."""
MAX_CHANNELS = 16


def decode(container: InputContainer, name: str, options: dict[str, Any]) -> LargeResult:
    """Return ([rate, hash, format], samples) of an open file. `options`: rate, max_seconds, max_bytes.

    Raises RequestError and whatever the library raises.
    """
    rate, max_seconds = options["rate"], options["max_seconds"]
    stream = next(iter(container.streams.audio), None)
    if stream is None:
        raise _refused("the audio has no sound; send a file with an audio stream")
    context = stream.codec_context
    if not MIN_RATE <= context.sample_rate <= MAX_RATE or not 1 <= context.layout.nb_channels <= MAX_CHANNELS:
        raise _refused(
            f"the audio must have {MIN_RATE} to {MAX_RATE} samples a second and at most {MAX_CHANNELS} channels; "
            "save it so and send it again"
        )
    if container.duration is not None and container.duration > max_seconds * av.time_base:
        raise _too_long(max_seconds)
    most = min(max_seconds * rate, options["max_bytes"] // 4)
    pieces: list[np.ndarray] = []
    count = 0
    for piece in _pieces(container, stream, rate, max_seconds):
        pieces.append(piece)
        count += len(piece)
        if count > most:
            raise _too_long(min(max_seconds, most // rate))
    if not count:
        raise _refused("the audio has no samples; send a file that has some")
    samples = np.nan_to_num(np.concatenate(pieces), copy=False)  # files of floats may hold anything
    flat = memoryview(samples).cast("B")
    return LargeResult([rate, content_hash("audio", ("float32", rate, count), flat), name], flat)


def _pieces(container: InputContainer, stream: Any, rate: int, max_seconds: int) -> Iterator[np.ndarray]:
    resampler = av.AudioResampler(format="fltp", rate=rate)  # its own mix of channels is louder than they are
    given = 0
    for frame in container.decode(stream):
        given += frame.samples
        if given > (max_seconds + 1) * MAX_RATE or not MIN_RATE <= frame.sample_rate <= MAX_RATE:
            raise _too_long(max_seconds)
        frame.pts = None  # gaps and jumps of time in a broken file would be filled with silence
        for made in resampler.resample(frame):
            yield made.to_ndarray().mean(axis=0, dtype=np.float32)
    for made in resampler.resample(None):
        yield made.to_ndarray().mean(axis=0, dtype=np.float32)


def _too_long(max_seconds: int) -> RequestError:
    return _refused(f"the audio must have at most {max_seconds} seconds; send a part of it")


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)
