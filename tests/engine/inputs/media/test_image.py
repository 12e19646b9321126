"""Images: every mode and format is RGB bytes or a sentence, within its limits, and the worker lives."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.api import RequestError
from engine.api.media import MediaLimits
from engine.inputs.media.decoder import MediaDecoder
from tests.engine.inputs.media import images
from tests.engine.inputs.media.hostile_images import BOMBS, BROKEN, NO_IMAGES, WHOLE
from tests.engine.inputs.media.images import picture, saved

PARAM = "messages.0.content.1.image_url"
ICC = b"\0" * 128


@pytest.fixture(scope="module")
def decoder() -> Any:
    made = MediaDecoder()
    made.image(saved(picture()), param=PARAM)  # its process is started
    yield made
    made.close()


def difference(found: np.ndarray, wanted: Image.Image) -> float:
    expected = np.asarray(wanted.convert("RGB"))
    assert found.shape == expected.shape
    return float(np.abs(found.astype(int) - expected).mean())


@pytest.mark.parametrize(
    ("form", "mode", "options", "tolerance"),
    [
        ("PNG", "RGB", {}, 0),
        ("PNG", "L", {}, 0),
        ("PNG", "P", {}, 0),
        ("PNG", "1", {}, 0),
        ("PNG", "RGB", {"icc_profile": ICC}, 0),
        ("JPEG", "RGB", {"quality": 95, "subsampling": 0}, 2),
        ("JPEG", "RGB", {"quality": 95, "progressive": True}, 8),
        ("JPEG", "L", {"quality": 95}, 2),
        ("JPEG", "CMYK", {"quality": 95}, 3),
        ("WEBP", "RGB", {"lossless": True}, 0),
        ("WEBP", "RGB", {"quality": 90}, 8),
        ("GIF", "P", {}, 0),
        ("GIF", "L", {}, 0),
        ("BMP", "RGB", {}, 0),
        ("BMP", "L", {}, 0),
        ("BMP", "1", {}, 0),
        ("TIFF", "RGB", {}, 0),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}, 0),
        ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}, 0),
        ("TIFF", "CMYK", {}, 0),
        ("TIFF", "YCbCr", {}, 0),
        ("TIFF", "1", {"compression": "group4"}, 0),
        ("AVIF", "RGB", {"quality": 95, "subsampling": "4:4:4"}, 3),
    ],
)
def test_formats_and_modes_become_rgb(
    decoder: MediaDecoder, form: str, mode: str, options: dict[str, Any], tolerance: float
) -> None:
    image = picture(mode=mode)
    decoded = decoder.image(saved(image, form, **options), param=PARAM)
    assert difference(decoded.pixels, image) <= tolerance
    assert (decoded.width, decoded.height, decoded.pixels.dtype) == (24, 16, np.uint8)
    assert not decoded.pixels.flags.writeable


@pytest.mark.parametrize(
    ("form", "mode"), [("PNG", "RGBA"), ("PNG", "LA"), ("WEBP", "RGBA"), ("TIFF", "RGBA"), ("AVIF", "RGBA")]
)
def test_what_is_transparent_is_white(decoder: MediaDecoder, form: str, mode: str) -> None:
    image = picture(mode=mode)
    image.putalpha(Image.fromarray(np.repeat(np.array([[0, 255]], np.uint8), 12, axis=1).repeat(16, axis=0)))
    options = {"lossless": True} if form == "WEBP" else {"quality": 100} if form == "AVIF" else {}
    pixels = decoder.image(saved(image, form, **options), param=PARAM).pixels
    assert (pixels[:, :11] >= 250).all()
    assert np.abs(pixels[:, 13:].astype(int) - np.asarray(image.convert("RGB"))[:, 13:]).max() <= 12


def test_a_half_transparent_pixel_is_halfway_to_white(decoder: MediaDecoder) -> None:
    pixels = decoder.image(saved(Image.new("RGBA", (2, 2), (0, 100, 200, 128))), param=PARAM).pixels
    assert np.abs(pixels[0, 0].astype(int) - [127, 177, 227]).max() <= 1


@pytest.mark.parametrize("form", ["PNG", "GIF"])
def test_a_palette_with_a_transparent_entry_is_white_there(decoder: MediaDecoder, form: str) -> None:
    image = Image.new("P", (4, 2), 1)
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((0, 0), 0)
    pixels = decoder.image(saved(image, form, transparency=0), param=PARAM).pixels
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[0, 1].tolist() == [200, 100, 50]


@pytest.mark.parametrize(("mode", "color"), [("L", 7), ("RGB", (1, 2, 3)), ("1", 0)])
def test_a_colour_that_png_calls_transparent_is_white(decoder: MediaDecoder, mode: str, color: Any) -> None:
    image = Image.new(mode, (2, 1), 255 if mode != "RGB" else (9, 9, 9))
    image.putpixel((0, 0), color)
    pixels = decoder.image(saved(image, "PNG", transparency=color), param=PARAM).pixels
    assert pixels[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_to_eight(decoder: MediaDecoder, form: str) -> None:
    shorts = np.array([[0, 257, 32768, 65535], [128, 129, 65278, 256]], np.uint16)
    pixels = decoder.image(saved(Image.fromarray(shorts), form), param=PARAM).pixels
    assert pixels[..., 0].tolist() == [[0, 1, 128, 255], [0, 1, 254, 1]]
    assert (pixels == pixels[..., :1]).all()


def test_sixteen_bits_of_the_other_order_are_the_same(decoder: MediaDecoder) -> None:
    data = saved(Image.frombytes("I;16B", (2, 1), b"\x00\xff\xff\x00"), "TIFF")
    assert decoder.image(data, param=PARAM).pixels[0, :, 0].tolist() == [1, 254]


def test_sixteen_bits_a_channel_of_colour_are_scaled(decoder: MediaDecoder) -> None:
    data = images.png(2, 1, b"\0" + b"\x00\x00\x80\x00\xff\xff" * 2, depth=16)
    assert np.abs(decoder.image(data, param=PARAM).pixels[0, 0].astype(int) - [0, 128, 255]).max() <= 1


def test_a_transparent_value_of_sixteen_bits_is_white(decoder: MediaDecoder) -> None:
    data = images.png(2, 1, b"\0\x10\x00\x20\x00", depth=16, color=0, further=((b"tRNS", b"\x10\x00"),))
    assert decoder.image(data, param=PARAM).pixels[0, :, 0].tolist() == [255, 32]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_exif_is_honoured(decoder: MediaDecoder, orientation: int) -> None:
    data = images.rotated(orientation, "PNG")
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert difference(decoder.image(data, param=PARAM).pixels, wanted) == 0


@pytest.mark.parametrize("form", ["JPEG", "WEBP", "TIFF", "AVIF"])
def test_each_format_with_exif_is_turned_once(decoder: MediaDecoder, form: str) -> None:
    decoded = decoder.image(images.rotated(6, form), param=PARAM)
    assert (decoded.width, decoded.height) == (16, 24)
    top, bottom = decoded.pixels[0].mean(axis=0), decoded.pixels[-1].mean(axis=0)
    assert top[0] > bottom[0]  # red was left; a quarter turn to the right puts it on top
    assert bottom[2] > top[2]


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0junk",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\xff\xff\xff\xff\0\0\0\0",
    ],
)
def test_broken_exif_is_dropped(decoder: MediaDecoder, exif: bytes) -> None:
    decoded = decoder.image(saved(picture(), "JPEG", exif=exif), param=PARAM)
    assert (decoded.width, decoded.height) == (24, 16)


@pytest.mark.parametrize("orientation", [0, 9, 255])
def test_an_orientation_that_is_none_is_upright(decoder: MediaDecoder, orientation: int) -> None:
    assert decoder.image(images.rotated(orientation), param=PARAM).width == 24


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_several_is_taken(decoder: MediaDecoder, form: str) -> None:
    first, other = Image.new("RGB", (8, 8), (200, 0, 0)), Image.new("RGB", (8, 8), (0, 0, 200))
    data = saved(first, form, save_all=True, append_images=[other] * 40)
    assert np.abs(decoder.image(data, param=PARAM).pixels[0, 0].astype(int) - [200, 0, 0]).max() <= 4


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((1024, 512), (512, 256)),
        ((512, 1024), (256, 512)),
        ((513, 1), (512, 1)),
        ((512, 512), (512, 512)),
        ((8, 4), (8, 4)),
        ((4096, 1), (512, 1)),
    ],
)
def test_low_detail_shrinks_the_longer_side(
    decoder: MediaDecoder, size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    decoded = decoder.image(saved(picture(*size)), param=PARAM, detail="low")
    assert (decoded.width, decoded.height) == wanted


def test_other_details_keep_the_size(decoder: MediaDecoder) -> None:
    assert decoder.image(saved(picture(1024, 2)), param=PARAM, detail="high").width == 1024


def test_the_hash_covers_the_size_and_not_the_file(decoder: MediaDecoder) -> None:
    flat = np.arange(48, dtype=np.uint8)
    wide, square = (Image.fromarray(flat.reshape(shape)) for shape in ((2, 8, 3), (4, 4, 3)))
    hashes = {decoder.image(saved(image), param=PARAM).content_hash for image in (wide, square)}
    assert len(hashes) == 2
    other_file = saved(wide, "PNG", compress_level=0)
    assert decoder.image(other_file, param=PARAM).content_hash in hashes
    assert {len(text) for text in hashes} == {64}


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 10_000), (10_000, 1), (16_384, 1)])
def test_odd_shapes_are_images(decoder: MediaDecoder, width: int, height: int) -> None:
    decoded = decoder.image(saved(Image.new("RGB", (width, height))), param=PARAM)
    assert decoded.pixels.shape == (height, width, 3)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_by_its_header(decoder: MediaDecoder, name: str) -> None:
    started = time.monotonic()
    with pytest.raises(RequestError, match="must have at most (50000000|16384) pixels") as refusal:
        decoder.image(BOMBS[name], param=PARAM)
    assert refusal.value.param == PARAM
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_image_is_refused_with_a_fixed_text(decoder: MediaDecoder, name: str) -> None:
    with pytest.raises(RequestError) as refusal:
        decoder.image(BROKEN[name], param=PARAM)
    message = refusal.value.message
    assert message.startswith("the image ")
    assert "; s" in message  # send …, save …: the remedy
    assert not any(leak in message for leak in ("0x", "/", "Error", "PIL", "libtiff"))
    assert refusal.value.param == PARAM
    assert decoder.image(WHOLE["PNG"], param=PARAM).width == 64


@pytest.mark.parametrize("name", NO_IMAGES)
def test_what_is_no_image_is_refused_by_name(decoder: MediaDecoder, name: str) -> None:
    data, said = NO_IMAGES[name]
    with pytest.raises(RequestError, match=f"{said}.*send .*") as refusal:
        decoder.image(data, param=PARAM)
    assert refusal.value.param == PARAM


def test_limits_are_settings() -> None:
    decoder = MediaDecoder(limits=MediaLimits(max_image_pixels=100, max_image_side=20, max_media_bytes=10_000))
    try:
        with pytest.raises(RequestError, match="at most 100 pixels, got 11 x 10"):
            decoder.image(saved(picture(11, 10)), param=PARAM)
        with pytest.raises(RequestError, match="at most 20 pixels, got 21 x 1"):
            decoder.image(saved(picture(21, 1)), param=PARAM)
        with pytest.raises(RequestError, match="at most 10000 bytes, got 10001"):
            decoder.image(bytes(10_001), param=PARAM)
    finally:
        decoder.close()


def test_time_is_a_limit_and_the_next_image_is_decoded() -> None:
    decoder = MediaDecoder(limits=MediaLimits(media_image_timeout=0.0005))
    try:
        with pytest.raises(RequestError, match="more than 0.001 s to decode"):
            decoder.image(saved(picture(3000, 3000)), param=PARAM)
    finally:
        decoder.close()
