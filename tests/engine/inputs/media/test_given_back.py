"""After hostile media nothing is left: memory and open files are where they were, and the next item is decoded."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine.api import RequestError
from engine.api.media import MediaLimits
from engine.inputs.media.decoder import MediaDecoder
from tests.engine.inputs.media.images import png_bomb, saved
from tests.engine.inputs.media.streams import film, sine, sound, wav_header

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads sizes of processes from /proc"),
]
LIMITS = MediaLimits(media_image_timeout=60, media_audio_timeout=60, max_audio_seconds=60, max_video_seconds=60)
IMAGE, SOUND, FILM = saved(Image.new("RGB", (64, 64))), sound(sine(0.2, 16_000), 16_000), film(4, 2)


OTHERS: set[int] = set()
"""Children of this process that are not the decoder's."""


@pytest.fixture(autouse=True)
def others() -> None:
    OTHERS.clear()
    OTHERS.update(children())


@pytest.fixture
def decoder(others: None) -> Any:
    made = MediaDecoder(limits=LIMITS)
    yield made
    made.close()


def children() -> list[int]:
    """Return the decoder's children. What is forked, and not yet another program, is none of them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(map(int, (task / "children").read_text().split()))
    return sorted(child for child in found - OTHERS if b"engine.killable" in _command(child))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident_bytes() -> int:
    """Return the resident bytes of the children of this process."""
    pages = sum(int(Path(f"/proc/{child}/statm").read_text().split()[1]) for child in children())
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_given_back(most: int) -> bool:
    """Return True once the children have at most so many bytes, which they may take ten seconds for."""
    deadline = time.monotonic() + 10
    while resident_bytes() > most and time.monotonic() < deadline:
        threading.Event().wait(0.05)
    return resident_bytes() <= most


def good_ones(decoder: MediaDecoder) -> None:
    """Decode an item of each kind. A child that answers is done with what came before."""
    assert decoder.image(IMAGE, param="p").width == 64
    assert decoder.audio(SOUND, param="p").samples.size
    assert len(decoder.video(FILM, param="p").frames) == 4


def test_hostile_media_leave_nothing_behind(decoder: MediaDecoder) -> None:
    hostile = [
        (decoder.image, png_bomb(50_000, 50_000)),
        (decoder.image, IMAGE[: len(IMAGE) // 2]),
        (decoder.image, b"\xff\xd8\xff" + bytes(1 << 20)),
        (decoder.audio, wav_header(8_000, 1, 8, 0xFFFF_FFFF, bytes(8_000 * 70))),
        (decoder.audio, b"OggS" + bytes(1 << 20)),
        (decoder.video, film(70, 1)),
        (decoder.video, b"\0\0\0\x18ftypisom" + b"\xff" * (1 << 20)),
        (decoder.video, FILM[: len(FILM) // 2]),
    ]
    for decode, data in hostile:  # what a library keeps after its first use is no leak
        with pytest.raises(RequestError):
            decode(data, param="p")
    good_ones(decoder)
    before, files, pids = resident_bytes(), len(os.listdir("/proc/self/fd")), children()
    for _ in range(10):
        for decode, data in hostile:
            with pytest.raises(RequestError):
                decode(data, param="p")
    good_ones(decoder)
    assert children() == pids
    assert len(os.listdir("/proc/self/fd")) == files
    assert is_given_back(before + (16 << 20))


def test_large_media_are_given_back(decoder: MediaDecoder) -> None:
    good_ones(decoder)
    before = resident_bytes()
    assert decoder.image(saved(Image.new("RGBA", (4000, 4000), (1, 2, 3, 255))), param="p").width == 4000
    assert decoder.audio(sound(sine(55, 16_000), 16_000), param="p", rate=192_000).seconds == pytest.approx(55, abs=0.1)
    frames = decoder.video(film(100, 10, (1024, 1024)), param="p", fps=10).frames
    assert frames.nbytes == 100 * 3 << 20
    good_ones(decoder)
    assert is_given_back(before + (48 << 20))


@pytest.mark.parametrize("kind", ["image", "audio"])
def test_a_child_that_runs_out_of_time_is_killed_and_replaced(kind: str) -> None:
    decoder = MediaDecoder(limits=MediaLimits(media_image_timeout=0.0005, media_audio_timeout=0.0005))
    large = {"image": saved(Image.new("RGB", (3000, 3000))), "audio": sound(sine(60, 48_000), 48_000)}[kind]
    try:
        files = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            with pytest.raises(RequestError, match="takes more than 0.001 s to decode; send a smaller one"):
                getattr(decoder, kind)(large, param="p")
        assert not children()
        assert len(os.listdir("/proc/self/fd")) == files
    finally:
        decoder.close()
