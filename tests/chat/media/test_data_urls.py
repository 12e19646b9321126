"""Data URLs and base64 texts are read strictly, and counted before they are decoded."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from chat.errors import ApiError
from chat.media.data_urls import Media, MediaBudget, base64_read, data_url_read
from chat.media.fetching import MediaFetcher, MediaRequest
from engine.api.media import MediaKind, MediaLimits

PARAM = "messages.0.content.0.video_url"
LIMITS = MediaLimits(max_media_bytes=1000, max_media_request_bytes=1500)


def read(url: str, kind: MediaKind = MediaKind.IMAGE, limits: MediaLimits = LIMITS) -> Media:
    return data_url_read(url, kind=kind, param=PARAM, limits=limits, budget=MediaBudget(limits))


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,Y2F0",
        "DATA:image/png;BASE64,Y2F0",
        "data:;base64,Y2F0",
        "data:image/png;charset=utf-8;base64,Y2F0",
        "data:text/html;base64,Y2F0",
    ],
)
def test_the_bytes_of_a_data_url(url: str) -> None:
    assert read(url).data == b"cat"


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png,cat",
        "data:image/png;base64",
        "data:image/png;base64;Y2F0",
        "data:image/png;base64,",
        "data:image/png;base64,Y2F",
        "data:image/png;base64,Y2F0=",
        "data:image/png;base64,Y2F0Y",
        "data:image/png;base64,Y2 F0",
        "data:image/png;base64,Y2F0\n",
        "data:image/png;base64,Y2F0Y2-_",
        "data:image/png;base64,Y2F0%3D",
        "data:image/png;base64,Y2F0ä",
        "data:image/png;base64,====",
        "data:image/png;base64,Y2F0,Y2F0",
        "data:image/png;base64x,Y2F0",
        "data:" + "x" * 2000 + ";base64,Y2F0",
        "data:;" * 100_000,
        "data:" + ";" * 1_000_000 + "base64,",
    ],
)
def test_anything_else_is_refused_at_once(url: str) -> None:
    started = time.monotonic()
    with pytest.raises(ApiError, match=f"^{PARAM} must ") as refusal:
        read(url)
    assert refusal.value.code == "invalid_media"
    assert time.monotonic() - started < 1


def test_size_is_checked_before_decoding() -> None:
    assert len(read("data:;base64," + base64.b64encode(bytes(1000)).decode()).data) == 1000
    with pytest.raises(ApiError, match="must have at most 1000 bytes"):
        read("data:;base64," + "!" * 1400)
    budget = MediaBudget(LIMITS)
    base64_read(base64.b64encode(bytes(900)).decode(), param=PARAM, budget=budget)
    with pytest.raises(ApiError, match="all media of a request may have at most 1500 bytes"):
        base64_read("A" * 900, param=PARAM, budget=budget)


def test_frames_of_a_video_are_counted_and_cut() -> None:
    media = read("data:video/jpeg;base64,Y2F0,ZG9n,YQ==", MediaKind.VIDEO)
    assert (media.parts, media.is_frames, media.num_bytes) == ((b"cat", b"dog", b"a"), True, 7)
    assert read("data:video/jpeg;base64,Y2F0", MediaKind.VIDEO).is_frames
    assert not read("data:video/mp4;base64,Y2F0", MediaKind.VIDEO).is_frames


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("a," * 100_000, "must have at most 128 frames, got 100001"),
        ("," * 10_000_000, "must have at most 128 frames, got 10000001"),
        ("Y2F0,,Y2F0", "must not be empty"),
        ("Y2F0,", "must not be empty"),
        ("Y2F0,ä", "must be base64"),
        (",".join(["A" * 200] * 10), "must have at most 1000 bytes"),
    ],
)
def test_floods_of_frames_are_refused_at_once(data: str, sentence: str) -> None:
    started = time.monotonic()
    with pytest.raises(ApiError, match=sentence):
        read("data:video/jpeg;base64," + data, MediaKind.VIDEO)
    assert time.monotonic() - started < 1


async def test_data_urls_need_no_right_and_no_setting(settings: Any) -> None:
    settings.LIGHTCONE_MEDIA_DOMAINS = []
    fetcher = MediaFetcher(MediaLimits())
    request = MediaRequest(MediaKind.IMAGE, PARAM, "a", may_fetch=False)
    for size in (3, 3_000_000):  # the second is read in a thread
        url = "data:image/png;base64," + base64.b64encode(bytes(size)).decode()
        assert (await fetcher.fetch(url, request, fetcher.budget())).num_bytes == size
