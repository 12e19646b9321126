"""The images of LLaVA-OneVision, whose processor cannot be used without torchvision: tiles of any resolution.

An only image is cut into tiles behind a small copy of the whole; its rows of vectors end with one for a new line.
Of several images each is the small copy alone (https://arxiv.org/abs/2408.03326, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from PIL import Image
from transformers.models.llava_onevision.modeling_llava_onevision import get_anyres_image_grid_shape, unpad_image

RESIZES_FROM = 1.1
"""Vectors are made fewer if their side is so much longer than that of `vision_aspect_ratio`."""
OTHER = Image.new("RGB", (1, 1))
"""Stands for the other images of a prompt."""


def onevision(images: Any, token: str, config: Any) -> Callable[[Image.Image, int], tuple[str, dict[str, Any]]]:
    """Return what makes of an image and the number of images in its prompt the text and the encoder's inputs.

    `images`: the image processor. `config`: of the model.
    """

    def prepare(image: Image.Image, num_images: int) -> tuple[str, dict[str, Any]]:
        prompt = [image] if num_images == 1 else [image, OTHER]
        made = images(images=[prompt], return_tensors="pt")
        made["pixel_values"], made["image_sizes"] = made["pixel_values"][:1], made["image_sizes"][:1]
        count = num_vectors(config, made["image_sizes"][0].tolist() if num_images == 1 else None)
        return token * count, dict(made)

    return prepare


def num_vectors(config: Any, image_size: list[int] | None) -> int:
    """Return how many vectors an only image of that height and width has; None: one of several."""
    vision = config.vision_config
    side = vision.image_size // vision.patch_size
    count = side**2 - (config.vision_feature_select_strategy == "default")
    if image_size is None:
        return count + 1
    grid = get_anyres_image_grid_shape(image_size, config.image_grid_pinpoints, vision.image_size)
    height, width = unpad_image(torch.empty(1, *(tiles * side for tiles in grid)), image_size).shape[1:]
    most = int(config.vision_aspect_ratio.removeprefix("anyres_max_"))
    ratio = sqrt(height * width / (most * side**2))
    if ratio > RESIZES_FROM:
        height, width = int(height // ratio), int(width // ratio)
    return count + height * (width + 1)
