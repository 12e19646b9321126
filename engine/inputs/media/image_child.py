"""Decode one image with Pillow: upright RGB bytes without transparency, metadata or further frames.

The child processes of decoder.py run this module. The size is checked before pixels are allocated. Errors have fixed
texts, as those of libraries quote addresses and the file.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import AvifImagePlugin, ExifTags, Image

from engine.api.errors import ErrorCode, RequestError
from engine.api.media import MediaKind
from engine.api.media_formats import formats_of, media_format
from engine.inputs.media.decoded import content_hash
from engine.killable import LargeResult

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
"""Pillow's names of what may be opened. Its other readers never see a byte."""
LOW_SIDE = 512
"""The longer side of an image with `detail: low`, at most."""
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each orientation of EXIF."""
SHORT_MODES = ("I;16", "I;16L", "I;16B", "I;16N")
PLAIN_MODES = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "RGBX")
ALPHA_MODES = ("LA", "PA", "La", "RGBA", "RGBa")

AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def decode(data: bytes, is_low: bool, max_pixels: int, max_side: int, background: tuple[int, int, int]) -> LargeResult:
    """Return ([height, width, hash, format], RGB bytes) of an image. Runs in the child process. Raises RequestError."""
    found = media_format(data)
    if not data:
        raise _refused("the image is empty; send the bytes of an image")
    if found is None or MediaKind.IMAGE not in found.kinds:
        name = "is of no known image format" if found is None else f"is {found.name}, which is not read as an image"
        raise _refused(f"the image {name}; send one of {formats_of(MediaKind.IMAGE)}")
    Image.MAX_IMAGE_PIXELS = max_pixels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the sizes that Pillow warns of are refused below
            pixels = _pixels(data, is_low, max_pixels, max_side, background)
    except (RequestError, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise _refused(f"the image must have at most {max_pixels} pixels; send a smaller one") from None
    except Exception:  # the bytes of a broken file can make the library raise anything
        raise _refused(
            f"the image cannot be decoded as {found.name}: it is damaged or incomplete; save it anew and send it again"
        ) from None
    flat = pixels.reshape(-1).data
    height, width, _ = pixels.shape
    return LargeResult([height, width, content_hash("image", ("RGB", height, width), flat), found.name], flat)


def _pixels(data: bytes, is_low: bool, max_pixels: int, max_side: int, background: tuple[int, int, int]) -> np.ndarray:
    """Return the pixels of the first frame.

    1. Check the size of the header, then the sums of checks that the format has (PNG).
    2. Decode, to RGB bytes on the background.
    3. Shrink with `detail: low`; turn upright as EXIF says.
    """
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_size(image.size, max_pixels, max_side)
        image.verify()
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        image.load()
        _check_size(image.size, max_pixels, max_side)
        orientation = _orientation(image)
        rgb = _rgb(image, background)
    if is_low and max(rgb.size) > LOW_SIDE:
        share = LOW_SIDE / max(rgb.size)
        width, height = (max(round(side * share), 1) for side in rgb.size)
        rgb = rgb.resize((width, height), Image.Resampling.BICUBIC)
    if orientation in UPRIGHT:
        rgb = rgb.transpose(UPRIGHT[orientation])
    return np.ascontiguousarray(np.asarray(rgb))


def _check_size(size: tuple[int, int], max_pixels: int, max_side: int) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise _refused("the image has no pixels; send one of at least 1 x 1")
    if max(size) > max_side:
        raise _refused(f"each side of the image must have at most {max_side} pixels, got {width} x {height}; shrink it")
    if width * height > max_pixels:
        raise _refused(f"the image must have at most {max_pixels} pixels, got {width} x {height}; shrink it")


def _orientation(image: Image.Image) -> int:
    """Return the orientation of EXIF, 1 (upright) where it is missing or broken."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # broken metadata is no reason to refuse the pixels
        return 1
    return found if isinstance(found, int) else 1


def _rgb(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    """Return an image of any mode in RGB, what is transparent on the background. Raises RequestError."""
    if image.mode in SHORT_MODES:
        image = _bytes_of_shorts(image)
    if image.mode not in PLAIN_MODES + ALPHA_MODES:
        raise _refused("the image has more than 16 bits a channel, or channels that are not known; send 8-bit RGB")
    if image.mode in ALPHA_MODES or image.has_transparency_data:
        full = image.convert("RGBA")
        canvas = Image.new("RGB", full.size, tuple(background))
        canvas.paste(full, mask=full.getchannel("A"))
        return canvas
    return image if image.mode == "RGB" else image.convert("RGB")


def _bytes_of_shorts(image: Image.Image) -> Image.Image:
    """Return a grey image of 16 bits in 8; where it has its transparent value, it is transparent."""
    shorts = np.asarray(image)
    grey = Image.fromarray(((shorts.astype(np.uint32) + 128) // 257).astype(np.uint8))
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey.putalpha(Image.fromarray(np.where(shorts == transparent, 0, 255).astype(np.uint8)))
    return grey


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)
