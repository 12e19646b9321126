"""What a projector's file and its text model come to: the configuration of a model of transformers, how images become
its inputs, and where the file has its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from engine.api.errors import ModelLoadError
from engine.gguf_pair import PROJECTOR_ARCHITECTURE, Projector
from engine.models.fields import Fields

VISION = "clip.vision."
NUMBER = re.compile(r"\.(\d+)\.")
MOST_SIDE = 1 << 14
"""Of an image or a tile, in pixels."""
MOST_PATCHES = 512
"""Of a side of an image. Towers keep angles or positions of a square of them."""
MOST_SIDE_TILES, MOST_TILES = 16, 256
"""Of a side of an image, and of an image."""
LAYER = ".{}."
"""Stands for the number of a layer in names of tensors."""


class Form(StrEnum):
    """How a tensor of transformers is made of those of the file."""

    PLAIN = "plain"
    ROWS = "rows"
    """Stacked by rows."""
    FRAMES = "frames"
    """Those of two frames, stacked on the third axis."""
    LESS_ONE = "less one"
    """The file has added one."""
    HALVES = "halves"
    """The file has rotated pairs of each head adjacent, transformers as two halves."""


@dataclass(frozen=True, slots=True)
class Source:
    """The tensors of a file that one of transformers is made of, without `.weight` or `.bias` where that has it."""

    names: tuple[str, ...]
    form: Form = Form.PLAIN


def plain(name: str) -> tuple[Source, ...]:
    return (Source((name,)),)


Names = Mapping[str, tuple[Source, ...]]
"""Names of transformers -> the sources to choose from: the first of which the file has all tensors."""


@dataclass(frozen=True, slots=True)
class Described:
    """A model that sees, of which transformers gets the tower and the projector."""

    config: dict[str, Any]
    """Of transformers, with its `model_type`. Of the text model it has the width."""
    image_processor: str
    """The class of transformers."""
    image_options: dict[str, Any]
    names: Names
    image_token: str
    """The text of tokens that get vectors."""
    placeholder: str
    """What templates write for an image."""
    markers: tuple[str, ...] = ()
    """Other tokens that stand around vectors, which the vocabulary must have."""
    unused: tuple[str, ...] = ()
    """Beginnings of the names of tensors that the file may hold for others."""
    uncomputed: tuple[str, ...] = ()
    """Beginnings of names of transformers that the file may lack, as a layer is taken before them."""
    marks: dict[str, str] = field(default_factory=dict)
    """Tokens that the processor looks up by an attribute of the tokenizer."""
    has_own_token: bool = True
    """The vocabulary must have `image_token`. Without it the unknown token, which no text has, takes its place."""

    def sources(self, name: str) -> tuple[Source, ...]:
        """Return where the file may have a tensor of transformers, with its ending; () if it has none."""
        if name in self.names:
            return self.names[name]
        stem, _, ending = name.rpartition(".")
        layer = NUMBER.search(name)
        number = layer[1] if layer else ""
        found = self.names.get(stem) or self.names.get(NUMBER.sub(LAYER, stem, count=1))
        if found is None:
            found, ending = self.names.get(NUMBER.sub(LAYER, name, count=1), ()), ""
        behind = f".{ending}" if ending else ""
        return tuple(
            replace(source, names=tuple(f"{one.replace(LAYER, f'.{number}.')}{behind}" for one in source.names))
            for source in found
        )


class ProjectorFields:
    """A reader of the numbers of a projector's file, and of what its text model says."""

    def __init__(self, projector: Projector, text: Mapping[str, object]) -> None:
        self.projector = projector
        values = {name.removeprefix(VISION): value for name, value in projector.metadata.items()}
        self.vision = Fields(str(projector.path), values, architecture=PROJECTOR_ARCHITECTURE, is_gguf=True)
        architecture = str(text.get("general.architecture"))
        own = {name.removeprefix(f"{architecture}."): value for name, value in text.items()}
        self.text = Fields(str(projector.path), own, architecture=architecture, is_gguf=True)

    def has(self, tensor: str) -> bool:
        return tensor in self.projector.shapes

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises ModelLoadError if it is missing."""
        if not self.has(tensor):
            raise ModelLoadError(f"{self.projector.path}: tensor {tensor!r} is missing")
        return self.projector.shapes[tensor]

    @property
    def tower(self) -> dict[str, Any]:
        """The sizes that all towers have, by their commonest names."""
        return {
            "hidden_size": self.vision.size("hidden_size"),
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.vision.size("num_heads"),
            "intermediate_size": self.inner_size,
            "image_size": self.image_size,
            "patch_size": self.vision.size("patch_size"),
        }

    @property
    def num_layers(self) -> int:
        """The layers of the tower: fewer than the file has tensors."""
        return self.vision.size("num_layers", most=len(self.projector.shapes))

    @property
    def image_size(self) -> int:
        size, patch = self.vision.size("image_size", most=MOST_SIDE), self.vision.size("patch_size")
        if not 1 <= size // patch <= MOST_PATCHES:
            raise self.vision.wrong("image_size", f"1 to {MOST_PATCHES} times the patch_size, {patch}", size)
        return size

    def head_size(self, multiple: int) -> int:
        """Return the width of a head of the tower, whose numbers are rotated by `multiple` together."""
        width, heads = self.vision.size("hidden_size"), self.vision.size("num_heads")
        if width % (heads * multiple):
            expected = f"heads of a multiple of {multiple} numbers, of embedding_length {width}"
            raise self.vision.wrong("num_heads", expected, heads)
        return width // heads

    @property
    def inner_size(self) -> int:
        """The width between the matrices of a feed-forward: old files do not say it, or have their names swapped."""
        shape, width = self.shape("v.blk.0.ffn_up.weight"), self.vision.size("hidden_size")
        return shape[0] if shape[-1] == width else shape[-1]

    @property
    def is_swapped(self) -> bool:
        """Return True for files of old converters, in which `ffn_up` and `ffn_down` have each other's names."""
        return self.shape("v.blk.0.ffn_up.weight") == (self.vision.size("hidden_size"), self.inner_size) and (
            self.shape("v.blk.0.ffn_down.weight")[-1] == self.vision.size("hidden_size")
        )

    def text_config(self, model_type: str, **more: Any) -> dict[str, Any]:
        """Describe a text model without layers."""
        return {
            "model_type": model_type,
            "hidden_size": self.projector.width,
            "intermediate_size": 8,
            "num_hidden_layers": 0,
            "layer_types": [],
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "vocab_size": 8,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
            **more,
        }

    @property
    def normalization(self) -> dict[str, Any]:
        """The mean and the deviation of pixels."""
        found = {name: list(self.vision.numbers(name)) for name in ("image_mean", "image_std")}
        for name, values in found.items():
            if len(values) != 3:
                raise self.vision.wrong(name, "three numbers", values)
        return found

    def activation(self, gelu: str) -> str:
        """Return the activation of the tower; `gelu`: what the family calls so."""
        if self.vision.get("clip.use_silu") is True:
            return "silu"
        return gelu if self.vision.get("clip.use_gelu") is True else "quick_gelu"

    def side(self, scale: int) -> int:
        """Return how many vectors stand in a row of a square image, of which `scale` x `scale` patches make one."""
        patches = self.image_size // self.vision.size("patch_size")
        if patches < scale or patches % scale:
            raise self.vision.wrong("projector.scale_factor", f"a divisor of {patches} patches a row", scale)
        return patches // scale

    def wrong_shape(self, tensor: str, expected: str, count: int) -> ModelLoadError:
        return ModelLoadError(f"{self.projector.path}: tensor {tensor!r} must have {expected}, got {count}")
