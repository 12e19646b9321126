"""The images of Phi-4-multimodal, whose processor in transformers needs torchvision: squares of one size.

An image is cut into squares (https://arxiv.org/abs/2503.01743, section 2.1.1), as many as its size asks for up to a
bound, the last of a row or column filled up with white. A small copy of the whole comes first. A mask says which
patches hold something. What is outside of it has no token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from engine.media.options import Form
from engine.models.fields import Fields
from engine.tokenizers.folder_files import read_object

MOST_SQUARES = "dynamic_hd"
"""What the folder and requests call the bound on squares."""
DEFAULT_MOST_SQUARES = 36
LEAST_PIXELS = 10
"""Of a side, once the image has its new size."""
WHITE = 255
CHANNELS = 3
FILES = ("processor_config.json", "preprocessor_config.json")


@dataclass(frozen=True, slots=True)
class PhiImages:
    """The maker of inputs for the encoder."""

    token: str
    side: int
    """Of a square, in pixels."""
    patch: int
    most_squares: int
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)

    @classmethod
    def read(cls, path: Path, config: Any, token: str, most_tokens: int) -> PhiImages:
        """Read the sizes of a folder. An image gets no more squares than `most_tokens` are enough for, but one.

        Raises ModelLoadError for numbers that are none.
        """
        vision, fields = config.vision_config, _fields(path)
        cells = -(-vision.crop_size // vision.patch_size // 2)
        most = (most_tokens - cells * (cells + 1) - 1) // (cells * (cells + 1))
        most = max(1, min(fields.size(MOST_SQUARES, DEFAULT_MOST_SQUARES), most))
        numbers = {name: _three(fields, f"image_{name}") for name in ("mean", "std") if fields.get(f"image_{name}")}
        return cls(token, vision.crop_size, vision.patch_size, most, **numbers)

    @property
    def options(self) -> dict[str, Form]:
        """What a request may set."""
        return {MOST_SQUARES: ["integer", 1, self.most_squares]}

    def prepare(self, image: Image.Image, _num_images: int, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the text that stands for an image, and the encoder's inputs. Raises ValueError for a thin one."""
        most = int(options.get(MOST_SQUARES, self.most_squares))
        columns, rows = grid_of(image.width, image.height, self.side, most)
        pixels, is_filled = self._on_grid(image, columns, rows)
        side, cells = self.side, self.side // self.patch
        whole = functional.interpolate(pixels[None], (side, side), mode="bicubic", align_corners=False)
        squares = pixels.reshape(3, rows, side, columns, side).permute(1, 3, 0, 2, 4).reshape(-1, 3, side, side)
        masks = is_filled.reshape(rows, cells, columns, cells).transpose(1, 2).reshape(-1, cells, cells)
        made = {
            "image_pixel_values": torch.cat([whole, squares])[None],
            "image_sizes": torch.tensor([[rows * side, columns * side]]),
            "image_attention_mask": torch.cat([torch.ones(1, cells, cells, dtype=torch.bool), masks])[None],
        }
        count = num_vectors(made["image_attention_mask"], columns)
        return self.token * count, made | {"num_vectors": torch.tensor([count])}

    def _on_grid(self, image: Image.Image, columns: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pixels of the grid (3, H, W), and which of its patches hold something of the image."""
        width, height = columns * self.side, rows * self.side
        across, down = width / image.width, height / image.height
        # NOTE: rounded down as transformers does, so that the other side keeps the whole of its length.
        new = (width, int(image.height * across)) if across < down else (int(image.width * down), height)
        if min(new) < LEAST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are too thin")
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
        if new != image.size:
            size = (new[1], new[0])
            values = functional.interpolate(values, size, mode="bilinear", align_corners=False, antialias=True)
        empty = (width - new[0], height - new[1])
        values = functional.pad(values, (0, empty[0], 0, empty[1]), value=WHITE)[0]
        is_filled = torch.ones(height // self.patch, width // self.patch, dtype=torch.bool)
        is_filled[:, is_filled.shape[1] - empty[0] // self.patch :] = False
        is_filled[is_filled.shape[0] - empty[1] // self.patch :] = False
        mean, std = (torch.tensor(numbers)[:, None, None] * WHITE for numbers in (self.mean, self.std))
        return (values - mean) / std, is_filled


def grid_of(width: int, height: int, side: int, most: int) -> tuple[int, int]:
    """Return how many columns and rows of squares an image gets, at most `most` squares.

    A larger image gets the grid whose shape is nearest to its own; of grids of one shape the largest that it is more
    than half of.
    """
    columns, rows = ceil(width / side), ceil(height / side)
    if columns * rows <= most:
        return columns, rows
    grids = [(columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)]
    best, least = (1, 1), float("inf")
    for grid in sorted(grids, key=lambda one: (one[0] * one[1], one)):
        difference = abs(width / height - grid[0] / grid[1])
        is_large = width * height > 0.5 * side * side * grid[0] * grid[1]
        if difference < least or (difference == least and is_large):
            best, least = grid, difference
    return best


def num_vectors(masks: torch.Tensor, columns: int) -> int:
    """Return how many vectors an image has: one for each two by two patches that hold something and one at the end of
    each row, of the squares together and of the copy, and one in between. masks: (1, 1 + squares, cells, cells)
    """
    copy, *squares = masks[0, :, ::2, ::2]
    rows = torch.cat([torch.cat(squares[first : first + columns], 1) for first in range(0, len(squares), columns)])
    return copy.numel() + len(copy) + 1 + int(rows.sum()) + int(rows[:, 0].sum())


def _fields(path: Path) -> Fields:
    """Return what the folder says of its image processor, in the spelling of any version. Raises ModelLoadError."""
    for file in (path / name for name in FILES):
        values = read_object(file)
        own = values.get("image_processor", values)
        if isinstance(own, dict) and own:
            return Fields(str(file), own, architecture="")
    return Fields(str(path), {}, architecture="")


def _three(fields: Fields, name: str) -> tuple[float, ...]:
    values = fields.numbers(name)
    if len(values) != CHANNELS:
        raise fields.wrong(name, "three positive numbers", values)
    return values
