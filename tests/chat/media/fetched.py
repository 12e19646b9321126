"""Fetches files as the API does, of a server on this machine that stands for any."""

from __future__ import annotations

import pytest

from chat.errors import ApiError
from chat.media.fetching import MediaFetcher, MediaRequest
from engine.api.media import MediaKind, MediaLimits

PARAM = "messages.0.content.1.image_url"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt " + bytes(200)
LIMITS = MediaLimits(
    media_image_timeout=5, media_audio_timeout=5, max_media_bytes=10_000, max_media_request_bytes=25_000
)
IMAGE = MediaRequest(MediaKind.IMAGE, PARAM, "tenant-a", may_fetch=True)


async def to_loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def fetched(fetcher: MediaFetcher, url: str, request: MediaRequest = IMAGE) -> bytes:
    return (await fetcher.fetch(url, request, fetcher.budget())).data


async def refused(fetcher: MediaFetcher, url: str, request: MediaRequest = IMAGE) -> str:
    """Return the sentence of a refusal, which gives away nothing of the target."""
    with pytest.raises(ApiError) as caught:
        await fetched(fetcher, url, request)
    error = caught.value
    assert (error.code, error.param) == ("invalid_media", PARAM)
    assert error.message.startswith(PARAM)
    assert not any(leak in error.message for leak in ("127.", "10.", "169.", "::", "files.example", "errno", "404"))
    return error.message
