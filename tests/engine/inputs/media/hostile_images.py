"""Image files that are refused, and by which words: shared by tests of the decoder and of a served model."""

from __future__ import annotations

import zlib

from PIL import Image

from tests.engine.inputs.media import images
from tests.engine.inputs.media.images import picture, saved


def brand(name: bytes, *others: bytes) -> bytes:
    return (16 + 4 * len(others)).to_bytes(4, "big") + b"ftyp" + name + bytes(4) + b"".join(others) + bytes(64)


BOMBS = {
    "png of 50 000 x 50 000": images.png_bomb(50_000, 50_000),
    "png of 2^31 - 1": images.png_bomb(2**31 - 1, 2**31 - 1),
    "png of many pixels": images.png_bomb(16_000, 16_000),
    "png of one long row": images.png_bomb(16_385, 1),
    "gif": images.gif_header(65_535, 65_535),
    "bmp": images.bmp_header(100_000, 100_000),
    "bmp upside down": images.bmp_header(60_000, -60_000),
    "webp": images.webp_header(16_384, 16_384),
    "tiff": images.tiff_header(200_000, 200_000),
    "tiff of 2^32 - 1": images.tiff_header(2**32 - 1, 2**32 - 1),
    "jpeg": images.jpeg_of_size(65_500, 65_500),
}

WHOLE = {form: saved(picture(64, 48), form) for form in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")}
BROKEN = {f"half a {form}": data[: len(data) // 2] for form, data in WHOLE.items()}
BROKEN |= {f"the head of a {form}": data[:33] for form, data in WHOLE.items()}
BROKEN |= {
    "png without pixels": images.png(4, 4, b""),
    "png with a wrong sum": WHOLE["PNG"][:60] + bytes([WHOLE["PNG"][60] ^ 1]) + WHOLE["PNG"][61:],
    "png of no width": images.png(0, 4, b"\0" * 4),
    "png whose text is a bomb": images.png(
        1, 1, bytes(4), further=((b"zTXt", b"a\0\0" + zlib.compress(bytes(80 << 20))),)
    ),
    "gif of a signature": b"GIF89a",
    "bmp of a signature": b"BM",
    "jpeg of a start": b"\xff\xd8\xff\xe0",
    "jpeg of fillers": b"\xff\xd8" + b"\xff" * 100_000,
    "tiff whose tables are a circle": b"II*\0\x08\0\0\0" + b"\0\0" + b"\x08\0\0\0",
    "tiff of floats": saved(Image.new("F", (4, 4)), "TIFF"),
    "tiff of 32 bits": saved(Image.new("I", (4, 4)), "TIFF"),
    "tiff of LAB": saved(Image.new("LAB", (4, 4)), "TIFF"),
    "tiff without its strip": images.tiff_header(64, 64),
    "tiff of 64 bits": images.tiff_header(4, 4, 64),
    "webp of a header": images.webp_header(64, 64),
    "avif of a header": brand(b"avif"),
}

NO_IMAGES = {
    "nothing": (b"", "is empty"),
    "text": (b"hello", "no known image format"),
    "zeros": (bytes(1000), "no known image format"),
    "heic": (brand(b"heic"), "is HEIC"),
    "heif": (brand(b"mif1", b"heic"), "is HEIC"),
    "jpeg 2000": (b"\0\0\0\x0cjP  \r\n\x87\n", "is JPEG 2000"),
    "jpeg xl": (b"\xff\x0a\xff", "is JPEG XL"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is SVG"),
    "pdf": (b"%PDF-1.7", "is PDF"),
    "ico": (saved(picture(16, 16), "ICO"), "is ICO"),
    "ppm": (saved(picture(16, 16), "PPM"), "no known image format"),
    "tga": (saved(picture(16, 16), "TGA"), "no known image format"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0", "no known image format"),
    "wav": (b"RIFF\0\0\0\0WAVEfmt ", "is WAV"),
    "ogg": (b"OggS" + bytes(60), "is Ogg"),
    "mp4": (brand(b"isom"), "is MP4"),
}
