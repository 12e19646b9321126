"""Decodes the videos of messages: as many frames as the model's processor takes, within the limits of media.

A part is `{"type": "video", "data": base64, "param"}`, or with `frames: true` and one image after the other in `data`,
with commas between.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from engine.api.errors import ErrorCode, RequestError
from engine.inputs.media_options import FPS, NUM_FRAMES

if TYPE_CHECKING:
    from engine.inputs.media.decoded import DecodedVideo
    from engine.inputs.media.decoder import MediaDecoder


class VideoFrames:
    """The reader of the videos of one model."""

    def __init__(self, decoder: MediaDecoder, form: dict[str, Any]) -> None:
        """`form`: of the child (engine/media/image_inputs.py), how many frames of which size the model takes."""
        self._decoder = decoder
        self._fps: float = form["fps"]
        self._most = min(form["max_frames"], decoder.limits.max_video_frames)
        self._least = min(form["min_frames"], self._most)
        self._frame_pixels: int = form["frame_pixels"]

    def read(self, part: dict[str, Any], decoding: dict[str, Any], param: str, tenant: str) -> DecodedVideo:
        """Return the frames of a part. Raises RequestError that names the part, and EngineUnavailable.

        `decoding`: `fps` or `num_frames` of the request (media_options.py). A rate that gives fewer frames than the
        model was trained with, or more, becomes a number of frames.
        """
        fps, asked = decoding.get(FPS, self._fps), decoding.get(NUM_FRAMES)
        if part.get("frames") is True:
            if asked is not None:
                message = "the video is a list of frames, which is taken whole; send it without num_frames"
                raise RequestError(ErrorCode.INVALID_VALUE, message, param)
            return self._listed(part, fps, param, tenant)
        data = bytes_of(part["data"], "video", param)
        options: dict[str, Any] = {"param": param, "max_frame_pixels": self._frame_pixels, "tenant": tenant}
        if asked is not None:
            return self._decoder.video(data, num_frames=asked, **options)
        video = self._decoder.video(data, fps=fps, **options)
        count = min(max(len(video.frames), self._least), self._most)
        if count == len(video.frames):
            return video
        return self._decoder.video(data, num_frames=count, **options)

    def _listed(self, part: dict[str, Any], fps: float, param: str, tenant: str) -> DecodedVideo:
        num_frames = part["data"].count(",") + 1
        if num_frames > self._most:
            message = f"the video must have at most {self._most} frames, got {num_frames}; send fewer"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        frames = tuple(bytes_of(frame, "video", param) for frame in part["data"].split(","))
        return self._decoder.video_of_frames(frames, param=param, fps=fps, tenant=tenant)


def bytes_of(text: str | bytes, kind: str, param: str) -> bytes:
    """Return the bytes of an item of media, which were sent in base64 unless we made them. Raises RequestError."""
    if isinstance(text, bytes):
        return text
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = f"the {kind} must be base64 behind the head of its data: URL"
        raise RequestError(ErrorCode.INVALID_VALUE, message, param) from None
