"""Loads a decoder from a GGUF file or a Hugging Face folder, of any family in the registry.

Called by the core at start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile
from engine.loading.checkpoint import GgufCheckpoint, SafetensorsCheckpoint
from engine.loading.names import gguf_name
from engine.loading.safetensors_file import SafetensorsFolder, read_config
from engine.models.config import ModelConfig, config_from_gguf, config_from_hf
from engine.models.decoder import Decoder, DecoderBuilder
from engine.models.registry import GGUF_FAMILIES, HF_FAMILIES, find_family
from engine.quantization.scheme import WeightScheme

logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder with its properties for the runner."""

    decoder: Decoder
    config: ModelConfig
    files: tuple[Path, ...]
    """The files that were read."""
    max_model_len: int
    """The context in tokens that the rotary table covers."""
    device: torch.device
    dtype: torch.dtype
    """The dtype of the residual stream and of q, k and v."""
    uses_own_kernels: bool
    """See WeightScheme."""


def load_model(
    path: Path | str,
    *,
    device: str = "cpu",
    weights: str = "auto",
    max_model_len: int = 0,
    batch_invariant: bool = False,
    progress: Progress = lambda phase, fraction: None,
) -> LoadedModel:
    """Load a model; `max_model_len` 0 means its trained context.

    Raises ModelLoadError, which names the file and the problem.

    Steps: 1. open and check the files; 2. read the config; 3. build the decoder layer by layer; 4. refuse unused
    tensors.
    """
    started = perf_counter()
    path = Path(path)
    torch_device = torch.device(device)
    scheme = WeightScheme(weights, torch_device, batch_invariant)
    progress("reading model files", 0.0)
    checkpoint, config, files = open_checkpoint(path)
    if max_model_len > config.max_position:
        raise ModelLoadError(
            f"{path}: max_model_len must be at most the model's context of {config.max_position}, got {max_model_len}"
        )
    length = max_model_len or config.max_position
    decoder = DecoderBuilder(config, checkpoint, scheme, torch_device).build(
        length, lambda fraction: progress("loading weights", fraction)
    )
    checkpoint.refuse_unused()
    logger.info(
        "loaded %s (%s, %d layers) in %.1f s",
        path.name,
        config.architecture,
        config.num_layers,
        perf_counter() - started,
    )
    return LoadedModel(decoder, config, files, length, torch_device, scheme.activation_dtype, scheme.uses_own_kernels)


def open_checkpoint(path: Path) -> tuple[GgufCheckpoint | SafetensorsCheckpoint, ModelConfig, tuple[Path, ...]]:
    """Open and check the files of a model without reading its weights. Raises ModelLoadError."""
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def _open_gguf(path: Path) -> tuple[GgufCheckpoint, ModelConfig, tuple[Path, ...]]:
    file = GgufFile.open(path)
    family = find_family(str(path), file.metadata.get("general.architecture"), GGUF_FAMILIES)
    embedding = file.tensors.get(gguf_name("embedding"))
    if embedding is None:
        raise ModelLoadError(f"{path}: tensor {gguf_name('embedding')!r} is missing")
    tied_output = gguf_name("output") not in file.tensors
    config = config_from_gguf(str(path), file.metadata, family, tied_output, vocab_size=embedding.shape[0])
    return GgufCheckpoint(file, config, reorders=not family.gguf_adjacent_pairs), config, (path,)


def _open_folder(path: Path) -> tuple[SafetensorsCheckpoint, ModelConfig, tuple[Path, ...]]:
    values = read_config(path)
    source = str(path / "config.json")
    architectures = values.get("architectures")
    architecture = architectures[0] if isinstance(architectures, list) and architectures else None
    family = find_family(source, architecture, HF_FAMILIES)
    config = config_from_hf(source, values, family, str(architecture))
    folder = SafetensorsFolder.open(path)
    return SafetensorsCheckpoint(folder, config), config, (path / "config.json", *folder.files)
