"""Make the audio and video files of the tests with PyAV and by hand."""

from __future__ import annotations

import io
import struct
from fractions import Fraction

import av
import numpy as np


def sine(seconds: float, rate: int, hertz: float = 440.0, channels: int = 1) -> np.ndarray:
    """Return a tone of half the amplitude: channels x samples, float32."""
    times = np.arange(round(seconds * rate)) / rate
    return np.repeat(0.5 * np.sin(2 * np.pi * hertz * times)[None].astype(np.float32), channels, axis=0)


def sound(
    samples: np.ndarray, rate: int, container: str = "wav", codec: str = "pcm_s16le", layout: str | None = None
) -> bytes:
    """Return a file of these samples (channels x samples)."""
    layout = layout or {1: "mono", 2: "stereo", 6: "5.1"}[len(samples)]
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), format="fltp", layout=layout)
        frame.sample_rate = rate
        size = stream.frame_size or 1024
        resampler = av.AudioResampler(format=stream.format, layout=layout, rate=rate, frame_size=size)
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return file.getvalue()


def wav_header(rate: int, channels: int, bits: int, num_bytes: int, data: bytes) -> bytes:
    """Return a WAV file whose header says anything."""
    form = struct.pack("<HHIIHH", 1, channels & 0xFFFF, rate, rate * channels * bits // 8 & 0xFFFF_FFFF, 4, bits)
    return (
        b"RIFF"
        + struct.pack("<I", 0xFFFF_FFFF)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", num_bytes)
        + data
    )


def film(
    count: int = 20,
    fps: int = 10,
    size: tuple[int, int] = (64, 48),
    container: str = "mp4",
    codec: str = "mpeg4",
    gop: int = 12,
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
) -> bytes:
    """Return a video whose frames get lighter from black to white, each by one even step."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=fps)
        stream.width, stream.height = size
        stream.pix_fmt = pixels
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = Fraction(1, fps)
        for place in range(count):
            grey = np.full((size[1], size[0], 3), level(place, count), np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = place, Fraction(1, fps)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def level(place: int, count: int) -> int:
    return round(255 * place / max(count - 1, 1))
