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
    DOCUMENT = "document"
    """A file that is fetched and read (engine.inputs.files)."""


@dataclass(frozen=True, slots=True)
class MediaLimits:
    """Limits of media; each is a setting, `LIGHTCONE_<NAME>`. Times are in seconds, for fetching an item.

    Decoding may take twice as long, as processors are busy.
    """

    max_media_items: int = 8
    """Of one kind in a request."""
    max_media_bytes: int = 50 << 20
    """Of one item as it comes."""
    max_media_request_bytes: int = 100 << 20
    """Of all items of a request as they come."""
    max_media_decoded_bytes: int = 512 << 20
    """Of pixels and samples of a request together."""
    max_image_pixels: int = 50_000_000
    max_image_side: int = 16_384
    max_image_tokens: int = 0
    """To which images are shrunk whose model would take more of them; 0: 1280 on processors, 16,384 on devices."""
    max_page_images: int = 16
    """Of PDF files in a request, beside its images."""
    max_encoder_tokens: int = 0
    """Of images that are encoded together; a larger one is alone. 0: one image at a time on processors, 2048 on
    devices."""
    max_encoder_input_bytes: int = 2 << 30
    """Of what the encoder of a model gets of the media of all its unfinished requests together."""
    max_audio_seconds: int = 600
    max_transcription_seconds: int = 3600
    """Of a sound that is written down, which is not the part of a message."""
    max_video_seconds: int = 600
    max_video_frames: int = 128
    media_image_timeout: float = 5
    media_audio_timeout: float = 10
    media_video_timeout: float = 30

    def timeout_s(self, kind: MediaKind) -> float:
        return {
            MediaKind.IMAGE: self.media_image_timeout,
            MediaKind.AUDIO: self.media_audio_timeout,
            MediaKind.VIDEO: self.media_video_timeout,
            MediaKind.DOCUMENT: self.media_audio_timeout,
        }[kind]

    def decode_timeout_s(self, kind: MediaKind) -> float:
        return 2 * self.timeout_s(kind)
