"""The sizes of images of Qwen-VL that a request may set: between `min_pixels` and `max_pixels`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.api.errors import ErrorCode, RequestError
from engine.media.options import Form

LEAST, MOST = "min_pixels", "max_pixels"


def cap_pixels(images: Any, most_tokens: int) -> None:
    """Let the folder's image processor make no more tokens of an image."""
    most = min(images.size["longest_edge"], most_tokens * (images.patch_size * images.merge_size) ** 2)
    images.size = {"shortest_edge": min(images.size["shortest_edge"], most), "longest_edge": most}


def pixel_options(images: Any) -> dict[str, Form]:
    """Return what a request may set: from what one token sees to the most of the folder's image processor."""
    bounds: Form = ["integer", (images.patch_size * images.merge_size) ** 2, images.size["longest_edge"]]
    return {LEAST: bounds, MOST: bounds}


def pixels_check(options: Mapping[str, Any]) -> None:
    """Raise RequestError for a least that is above the most."""
    if LEAST in options and MOST in options and options[LEAST] > options[MOST]:
        message = f"mm_processor_kwargs.{LEAST} must not be above {MOST}, got {options[LEAST]} and {options[MOST]}"
        raise RequestError(ErrorCode.INVALID_VALUE, message)


def sized(images: Any) -> Callable[..., Any]:
    """Return the image processor with both options, as its newer versions spell them."""

    def process(*, min_pixels: int | None = None, max_pixels: int | None = None, **others: Any) -> Any:
        if min_pixels is None and max_pixels is None:
            return images(**others)
        least, most = images.size["shortest_edge"], images.size["longest_edge"]
        pixels_check({name: value for name, value in ((LEAST, min_pixels), (MOST, max_pixels)) if value is not None})
        most = most if max_pixels is None else max_pixels
        least = min(least, most) if min_pixels is None else min_pixels
        return images(**others, size={"shortest_edge": least, "longest_edge": most})

    return process
