"""Video: frames at a rate or in a number with their times, or a sentence, within its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.api import RequestError
from engine.api.media import MediaLimits
from engine.inputs.media.decoder import MediaDecoder
from tests.engine.inputs.media.images import picture, saved
from tests.engine.inputs.media.streams import film, level, sine, sound

PARAM = "messages.0.content.0.video_url"


@pytest.fixture(scope="module")
def decoder() -> Any:
    made = MediaDecoder(limits=MediaLimits(max_video_seconds=20, max_video_frames=16))
    yield made
    made.close()


def levels(frames: np.ndarray) -> np.ndarray:
    return frames.reshape(len(frames), -1).mean(axis=1)


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mp4", "mpeg4"),
        ("mp4", "libx264"),
        ("mov", "libx264"),
        ("matroska", "libx264"),
        ("webm", "libvpx"),
        ("webm", "libvpx-vp9"),
        ("avi", "mpeg4"),
        ("avi", "mjpeg"),
        ("mpeg", "mpeg2video"),
        ("flv", "flv"),
    ],
)
def test_formats_give_the_frames_that_are_shown(decoder: MediaDecoder, container: str, codec: str) -> None:
    fps = 25 if codec == "mpeg2video" else 10
    pixels = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    decoded = decoder.video(film(2 * fps, fps, container=container, codec=codec, pixels=pixels), param=PARAM)
    assert decoded.frames.shape == (4, 48, 64, 3)
    assert decoded.times == pytest.approx([0, 0.5, 1.0, 1.5], abs=0.11)
    wanted = [level(round(time_s * fps), 2 * fps) for time_s in decoded.times]
    assert np.abs(levels(decoded.frames) - wanted).max() < 8
    assert decoded.seconds == pytest.approx(2.0, abs=0.5 if container == "mpeg" else 0.15)
    assert not decoded.frames.flags.writeable


def test_a_recording_that_says_no_length_is_measured(decoder: MediaDecoder) -> None:
    """Browsers record so: the header is written before the end is known."""
    recorded = {"container": "webm", "codec": "libvpx", "options": {"live": "1"}}
    decoded = decoder.video(film(20, 10, **recorded), param=PARAM)
    assert decoded.times == pytest.approx([0, 0.5, 1.0, 1.5], abs=0.11)
    with pytest.raises(RequestError, match="at most 20 seconds"):
        decoder.video(film(250, 10, **recorded), param=PARAM)


def test_a_number_of_frames_is_spread_over_the_length(decoder: MediaDecoder) -> None:
    decoded = decoder.video(film(40, 10), param=PARAM, num_frames=4)
    assert decoded.times == pytest.approx([0.5, 1.5, 2.5, 3.5], abs=0.01)


def test_more_frames_than_the_limit_are_spread_over_the_length(decoder: MediaDecoder) -> None:
    decoded = decoder.video(film(100, 10), param=PARAM, fps=10)
    assert len(decoded.frames) == 16
    assert decoded.times[-1] > 9


def test_a_frame_comes_once(decoder: MediaDecoder) -> None:
    decoded = decoder.video(film(2, 1), param=PARAM, fps=5)
    assert decoded.times == (0.0, 1.0)
    assert len(decoder.video(film(1, 1), param=PARAM, num_frames=8).frames) == 1


@pytest.mark.parametrize("gop", [5, 1000])
def test_frames_far_apart_are_the_same_with_and_without_key_frames(decoder: MediaDecoder, gop: int) -> None:
    decoded = decoder.video(film(180, 10, gop=gop), param=PARAM, num_frames=4)
    assert decoded.times == pytest.approx([2.2, 6.7, 11.2, 15.7], abs=0.11)
    wanted = [level(round(time_s * 10), 180) for time_s in decoded.times]
    assert np.abs(levels(decoded.frames) - wanted).max() < 5


def test_frames_are_shrunk_to_the_wanted_pixels(decoder: MediaDecoder) -> None:
    decoded = decoder.video(film(4, 2, (640, 320)), param=PARAM, max_frame_pixels=5_000)
    assert decoded.frames.shape[1:] == (50, 100, 3)


def test_an_animation_of_gif_is_a_video(decoder: MediaDecoder) -> None:
    steps = [Image.new("RGB", (16, 8), (value, value, value)) for value in (0, 120, 240)]
    data = saved(steps[0], "GIF", save_all=True, append_images=steps[1:], duration=500)
    decoded = decoder.video(data, param=PARAM)
    assert np.abs(levels(decoded.frames) - [0, 120, 240]).max() < 3


def test_the_hash_covers_frames_and_times(decoder: MediaDecoder) -> None:
    hashes = {decoder.video(film(20, fps), param=PARAM, num_frames=4).content_hash for fps in (10, 5)}
    assert len(hashes) == 2


def test_a_list_of_frames_is_a_video(decoder: MediaDecoder) -> None:
    parts = tuple(saved(Image.new("RGB", (8, 4), (value, 0, 0)), "PNG") for value in (10, 20, 30))
    decoded = decoder.video_of_frames(parts, param=PARAM, fps=2)
    assert (decoded.frames.shape, decoded.times, decoded.seconds) == ((3, 4, 8, 3), (0.0, 0.5, 1.0), 1.5)
    assert decoded.frames[:, 0, 0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ((), "1 to 16 frames, got 0"),
        ((b"x",) * 17, "1 to 16 frames, got 17"),
        ((saved(picture(8, 8)), saved(picture(8, 9))), "must have one size"),
        ((saved(picture(8, 8)), b"x"), "no known image format"),
        ((saved(Image.new("RGB", (5000, 5000))),) * 16, "bytes of pixels"),
    ],
)
def test_lists_of_frames_are_bounded(decoder: MediaDecoder, parts: tuple[bytes, ...], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as refusal:
        decoder.video_of_frames(parts, param=PARAM)
    assert refusal.value.param == PARAM


def without_frames() -> bytes:
    """Return an MP4 file whose table says frames that are not there."""
    data = film(20, 10, codec="mpeg4")
    place = data.index(b"mdat")
    return data[: place + 4] + bytes(50)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"hello", "no known video format"),
        (b"#EXTM3U\nhttp://169.254.169.254/\n", "no known video format"),
        (saved(picture()), "is PNG"),
        (sound(sine(0.5, 44_100), 44_100), "is WAV"),
        (sound(sine(0.5, 44_100), 44_100, "mp4", "aac"), "has no pictures"),
        (film(2, 1, (64, 64)) + b"", None),
        (b"\0\0\0\x18ftypisom" + bytes(500), "cannot be decoded as MP4"),
        (b"RIFF\0\0\0\0AVI " + bytes(500), "cannot be decoded as AVI"),
        (b"\x1aE\xdf\xa3" + bytes(500), "cannot be decoded as Matroska or WebM"),
        (b"FLV\x01" + bytes(500), "cannot be decoded as Flash video|has no pictures"),
        (b"\0\0\x01\xba" + bytes(5000), "cannot be decoded as MPEG|has no pictures"),
        (without_frames(), "cannot be decoded|has no frames"),
        (film(210, 10), "at most 20 seconds"),
        (film(30, 1, codec="libx264"), "at most 20 seconds"),
        (film(1, 1, (8200, 16), codec="mjpeg", container="avi", pixels="yuvj420p"), "at most 9437184 pixels"),
    ],
)
def test_what_is_no_video_is_refused(decoder: MediaDecoder, data: bytes, sentence: str | None) -> None:
    if sentence is None:
        assert decoder.video(data, param=PARAM).frames.size
        return
    with pytest.raises(RequestError, match=sentence) as refusal:
        decoder.video(data, param=PARAM)
    assert refusal.value.param == PARAM
    assert "; s" in refusal.value.message
    assert not any(leak in refusal.value.message for leak in ("0x", "/", "Errno", "Error"))


@pytest.mark.parametrize("count", [0, 17, -1, 10**9])
def test_a_number_of_frames_beyond_the_limit_is_refused(decoder: MediaDecoder, count: int) -> None:
    with pytest.raises(RequestError, match="1 to 16 frames"):
        decoder.video(b"", param=PARAM, num_frames=count)


def test_pixels_of_all_frames_are_bounded() -> None:
    decoder = MediaDecoder(limits=MediaLimits(max_media_decoded_bytes=100_000))
    try:
        with pytest.raises(RequestError, match="at most 100000 bytes of pixels"):
            decoder.video(film(40, 2, (128, 128)), param=PARAM)
    finally:
        decoder.close()
