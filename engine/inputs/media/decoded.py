"""What decoding yields: pixels and samples with a hash of what they are. Arrays are read-only.

The hash covers kind, form and bytes, so that one buffer as 2 x 8 and as 4 x 4 pixels has two hashes (hostile 9.8).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.api.errors import ErrorCode, RequestError
from engine.api.media import MediaLimits

if TYPE_CHECKING:
    # At run time it is left to those who decode: a worker of models has none of it.
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImage:
    """An image of RGB bytes, upright, without transparency. `pixels`: height x width x 3."""

    pixels: NDArray[np.uint8]
    content_hash: str
    format: str
    """The format that it came in."""

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class DecodedAudio:
    """Sound of one channel. `samples`: float32, from -1 to 1 unless the file goes beyond."""

    samples: NDArray[np.float32]
    rate: int
    """Samples a second."""
    content_hash: str
    format: str

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True, slots=True, eq=False)
class DecodedVideo:
    """Frames of a video in RGB bytes, upright. `frames`: number x height x width x 3."""

    frames: NDArray[np.uint8]
    times: tuple[float, ...]
    """Seconds from the start, one for each frame, rising."""
    seconds: float
    """Of the whole video."""
    content_hash: str
    format: str


class DecodedBudget:
    """The bytes of pixels and samples that the items of one request may still have together."""

    def __init__(self, limits: MediaLimits) -> None:
        self._most = self._left = limits.max_media_decoded_bytes

    def take(self, num_bytes: int, param: str) -> None:
        """Count an item (`nbytes` of its array). Raises RequestError that names its field if that is too much."""
        if num_bytes > self._left:
            message = (
                f"media of a request must have at most {self._most} bytes once decoded; send fewer or smaller items"
            )
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        self._left -= num_bytes


def content_hash(kind: str, form: tuple[Any, ...], data: memoryview) -> str:
    """Return the SHA-256 (hex) of a kind, a form (shape, rate, times: plain values) and bytes."""
    digest = hashlib.sha256(repr((kind, *form)).encode() + b"\0")
    digest.update(data)
    return digest.hexdigest()
