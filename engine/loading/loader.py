"""Loads a decoder from a GGUF file or a Hugging Face folder, of any family in the registry.

Called by the core at start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from engine.api.errors import ModelLoadError
from engine.api.model import ModelKind
from engine.gguf_file import GgufFile
from engine.gguf_pair import text_file
from engine.loading.adapter import AdapterTarget, adapter_targets, lone_target
from engine.loading.checkpoint import FileCheckpoint, GgufTensors, TensorFile, with_own_output
from engine.loading.quantization_config import Quantization, take_quantization
from engine.loading.quantized_folder import QuantizedFolder
from engine.loading.safetensors_file import SafetensorsFolder, open_with_parts, read_config
from engine.memory import drop_mapped
from engine.model_kind import ModelPurpose, read_purpose
from engine.models.config import ModelConfig
from engine.models.decoder import Decoder, DecoderBuilder
from engine.models.registry import describe_folder, describe_gguf, has_family, with_causal_name
from engine.quantization.scheme import WeightScheme
from engine.ultravox_folder import described

if TYPE_CHECKING:
    from engine.loading.transformers_checkpoint import TransformersCheckpoint
    from engine.models.transformers_backend.decoder import TransformersDecoder

logger = logging.getLogger(__name__)

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder with its properties for the runner."""

    decoder: Decoder | TransformersDecoder
    config: ModelConfig
    files: tuple[Path, ...]
    """The files that were read."""
    max_model_len: int
    """The longest context in tokens."""
    device: torch.device
    dtype: torch.dtype
    """The dtype of the residual stream and of q, k and v."""
    uses_own_kernels: bool
    """See WeightScheme. Of the layers of transformers torch computes what lies between the products: False."""
    weight_forms: str
    """How many matrices have which forms."""
    adapter_targets: Sequence[AdapterTarget] = ()
    """The projections that adapters may change, by their places."""

    @property
    def backend(self) -> str:
        """Whose layers compute the model: "native" or "transformers"."""
        return self.decoder.backend


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

    Steps: 1. open the files and check their tables; 2. read the config; 3. check that the files have the tensors of the
    architecture and no others, before any is read; 4. build the decoder layer by layer.
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
    config = config.opened(length)
    if torch_device.type == "cuda" and config.cpu_only:
        raise ModelLoadError(f"{path}: {config.cpu_only} are computed on a CPU only: set LIGHTCONE_DEVICE=cpu")

    def loading(fraction: float) -> None:
        drop_mapped(files)  # what a layer was made from would count beside it until the model is whole
        progress("loading weights", fraction)

    decoder: Decoder | TransformersDecoder
    if isinstance(checkpoint, FileCheckpoint):
        targets = adapter_targets(config, checkpoint.family)
        decoder = DecoderBuilder(config, checkpoint, scheme, torch_device).build(loading)
    elif batch_invariant:
        raise ModelLoadError(
            f"{path}: batch_invariant is not offered for {config.architecture}, which transformers computes: "
            "there sums of torch may depend on how many rows are computed together; unset it"
        )
    else:
        decoder = checkpoint.build(scheme, torch_device, loading)
        parts = decoder.projections.items()
        targets = [lone_target(name, part.in_features, part.out_features) for name, part in parts]
    logger.info(
        "loaded %s (%s, %d layers) in %.1f s",
        path.name,
        config.architecture,
        config.num_layers,
        perf_counter() - started,
    )
    return LoadedModel(
        decoder,
        config,
        files,
        length,
        torch_device,
        scheme.activation_dtype,
        scheme.uses_own_kernels and decoder.is_recordable,
        scheme.summary(),
        targets,
    )


Opened = tuple["FileCheckpoint | TransformersCheckpoint", ModelConfig, tuple[Path, ...]]
"""The tensors of a model, its description, the files that hold it."""


def open_checkpoint(path: Path) -> Opened:
    """Open the files of a model and check that they have the tensors of its description, and no others.

    Does not read its weights, but for an output that may be a copy of the embedding. Raises ModelLoadError.
    """
    path = text_file(path)
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def _open_gguf(path: Path) -> Opened:
    file = GgufFile.open(path)
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    family, config = describe_gguf(str(path), file.metadata, shapes)
    checkpoint = FileCheckpoint(GgufTensors(file), config, family, file.metadata, is_gguf=True)
    checkpoint.check()
    return checkpoint, config, file.files


def _open_folder(path: Path) -> Opened:
    source, values = str(path / "config.json"), described(path, read_config(path))
    purpose = read_purpose(path)
    embeds = purpose.kind is ModelKind.EMBEDDING
    if embeds:
        values = with_causal_name(values)
    quantization = take_quantization(source, values)
    if has_family(values):
        family, config = describe_folder(source, values)
        folder = _open_tensors(path, quantization)
        config = _as_embedder(config, purpose, folder) if embeds else with_own_output(folder, config, family)
        checkpoint = FileCheckpoint(folder, config, family, values, is_gguf=False)
        checkpoint.check()
        return checkpoint, config, (path / "config.json", *folder.files)
    # NOTE: imported here, as it takes seconds and hundreds of MiB that models with a family save.
    from engine.loading.transformers_checkpoint import TransformersCheckpoint
    from engine.models.transformers_backend.skeleton import Skeleton, check_architecture

    check_architecture(source, values)
    folder = _open_tensors(path, quantization)
    skeleton = Skeleton(source, values, len(folder.names))
    foreign = TransformersCheckpoint(folder, skeleton)
    foreign.check()
    return foreign, skeleton.describe(), (path / "config.json", *folder.files)


def _as_embedder(config: ModelConfig, purpose: ModelPurpose, folder: TensorFile) -> ModelConfig:
    """Return the description of a decoder whose states become vectors: it may lack an output, and bounds its texts."""
    longest = min(config.max_position, purpose.max_tokens or config.max_position)
    has_output = any(name.endswith("lm_head.weight") for name in folder.names)
    return replace(config, max_position=longest, tied_output=config.tied_output or not has_output)


def _open_tensors(path: Path, quantization: Quantization | None) -> SafetensorsFolder | QuantizedFolder:
    folder = open_with_parts(path)
    return folder if quantization is None else QuantizedFolder(folder, quantization)
