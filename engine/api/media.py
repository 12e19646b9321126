"""Limits of media: what may be fetched and decoded for one request. `chat` makes them of its settings.

`MediaLimits` is given to chat.media (fetching) and engine.inputs.media (decoding).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MediaKind(StrEnum):
    """A modality of media. The value is the word for it in sentences."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of media. `…_timeout_s`: for fetching an item; decoding may take twice as long, as processors are busy."""

    max_item_bytes: int = 50 << 20
    max_request_bytes: int = 100 << 20
    max_decoded_bytes: int = 512 << 20
    """Of pixels and samples of one request together."""
    max_image_pixels: int = 50_000_000
    max_image_side: int = 16_384
    max_audio_seconds: int = 600
    max_video_seconds: int = 600
    max_video_frames: int = 128
    image_timeout_s: float = 5.0
    audio_timeout_s: float = 10.0
    video_timeout_s: float = 30.0

    def timeout_s(self, kind: MediaKind) -> float:
        return {
            MediaKind.IMAGE: self.image_timeout_s,
            MediaKind.AUDIO: self.audio_timeout_s,
            MediaKind.VIDEO: self.video_timeout_s,
        }[kind]

    def decode_timeout_s(self, kind: MediaKind) -> float:
        return 2 * self.timeout_s(kind)
