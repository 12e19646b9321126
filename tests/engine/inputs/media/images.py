"""Make the image files of the tests, with Pillow and by hand."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image


def picture(width: int = 24, height: int = 16, mode: str = "RGB") -> Image.Image:
    """Return a picture whose left is red, whose right is blue, and whose top is lighter than its bottom."""
    across = np.linspace(1, 0, width)[None, :]
    down = np.linspace(1, 0.5, height)[:, None]
    pixels = np.stack([255 * across * down, np.zeros((height, width)), 255 * (1 - across) * down], axis=-1)
    return Image.fromarray(pixels.round().astype(np.uint8)).convert(mode)


def saved(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    width: int,
    height: int,
    rows: bytes,
    *,
    depth: int = 8,
    color: int = 2,
    further: tuple[tuple[bytes, bytes], ...] = (),
) -> bytes:
    """Return a PNG file by hand: `rows` begin with their filter byte each. `further` chunks precede the pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    chunks = [(b"IHDR", header), *further, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*chunk) for chunk in chunks)


def png_bomb(width: int, height: int) -> bytes:
    """Return a small PNG file that says it has this size; a part of its rows follow."""
    return png(width, height, bytes(min((3 * width + 1) * height, 8 << 20)))


def gif_header(width: int, height: int) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0, 0, 0)
        + b","
        + struct.pack("<HHHHBB", 0, 0, width, height, 0, 2)
    )


def bmp_header(width: int, height: int) -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(info), 0, 0, 54) + info + bytes(100)


def webp_header(width: int, height: int) -> bytes:
    """Return the start of a lossless WebP file of this size."""
    bits = (width - 1) | (height - 1) << 14
    body = b"WEBPVP8L" + struct.pack("<IB", 25, 0x2F) + struct.pack("<I", bits) + bytes(20)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff_header(width: int, height: int, bits: int = 8) -> bytes:
    """Return a grey TIFF file of one strip that is not there."""
    tags = [(256, width), (257, height), (258, bits), (259, 1), (262, 1), (273, 8), (277, 1), (278, height), (279, 99)]
    table = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + table + bytes(4)


def jpeg_of_size(width: int, height: int) -> bytes:
    """Return a JPEG file whose frame header is changed to say this size."""
    data = bytearray(saved(picture(), "JPEG"))
    place = data.index(b"\xff\xc0")
    data[place + 5 : place + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def rotated(orientation: int, form: str = "JPEG", **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "a description that is dropped"
    return saved(picture(), form, exif=exif, **options)
