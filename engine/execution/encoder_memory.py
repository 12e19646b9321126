"""The memory that the encoder of a model's media takes for the largest item, before it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.gguf_pair import find_projector, text_file
from engine.inputs.images import MOST_TOKENS, MOST_TOKENS_ON_CPU
from engine.model_kind import read_purpose

if TYPE_CHECKING:
    import torch

DEVICE_ENCODER_TOKENS = 2048
"""Tokens of images that a device encodes together."""


def encoder_tokens(config: EngineConfig) -> int:
    """Return the tokens of images that are encoded together; 1: one image at a time.

    So it is on a processor, which gains nothing from more (benchmarks/LOG.md).
    """
    return config.media.max_encoder_tokens or (1 if config.device == "cpu" else DEVICE_ENCODER_TOKENS)


def encoder_bytes(config: EngineConfig, dtype: torch.dtype) -> int:
    """Return the most that encoding takes besides weights: on a CPU with the inputs, on a device what is there.

    0 for a model without an encoder. Raises ModelLoadError for one whose size cannot be read.
    """
    purpose, path = read_purpose(config.model_path, config.projector), text_file(config.model_path)
    if not purpose.modalities:
        return 0
    # NOTE: imports transformers, which models of text alone do without.
    from engine.loading.tower_size import read_pair, read_sounds, read_tower  # noqa: PLC0415

    is_cpu, projector = config.device == "cpu", find_projector(path, config.projector)
    most = config.media.max_image_tokens or (MOST_TOKENS_ON_CPU if is_cpu else MOST_TOKENS)
    if purpose.takes_sounds:
        tower = read_sounds(path, config.media.max_audio_seconds)
    else:
        tower = read_tower(path, most) if projector is None else read_pair(projector, path, most)
    return tower.step_bytes(encoder_tokens(config), dtype) + tower.input_bytes * is_cpu
