"""The model of transformers that a projector's file describes, without a text model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from engine.gguf_file import GgufFile
from engine.gguf_pair import Projector
from engine.loading.projector_file import ProjectorFile
from engine.models.projectors.registry import describe_projector
from engine.models.transformers_backend.media_encoder import loaded_quietly

TEXT = ("lm_head.", "model.language_model.", "model.text_model.")
"""Beginnings of the names of what the projector's file does not have."""


def pair_model(projector: Projector, text: Path, dtype: torch.dtype) -> Any:
    """Load the tower and the projector that go with a text model's file. Raises ModelLoadError."""
    outline, file = open_pair(projector, text)
    tensors = file.tensors()
    with loaded_quietly(projector.path):
        return type(outline).from_pretrained(None, config=outline.config, state_dict=tensors, dtype=dtype)


def open_pair(projector: Projector, text: Path) -> tuple[Any, ProjectorFile]:
    """Return the model without memory, and the file, none of whose tensors is read. Raises ModelLoadError.

    1. Describe the model; build it without memory, to know what tensors it has.
    2. Check that the file has all of them, in their shapes, and no others.
    """
    described = describe_projector(projector, GgufFile.read_metadata(text))
    with loaded_quietly(projector.path):
        config = AutoConfig.for_model(**described.config)
        with torch.device("meta"):
            outline = AutoModelForImageTextToText.from_config(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in outline.state_dict().items() if not name.startswith(TEXT)}
    heads = projector.metadata["clip.vision.attention.head_count"]
    assert isinstance(heads, int)  # as a whole number it is described
    return outline, ProjectorFile(projector, described, shapes, heads)
