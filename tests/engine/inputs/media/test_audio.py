"""Audio: every format is float32 of one channel at the wanted rate, or a sentence, within its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.api import RequestError
from engine.api.media import MediaLimits
from engine.inputs.media.decoder import MediaDecoder
from tests.engine.inputs.media import images
from tests.engine.inputs.media.streams import film, sine, sound, wav_header

PARAM = "messages.0.content.0.input_audio"


@pytest.fixture(scope="module")
def decoder() -> Any:
    made = MediaDecoder(limits=MediaLimits(max_audio_seconds=20))
    yield made
    made.close()


def strength(samples: np.ndarray, rate: int, hertz: float) -> float:
    """Return the amplitude of a tone in the middle of a sound, away from its ends."""
    middle = samples[len(samples) // 4 : 3 * len(samples) // 4].astype(np.float64)
    times = np.arange(len(middle)) / rate
    return float(2 * np.abs(np.mean(middle * np.exp(-2j * np.pi * hertz * times))))


@pytest.mark.parametrize(
    ("container", "codec", "rate", "channels"),
    [
        ("wav", "pcm_s16le", 16_000, 1),
        ("wav", "pcm_s16le", 8_000, 1),
        ("wav", "pcm_s16le", 48_000, 2),
        ("wav", "pcm_u8", 22_050, 1),
        ("wav", "pcm_s24le", 96_000, 2),
        ("wav", "pcm_f32le", 44_100, 6),
        ("wav", "pcm_mulaw", 8_000, 1),
        ("wav", "adpcm_ms", 22_050, 1),
        ("aiff", "pcm_s16be", 44_100, 2),
        ("mp3", "libmp3lame", 44_100, 2),
        ("flac", "flac", 44_100, 2),
        ("ogg", "libopus", 48_000, 1),
        ("webm", "libopus", 48_000, 2),
        ("adts", "aac", 44_100, 1),
        ("mp4", "aac", 44_100, 2),
        ("matroska", "aac", 44_100, 1),
    ],
)
def test_formats_become_one_channel_at_the_rate(
    decoder: MediaDecoder, container: str, codec: str, rate: int, channels: int
) -> None:
    data = sound(sine(2.0, rate, channels=channels), rate, container, codec)
    decoded = decoder.audio(data, param=PARAM)
    assert (decoded.rate, decoded.samples.dtype, decoded.samples.ndim) == (16_000, np.float32, 1)
    assert decoded.seconds == pytest.approx(2.0, abs=0.12)  # encoders pad
    assert strength(decoded.samples, 16_000, 440) == pytest.approx(0.5, abs=0.05)
    assert not decoded.samples.flags.writeable


def test_whole_samples_are_exact_at_the_same_rate(decoder: MediaDecoder) -> None:
    samples = sine(0.5, 16_000)
    decoded = decoder.audio(sound(samples, 16_000), param=PARAM)
    assert np.abs(decoded.samples - samples[0]).max() <= 1 / 32_768


def test_channels_are_mixed_evenly(decoder: MediaDecoder) -> None:
    both = np.concatenate([sine(1.0, 16_000), sine(1.0, 16_000, 1000.0)])
    decoded = decoder.audio(sound(both, 16_000, codec="pcm_f32le"), param=PARAM)
    assert np.abs(decoded.samples - both.mean(axis=0)).max() < 1e-4


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_other_rates_are_resampled(decoder: MediaDecoder, rate: int) -> None:
    decoded = decoder.audio(sound(sine(1.0, 44_100), 44_100), param=PARAM, rate=rate)
    assert len(decoded.samples) == pytest.approx(rate, rel=0.01)
    assert strength(decoded.samples, rate, 440) == pytest.approx(0.5, abs=0.02)


def test_tones_beyond_the_rate_do_not_fold_back(decoder: MediaDecoder) -> None:
    decoded = decoder.audio(sound(sine(1.0, 48_000, 15_000.0), 48_000), param=PARAM)
    assert np.abs(decoded.samples[2000:-2000]).max() < 0.02


def test_silence_is_silence(decoder: MediaDecoder) -> None:
    decoded = decoder.audio(sound(np.zeros((1, 80_000), np.float32), 16_000), param=PARAM)
    assert decoded.seconds == 5
    assert not decoded.samples.any()


def test_not_a_number_is_silence(decoder: MediaDecoder) -> None:
    values = np.array([0.25, np.nan, np.inf, -np.inf] * 100, "<f4").tobytes()
    header = bytearray(wav_header(16_000, 1, 32, len(values), values))
    header[20:22] = b"\x03\0"  # floats
    assert np.isfinite(decoder.audio(bytes(header), param=PARAM).samples).all()


def test_the_hash_covers_the_rate(decoder: MediaDecoder) -> None:
    samples = np.zeros((1, 16_000), np.float32)
    at_once, slow = sound(samples, 16_000), sound(samples[:, :8_000], 8_000)
    first = decoder.audio(at_once, param=PARAM)
    assert decoder.audio(sound(samples, 16_000, "flac", "flac"), param=PARAM).content_hash == first.content_hash
    assert decoder.audio(slow, param=PARAM, rate=8_000).content_hash != first.content_hash


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("longer than the limit", lambda: sound(np.zeros((1, 8_000 * 30), np.float32), 8_000)),
        ("longer, without a length", lambda: wav_header(8_000, 1, 8, 0xFFFF_FFFF, bytes(8_000 * 30))),
        ("an opus bomb", lambda: sound(np.zeros((1, 48_000 * 60), np.float32), 48_000, "ogg", "libopus")),
        ("an mp3 of silence", lambda: sound(np.zeros((1, 8_000 * 60), np.float32), 8_000, "mp3", "libmp3lame")),
    ],
)
def test_long_audio_is_refused(decoder: MediaDecoder, name: str, data: Any) -> None:
    with pytest.raises(RequestError, match="at most 20 seconds; send a part of it") as refusal:
        decoder.audio(data(), param=PARAM)
    assert refusal.value.param == PARAM


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"hello", "no known audio format"),
        (bytes(5000), "no known audio format"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "no known audio format"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "no known audio format"),
        (images.saved(images.picture()), "is PNG"),
        (b"%PDF-1.7", "is PDF"),
        (film(), "has no sound"),
        (b"RIFF\0\0\0\0WAVE", "cannot be decoded as WAV"),
        (b"OggS" + bytes(60), "cannot be decoded as Ogg"),
        (b"fLaC" + bytes(60), "cannot be decoded as FLAC"),
        (b"ID3" + bytes(60), "cannot be decoded as MP3"),
        (b"ID3\x04\0\0\x7f\x7f\x7f\x7f", "cannot be decoded as MP3"),
        (b"\x1aE\xdf\xa3" + b"\xff" * 500, "cannot be decoded as Matroska or WebM"),
        (b"\0\0\0\x18ftypM4A " + bytes(500), "cannot be decoded as MP4"),
        (wav_header(0, 1, 16, 100, bytes(100)), "cannot be decoded|must have 1000 to 384000 samples"),
        (wav_header(1, 1, 16, 100, bytes(100)), "must have 1000 to 384000 samples"),
        (wav_header(2**31 - 1, 1, 16, 100, bytes(100)), "must have 1000 to 384000 samples"),
        (wav_header(16_000, 65_535, 16, 100, bytes(100)), "cannot be decoded|at most 16 channels"),
        (wav_header(16_000, 0, 16, 100, bytes(100)), "cannot be decoded|at most 16 channels"),
        (wav_header(16_000, 1, 16, 0, b""), "has no samples|cannot be decoded"),
    ],
)
def test_what_is_no_audio_is_refused(decoder: MediaDecoder, data: bytes, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence) as refusal:
        decoder.audio(data, param=PARAM)
    assert refusal.value.param == PARAM
    assert "; s" in refusal.value.message
    assert not any(leak in refusal.value.message for leak in ("0x", "/", "Errno", "Error"))
    assert decoder.audio(sound(sine(0.1, 16_000), 16_000), param=PARAM).samples.size


@pytest.mark.parametrize(("container", "codec"), [("wav", "pcm_s16le"), ("mp3", "libmp3lame"), ("ogg", "libopus")])
def test_half_a_file_gives_its_half(decoder: MediaDecoder, container: str, codec: str) -> None:
    data = sound(sine(2.0, 48_000), 48_000, container, codec)
    assert 0.4 < decoder.audio(data[: len(data) // 2], param=PARAM).seconds < 1.6


def test_a_file_without_its_table_is_refused(decoder: MediaDecoder) -> None:
    data = sound(sine(2.0, 44_100), 44_100, "mp4", "aac")
    with pytest.raises(RequestError, match="cannot be decoded as MP4"):
        decoder.audio(data[: len(data) // 2], param=PARAM)
