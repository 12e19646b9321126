"""Decode media of requests in bounded, killable child processes: a bomb or a crash of a C library is a refusal.

`MediaDecoder(work).image(data, param="messages.0.content.1.image_url", tenant=tenant).pixels`
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.api.media import MediaKind, MediaLimits
from engine.inputs.media.decoded import DecodedAudio, DecodedImage, DecodedVideo, content_hash
from engine.inputs.media_options import WHITE
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

IMAGE_TARGET = "engine.inputs.media.image_child:decode"
IMAGE_POOL_SIZE = 3
IMAGE_MEMORY_BYTES = 1536 << 20
"""Of address space. An image at the limit takes six bytes a pixel twice over: layers of a file, canvas, result."""
STREAM_TARGET = "engine.inputs.media.stream_child:decode"
STREAM_POOL_SIZE = 2
STREAM_MEMORY_BYTES = 2048 << 20
"""Of address space: frames of a request twice over, while they are put together, and what a decoder holds."""
NICENESS = 10
DEFAULT_FPS = 2.0
DEFAULT_RATE = 16_000
MAX_RATE = 192_000
DEFAULT_FRAME_PIXELS = 1 << 20
"""To which frames of a video are shrunk, unless the model wants others."""


class MediaDecoder:
    """The decoder of the media of requests. Thread-safe. Calls block: they belong into a worker's thread."""

    def __init__(self, work: SlowWork | None = None, limits: MediaLimits | None = None) -> None:
        self.limits = limits or MediaLimits()
        self._images = KillablePool(IMAGE_TARGET, IMAGE_POOL_SIZE, IMAGE_MEMORY_BYTES, niceness=NICENESS, work=work)
        self._streams = KillablePool(STREAM_TARGET, STREAM_POOL_SIZE, STREAM_MEMORY_BYTES, niceness=NICENESS, work=work)

    def warm(self) -> None:
        """Start one process for images in the background, so that the first need not wait for its imports."""
        self._images.warm()

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._images.close()
        self._streams.close()

    def image(
        self,
        data: bytes,
        *,
        param: str,
        detail: str = "auto",
        background: tuple[int, int, int] = WHITE,
        tenant: str = "",
    ) -> DecodedImage:
        """Return an image, upright in RGB; `detail` "low" shrinks its longer side to 512 pixels.

        `background`: what is seen where it is transparent.

        Raises RequestError that names the field, and EngineUnavailable.
        """
        limits = self.limits
        arguments = (data, detail == "low", limits.max_image_pixels, limits.max_image_side, background)
        value, pixels = self._call(self._images, MediaKind.IMAGE, arguments, param=param, tenant=tenant)
        height, width, digest, name = value
        return DecodedImage(np.frombuffer(pixels, np.uint8).reshape(height, width, 3), digest, name)

    def audio(
        self, data: bytes, *, param: str, rate: int = DEFAULT_RATE, max_seconds: int = 0, tenant: str = ""
    ) -> DecodedAudio:
        """Return the sound of a file, all channels as one, at a rate of 1000 to 192 000 samples a second.

        `max_seconds`: another limit than that of messages.

        Raises RequestError that names the field, and EngineUnavailable.
        """
        assert 1_000 <= rate <= MAX_RATE
        limits = self.limits
        most = max_seconds or limits.max_audio_seconds
        options = {"rate": rate, "max_seconds": most, "max_bytes": limits.max_media_decoded_bytes}
        arguments = (data, MediaKind.AUDIO, options)
        value, samples = self._call(self._streams, MediaKind.AUDIO, arguments, param=param, tenant=tenant)
        return DecodedAudio(np.frombuffer(samples, np.float32), *value)

    def video(
        self,
        data: bytes,
        *,
        param: str,
        fps: float = DEFAULT_FPS,
        num_frames: int | None = None,
        max_frame_pixels: int = DEFAULT_FRAME_PIXELS,
        tenant: str = "",
    ) -> DecodedVideo:
        """Return frames of a video: `num_frames` over its length, or else `fps` a second, but no more than the limit.

        A frame that is shown at several of these times comes once, so a short video gives fewer. Raises RequestError
        that names the field, and EngineUnavailable.
        """
        limits = self.limits
        if num_frames is not None:
            self._check_frames(num_frames, param)
        options = {
            "fps": fps,
            "num_frames": num_frames,
            "max_seconds": limits.max_video_seconds,
            "max_frames": limits.max_video_frames,
            "max_pixels": max_frame_pixels,
            "max_bytes": limits.max_media_decoded_bytes,
        }
        arguments = (data, MediaKind.VIDEO, options)
        value, pixels = self._call(self._streams, MediaKind.VIDEO, arguments, param=param, tenant=tenant)
        count, height, width, times, seconds, digest, name = value
        frames = np.frombuffer(pixels, np.uint8).reshape(count, height, width, 3)
        return DecodedVideo(frames, tuple(times), seconds, digest, name)

    def video_of_frames(
        self, parts: tuple[bytes, ...], *, param: str, fps: float = DEFAULT_FPS, tenant: str = ""
    ) -> DecodedVideo:
        """Return a video whose frames came as images of one size, `fps` of them a second. Raises as `video` does."""
        self._check_frames(len(parts), param)
        kind, limits = MediaKind.VIDEO, self.limits
        if sum(map(len, parts)) > limits.max_media_bytes:
            raise _refused(f"the video must have at most {limits.max_media_bytes} bytes; send less", param)
        ends_at = time.monotonic() + limits.decode_timeout_s(kind)
        frames: list[NDArray[np.uint8]] = []
        for part in parts:
            pixels = self.image(part, param=param, tenant=tenant).pixels
            if frames and pixels.shape != frames[0].shape:
                raise _refused("frames of the video must have one size; send all as the first", param)
            if pixels.nbytes * len(parts) > limits.max_media_decoded_bytes:
                most = limits.max_media_decoded_bytes
                raise _refused(f"the video must have at most {most} bytes of pixels; send fewer frames", param)
            if time.monotonic() > ends_at:
                raise _refused(f"the video takes more than {limits.decode_timeout_s(kind):g} s to decode", param)
            frames.append(pixels)
        stack = np.stack(frames)
        stack.setflags(write=False)
        times = tuple(place / fps for place in range(len(frames)))
        digest = content_hash(kind, ("RGB", *stack.shape[:3], list(times)), stack.reshape(-1).data)
        return DecodedVideo(stack, times, len(frames) / fps, digest, "frames")

    def _check_frames(self, count: int, param: str) -> None:
        most = self.limits.max_video_frames
        if not 1 <= count <= most:
            raise _refused(f"the video must have 1 to {most} frames, got {count}; send or ask for fewer", param)

    def _call(self, pool: KillablePool, kind: MediaKind, arguments: tuple[Any, ...], *, param: str, tenant: str) -> Any:
        data, timeout_s = arguments[0], self.limits.decode_timeout_s(kind)
        if len(data) > self.limits.max_media_bytes:
            most = self.limits.max_media_bytes
            raise _refused(f"the {kind} must have at most {most} bytes, got {len(data)}; send less", param)
        try:
            return pool.call(*arguments, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise _refused(error.message, param) from error
        except KillableExceeded as error:
            bound = f"{timeout_s:g} s" if error.reason == "time" else "the memory that decoding may have"
            raise _refused(f"the {kind} takes more than {bound} to decode; send a smaller one", param) from error
        except EngineFailure as error:
            raise _refused(f"the {kind} cannot be decoded; save it anew and send it again", param) from error


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
