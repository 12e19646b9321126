"""Sounds and videos that are made to harm, or only odd: by name, the bytes and words of their refusal."""

from __future__ import annotations

import numpy as np
from PIL import Image

from tests.engine.inputs.media.images import picture, saved
from tests.engine.inputs.media.streams import film, sine, sound, wav_header

LIMIT_S = 20
"""The most seconds of a sound and of a video, in the tests of these tables."""
PLAYLIST = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
CONCAT = b"ffconcat version 1.0\nfile /etc/passwd\n"
HEADS = {
    "Ogg": b"OggS" + bytes(60),
    "MP4": b"\0\0\0\x18ftypisom" + bytes(500),
    "Matroska or WebM": b"\x1aE\xdf\xa3" + b"\xff" * 500,
}


def silence(seconds: float, rate: int = 8_000) -> np.ndarray:
    return np.zeros((1, round(seconds * rate)), np.float32)


def _not_a_number() -> bytes:
    values = np.array([0.25, np.nan, np.inf, -np.inf] * 4000, "<f4").tobytes()
    header = bytearray(wav_header(16_000, 1, 32, len(values), values))
    header[20:22] = b"\x03\0"  # floats
    return bytes(header)


def _without_frames() -> bytes:
    """Return an MP4 file whose table says frames that are not there."""
    data = film(20, 10)
    return data[: data.index(b"mdat") + 4] + bytes(50)


def _animation() -> bytes:
    steps = [Image.new("RGB", (32, 32), (value, value, value)) for value in (0, 120, 240)]
    return saved(steps[0], "GIF", save_all=True, append_images=steps[1:], duration=500)


SECOND = sine(1.0, 16_000)
M4A = sound(SECOND, 16_000, "mp4", "aac")
MP3 = sound(sine(2.0, 48_000), 48_000, "mp3", "libmp3lame")
SOUNDS_TAKEN = {
    "silence": sound(silence(1), 8_000),
    "192 kHz": sound(sine(0.5, 192_000), 192_000),
    "8 bits": sound(sine(0.5, 8_000), 8_000, codec="pcm_u8"),
    "six channels": sound(sine(0.5, 48_000, channels=6), 48_000),
    "what is no number": _not_a_number(),
    "half an MP3": MP3[: len(MP3) // 2],
    "a length beyond its bytes": wav_header(16_000, 1, 16, 0xFFFF_FFFE, bytes(32_000)),
    "an Ogg of Opus": sound(sine(0.5, 48_000), 48_000, "ogg", "libopus"),
}
SOUNDS = {
    "noise": (b"hello" * 99, "no known audio format"),
    "zeros": (bytes(5000), "no known audio format"),
    "a playlist": (PLAYLIST, "no known audio format"),
    "a list of files": (CONCAT, "no known audio format"),
    "an image": (saved(picture()), "is PNG, which is not read as audio"),
    "a PDF": (b"%PDF-1.7" + bytes(99), "is PDF"),
    "a video without sound": (film(), "has no sound"),
    "a WAV without a body": (b"RIFF\0\0\0\0WAVE", "cannot be decoded as WAV"),
    "no channels": (wav_header(16_000, 0, 16, 32_000, bytes(32_000)), "audio"),
    "65,535 channels": (wav_header(16_000, 65_535, 16, 32_000, bytes(32_000)), "audio"),
    "no rate": (wav_header(0, 1, 16, 32_000, bytes(32_000)), "audio"),
    "a rate of one": (wav_header(1, 1, 16, 32_000, bytes(32_000)), "1000 to 384000 samples"),
    "a rate of two thousand million": (wav_header(2**31 - 1, 1, 16, 32_000, bytes(32_000)), "1000 to 384000 samples"),
    "no samples": (wav_header(16_000, 1, 16, 0, b""), "audio"),
    "a moment": (sound(silence(0.02), 8_000), "at least 0.1 seconds"),
    "too long": (sound(silence(LIMIT_S + 5), 8_000, codec="pcm_u8"), "at most 20 seconds"),
    "endless": (wav_header(8_000, 1, 8, 0xFFFF_FFFF, bytes(8_000 * (LIMIT_S + 5))), "at most 20 seconds"),
    "a bomb of Opus": (sound(silence(600, 48_000), 48_000, "ogg", "libopus"), "at most 20 seconds"),
    "half an MP4": (M4A[: len(M4A) // 2], "cannot be decoded as MP4"),
    "a bomb of MP3": (sound(silence(600), 8_000, "mp3", "libmp3lame"), "at most 20 seconds"),
    **{f"the head of {name}": (data, f"cannot be decoded as {name}") for name, data in HEADS.items()},
    "the head of FLAC": (b"fLaC" + bytes(60), "cannot be decoded as FLAC"),
    "a tag of 256 MiB": (b"ID3\x04\0\0\x7f\x7f\x7f\x7f", "cannot be decoded as MP3"),
}

FILMS_TAKEN = {
    "one frame": film(1, 1),
    "no further key frame": film(120, 10, gop=1000),
    "2,000 frames": film(2000, 200, (32, 32)),
    "two frames": film(2, 1),
    "an animation": _animation(),
    "a recording without a length": film(20, 10, container="webm", codec="libvpx", options={"live": "1"}),
}
FILMS = {
    "noise": (b"hello" * 99, "no known video format"),
    "a playlist": (PLAYLIST, "no known video format"),
    "an image": (saved(picture()), "is PNG, which is not read as video"),
    "a sound": (sound(SECOND, 16_000), "is WAV, which is not read as video"),
    "a sound in MP4": (M4A, "has no pictures"),
    "a PDF": (b"%PDF-1.7" + bytes(99), "is PDF"),
    **{f"the head of {name}": (data, "video") for name, data in HEADS.items()},
    "the head of AVI": (b"RIFF\0\0\0\0AVI " + bytes(500), "cannot be decoded as AVI"),
    "the head of Flash": (b"FLV\x01" + bytes(500), "video"),
    "the head of MPEG": (b"\0\0\x01\xba" + bytes(5000), "video"),
    "no frames": (_without_frames(), "video"),
    "half a film": (film(20, 10)[:400], "cannot be decoded"),
    "too long": (film(10 * (LIMIT_S + 1), 10, (32, 32)), "at most 20 seconds"),
    "too long, in few frames": (film(LIMIT_S + 10, 1, codec="libx264"), "at most 20 seconds"),
    "too long, without a length": (
        film(250, 10, (32, 32), container="webm", codec="libvpx", options={"live": "1"}),
        "at most 20 seconds",
    ),
    "a side of 8,200": (film(1, 1, (8200, 16), "avi", "mjpeg", pixels="yuvj420p"), "at most 9437184 pixels"),
    "ten million pixels": (film(1, 1, (4096, 2560), "avi", "mjpeg", pixels="yuvj420p"), "at most 9437184 pixels"),
}
