"""Decode media of requests in bounded, killable child processes: a bomb or a crash of a C library is a refusal.

`MediaDecoder(work).image(data, param="messages.0.content.1.image_url", tenant=tenant).pixels`
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.api.media import MediaKind, MediaLimits
from engine.inputs.media.decoded import DecodedImage
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

IMAGE_TARGET = "engine.inputs.media.image_child:decode"
IMAGE_POOL_SIZE = 3
IMAGE_MEMORY_BYTES = 1536 << 20
"""Of address space. An image at the limit takes six bytes a pixel twice over: layers of a file, canvas, result."""
NICENESS = 10


class MediaDecoder:
    """The decoder of the media of requests. Thread-safe. Calls block: they belong into a worker's thread."""

    def __init__(self, work: SlowWork | None = None, limits: MediaLimits | None = None) -> None:
        self.limits = limits or MediaLimits()
        self._images = KillablePool(IMAGE_TARGET, IMAGE_POOL_SIZE, IMAGE_MEMORY_BYTES, niceness=NICENESS, work=work)

    def warm(self) -> None:
        """Start one process for images in the background, so that the first need not wait for its imports."""
        self._images.warm()

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._images.close()

    def image(self, data: bytes, *, param: str, detail: str = "auto", tenant: str = "") -> DecodedImage:
        """Return an image, upright in RGB; `detail` "low" shrinks its longer side to 512 pixels.

        Raises RequestError that names the field, and EngineUnavailable.
        """
        limits = self.limits
        arguments = (data, detail == "low", limits.max_image_pixels, limits.max_image_side)
        value, pixels = self._call(self._images, MediaKind.IMAGE, arguments, param=param, tenant=tenant)
        height, width, digest, name = value
        return DecodedImage(np.frombuffer(pixels, np.uint8).reshape(height, width, 3), digest, name)

    def _call(self, pool: KillablePool, kind: MediaKind, arguments: tuple[Any, ...], *, param: str, tenant: str) -> Any:
        data, timeout_s = arguments[0], self.limits.decode_timeout_s(kind)
        if len(data) > self.limits.max_media_bytes:
            message = f"the {kind} must have at most {self.limits.max_media_bytes} bytes, got {len(data)}; send less"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        try:
            return pool.call(*arguments, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise RequestError(error.code, error.message, param) from error
        except KillableExceeded as error:
            bound = f"{timeout_s:g} s" if error.reason == "time" else "the memory that decoding may have"
            message = f"the {kind} takes more than {bound} to decode; send a smaller one"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param) from error
        except EngineFailure as error:
            message = f"the {kind} cannot be decoded; save it anew and send it again"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param) from error
