"""The encoder of images of a model: the tower and the projector of transformers, without its text model.

Every such model of transformers has `get_image_features`, which takes what the model's processor makes of an image and
returns the vectors that stand in the prompt for it (https://huggingface.co/docs/transformers).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.utils import logging as transformers_logging

from engine.api.errors import ModelLoadError
from engine.layers.embedding import EncodedMedia
from engine.messages import MediaTensor

PIXELS = ("pixel_values", "pixel_values_videos")
SIZES = "image_sizes"


class TransformersMediaEncoder:
    """A tower with its projector."""

    def __init__(self, model: Any, device: torch.device, dtype: torch.dtype) -> None:
        """`model`: a transformers model that has `get_image_features`, whose text model is dropped."""
        self._model = without_text_model(model).to(device)
        self._device = device
        self._dtype = dtype
        self._names = {
            name
            for part in (model, model.base_model)  # either may pass on what it does not name
            for name in inspect.signature(part.get_image_features).parameters
        }

    def call_between_parts(self, call: Callable[[], None]) -> None:
        """Have this called before each part of the model."""
        call_between_parts(self._model, call)

    @torch.inference_mode()
    def encode(self, tensors: dict[str, torch.Tensor]) -> EncodedMedia:
        """Return the vectors of one image, in the order of its tokens, or of several that are joined.

        `tensors`: what the processor made.
        """
        return EncodedMedia(rows_of(self._features(tensors).pooler_output))

    def form_of(self, tensors: list[MediaTensor]) -> Hashable | None:
        """Return the names, types and shapes of an image's inputs, less the number of parts that add up.

        None for Pixtral, which would see several images as one long sequence, under a mask of its square.
        """
        shapes = {tensor.name: tuple(tensor.shape) for tensor in tensors}
        axis = _joined_axis(shapes)
        if axis is None or min(map(len, shapes.values())) <= axis:
            return None
        kinds = {tensor.name: tensor.dtype for tensor in tensors}
        forms = ((name, kinds[name], shape[:axis], shape[axis + 1 :]) for name, shape in sorted(shapes.items()))
        return axis, *forms

    @torch.inference_mode()
    def encode_together(self, items: list[dict[str, torch.Tensor]], counts: list[int]) -> list[EncodedMedia]:
        """Return the vectors of images of one form. `counts`: how many each has. Raises ValueError if it has others."""
        axis = _joined_axis({name: tuple(tensor.shape) for name, tensor in items[0].items()})
        assert axis is not None
        joined = {name: torch.cat([tensors[name] for tensors in items], axis) for name in items[0]}
        return split(self.encode(joined), counts)

    def cut(self, tensors: dict[str, torch.Tensor], count: int, most: int) -> list[dict[str, torch.Tensor]]:
        """Cut the tiles of an image of `count` vectors into parts of about `most`, if the tower sees each by itself."""
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        axis = _joined_axis(shapes)
        if axis is None or SIZES in shapes or len(shapes.get(PIXELS[0], ())) < 4:
            return [tensors]
        num_tiles = shapes[PIXELS[0]][axis]
        at_once = max(1, most * num_tiles // max(1, count))
        spans = range(0, num_tiles, at_once)
        return [
            {name: tensor.narrow(axis, start, min(at_once, num_tiles - start)) for name, tensor in tensors.items()}
            for start in spans
        ]

    def _features(self, tensors: dict[str, torch.Tensor]) -> Any:
        """Return what the model says of an image."""
        inputs = {name: self._placed(tensor) for name, tensor in tensors.items() if name in self._names}
        return self._model.get_image_features(**inputs)

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)


def folder_model(path: Path, dtype: torch.dtype, kind: Any = AutoModelForImageTextToText, what: str = "image") -> Any:
    """Load the model of a folder without the layers of its text model, on the CPU. Raises ModelLoadError.

    `kind`: the class that finds the model's own. `what`: it reads, for errors.
    """
    with loaded_quietly(path, what):
        config = AutoConfig.from_pretrained(path)
        text = config.get_text_config()
        text.num_hidden_layers = 0
        if getattr(text, "layer_types", None):
            text.layer_types = []
        return kind.from_pretrained(path, config=config, dtype=dtype)


def without_text_model(model: Any) -> Any:
    """Drop what a model has beside its tower and projector, and make it ready to compute."""
    model.set_input_embeddings(nn.Identity())
    if hasattr(model, "lm_head"):
        model.lm_head = nn.Identity()
    return model.eval().requires_grad_(False)


def call_between_parts(model: nn.Module, call: Callable[[], None]) -> None:
    """Have this called before each part of a model that has no parts itself, such as a product."""
    for part in model.modules():
        if not any(part.children()):
            part.register_forward_pre_hook(lambda *_: call())


@contextmanager
def loaded_quietly(path: Path, what: str = "image") -> Iterator[None]:
    """Make a ModelLoadError of what transformers raises, and keep the layers that are left out out of the log."""
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:  # transformers has as many kinds of errors as it has checks
        raise ModelLoadError(f"{path}: the {what} encoder cannot be loaded: {error}") from error
    finally:
        transformers_logging.set_verbosity(verbosity)


def rows_of(features: Any) -> torch.Tensor:
    """Return vectors (N, E) that may come in parts."""
    if not isinstance(features, torch.Tensor):
        features = torch.cat([part.reshape(-1, part.shape[-1]) for part in features])
    return features.reshape(-1, features.shape[-1])


def _joined_axis(shapes: dict[str, tuple[int, ...]]) -> int | None:
    """Return the axis along which inputs of several images become those of one call; None if there is none."""
    pixels = next((shapes[name] for name in PIXELS if name in shapes), ())
    if not pixels or (len(pixels) == 4 and SIZES in shapes):
        return None
    return int(len(pixels) == 5 and SIZES not in shapes)  # tiles of Idefics 3 follow each other in one row


def split(encoded: EncodedMedia, counts: list[int]) -> list[EncodedMedia]:
    """Return the parts of vectors that were made together, each in memory of its own. Raises ValueError."""
    if sum(counts) != len(encoded.vectors):
        raise ValueError(f"{len(encoded.vectors)} vectors for {sum(counts)} tokens of {len(counts)} items")
    parts, start = [], 0
    for count in counts:
        span = slice(start, start + count)
        places = None if encoded.places is None else encoded.places[:, span].clone()
        deep = None if encoded.deep is None else encoded.deep[:, span].clone()
        parts.append(EncodedMedia(encoded.vectors[span].clone(), places, deep))
        start += count
    return parts
