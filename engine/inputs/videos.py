"""Decodes the videos of messages: as many frames as the model's processor takes, within the limits of media.

A part is `{"type": "video", "data": base64, "param"}`, or with `frames: true` and one image after the other in `data`,
with commas between.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from engine.api.errors import ErrorCode, RequestError

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

    def read(self, part: dict[str, Any], param: str, tenant: str) -> DecodedVideo:
        """Return the frames of a part. Raises RequestError that names the part, and EngineUnavailable.

        A rate that gives fewer frames than the model was trained with, or more, becomes a number of frames.
        """
        if part.get("frames") is True:
            return self._listed(part, param, tenant)
        data, fps = _bytes_of(part["data"], param), self._fps
        options: dict[str, Any] = {"param": param, "max_frame_pixels": self._frame_pixels, "tenant": tenant}
        video = self._decoder.video(data, fps=fps, **options)
        count = min(max(len(video.frames), self._least), self._most)
        if count == len(video.frames):
            return video
        return self._decoder.video(data, num_frames=count, **options)

    def _listed(self, part: dict[str, Any], param: str, tenant: str) -> DecodedVideo:
        num_frames = part["data"].count(",") + 1
        if num_frames > self._most:
            message = f"the video must have at most {self._most} frames, got {num_frames}; send fewer"
            raise RequestError(ErrorCode.INVALID_VALUE, message, param)
        frames = tuple(_bytes_of(frame, param) for frame in part["data"].split(","))
        return self._decoder.video_of_frames(frames, param=param, fps=self._fps, tenant=tenant)


def _bytes_of(text: str, param: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        message = "the video must be base64 behind the head of its data: URL"
        raise RequestError(ErrorCode.INVALID_VALUE, message, param) from None
