"""Reads LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors in a folder.

The format: https://huggingface.co/docs/peft/main/en/developer_guides/checkpoint. Served are the matrices A and B of the
projections of attention and feed-forward, with `rank_pattern`, `alpha_pattern` and `use_rslora`. What changes anything
else is refused by name. Nothing from the folder is executed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.api.errors import ModelLoadError
from engine.kernels.cpu.low_rank import INPUTS_STEP
from engine.layers.adapters import MAX_RANK, AdapterWeights, LowRank, ProjectionSize
from engine.loading.names import name_in_text_model, pair_order, tensor_sources
from engine.loading.safetensors_file import SafetensorsFolder, read_object
from engine.models.config import ModelConfig
from engine.models.decoder import decoder_tensors, projections
from engine.models.family import Family

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX, DOWN, UP = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""What PEFT writes before the name of a module, which transformers may leave out, and behind it."""
WRAPPED = ".base_layer"
"""Behind the name of a module that was saved with adapters beside it."""
REFUSED_TENSORS = {
    ".lora_magnitude_vector": "DoRA",
    ".lora_embedding_": "changes of an embedding",
    ".modules_to_save.": "modules_to_save",
    ".lora_B.bias": "a bias (lora_bias)",
    ".bias": "a bias",
}
"""Parts of names of tensors that are not served, with what they are."""
REFUSED_FIELDS = {
    "use_dora": "DoRA",
    "lora_bias": "a bias",
    "modules_to_save": "whole modules",
    "trainable_token_indices": "trained tokens",
    "target_parameters": "changes of parameters that are no linear layers",
    "layer_replication": "layers that are used more than once",
    "alora_invocation_tokens": "an adapter that begins at certain tokens",
    "use_qalora": "QA-LoRA",
    "use_bdlora": "block-diagonal matrices",
}
"""Fields that are not served unless they are empty or false, with what they mean."""
INITIALISATIONS = (True, False, None, "gaussian", "orthogonal", "eva")
"""Values of init_lora_weights that leave the base model as it is. The others change it (PiSSA, OLoRA, LoftQ …)."""


class Source(NamedTuple):
    """One range of outputs of a projection in an adapter: rows of a module's B, in an order."""

    module: str
    first: int
    num_rows: int
    module_rows: int
    order: torch.Tensor | None


class AdapterTarget(NamedTuple):
    """A projection that adapters may change."""

    num_inputs: int
    sources: tuple[Source, ...]

    @property
    def size(self) -> ProjectionSize:
        return ProjectionSize(self.num_inputs, tuple(source.num_rows for source in self.sources))


def adapter_targets(config: ModelConfig, family: Family) -> list[AdapterTarget]:
    """Return the projections of a model, by their places, as adapters of its folders name them."""
    places, shapes = tensor_sources(config, family, is_gguf=False), dict(decoder_tensors(config))

    def source(name: str) -> Source:
        place = places[name]
        order = None if family.hf_adjacent_pairs else pair_order(name, config)
        module = place.name.removesuffix(".weight").removesuffix(WRAPPED)
        return Source(module, place.first, shapes[name][0], place.num_rows, order)

    return [
        AdapterTarget(projection.num_inputs, tuple(map(source, projection.names))) for projection in projections(config)
    ]


def lone_target(module: str, num_inputs: int, num_outputs: int) -> AdapterTarget:
    """Return a projection that is one module, as it is."""
    return AdapterTarget(num_inputs, (Source(module, 0, num_outputs, num_outputs, None),))


def load_adapter(path: Path, targets: Sequence[AdapterTarget]) -> AdapterWeights:
    """Read an adapter of the model that has these projections. Raises ModelLoadError.

    Steps: 1. read the config; 2. check the names of all tensors; 3. read A and B of each module; 4. cut them into the
    ranges of outputs of our projections.
    """
    config = AdapterConfig.read(path / CONFIG)
    if not (path / WEIGHTS).is_file():
        other = f", and {PICKLE} is pickled, which is never loaded" if (path / PICKLE).is_file() else ""
        raise ModelLoadError(f"{path}: holds no {WEIGHTS}{other}; save the adapter with safe_serialization")
    folder = SafetensorsFolder(path, [path / WEIGHTS])
    try:
        known = {source.module: (target, source) for target in targets for source in target.sources}
        pairs = {
            module: _read_pair(folder, names, config, module, *known[module])
            for module, names in _modules(folder, known).items()
        }
    finally:
        folder.close()
    by_place = {
        place: tuple(_part(pairs, source) for source in target.sources)
        for place, target in enumerate(targets)
        if any(source.module in pairs for source in target.sources)
    }
    rank = max(len(pair.down) for pair in pairs.values())
    return AdapterWeights(by_place, rank, tuple(sorted({module.rpartition(".")[2] for module in pairs})))


def adapter_weights(path: Path) -> int:
    """Return how many numbers an adapter has, without reading them. Raises ModelLoadError."""
    if not (path / WEIGHTS).is_file():
        raise ModelLoadError(f"{path}: holds no {WEIGHTS}")
    folder = SafetensorsFolder(path, [path / WEIGHTS])
    try:
        return sum(prod(folder.shape(name)) for name in folder.names)
    finally:
        folder.close()


class AdapterConfig:
    """The numbers of an adapter_config.json."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        """Raises ModelLoadError for what is not served."""
        self._path = path
        if (kind := values.get("peft_type")) != "LORA":
            raise ModelLoadError(f"{path}: peft_type must be 'LORA', got {kind!r}; other adapters are not served")
        for field, meaning in REFUSED_FIELDS.items():
            if values.get(field):
                raise ModelLoadError(f"{path}: {field} is set ({meaning}), which is not served; train without it")
        if (bias := values.get("bias", "none")) != "none":
            raise ModelLoadError(f"{path}: bias must be 'none', got {bias!r}: biases of adapters are not served")
        if (start := values.get("init_lora_weights", True)) not in INITIALISATIONS:
            raise ModelLoadError(
                f"{path}: init_lora_weights {start!r} changes the base model too; convert the adapter to a plain LoRA "
                "when it is saved (path_initial_model_for_weight_conversion)"
            )
        self._uses_rslora = bool(values.get("use_rslora"))
        self._rank = self._number("r", values.get("r", 8))
        self._alpha = self._number("lora_alpha", values.get("lora_alpha", 8))
        self._ranks, self._alphas = (self._pattern(field, values) for field in ("rank_pattern", "alpha_pattern"))

    @classmethod
    def read(cls, path: Path) -> AdapterConfig:
        if not path.is_file():
            raise ModelLoadError(f"{path.parent}: holds no {CONFIG}; an adapter is a folder as PEFT saves it")
        return cls(path, read_object(path))

    def rank(self, module: str) -> float:
        return _by_pattern(self._ranks, module, self._rank)

    def scale(self, module: str) -> float:
        """Return what multiplies the product: alpha / r, or alpha / √r (rsLoRA, https://arxiv.org/abs/2312.03732)."""
        rank = self.rank(module)
        return _by_pattern(self._alphas, module, self._alpha) / (math.sqrt(rank) if self._uses_rslora else rank)

    def _pattern(self, field: str, values: Mapping[str, Any]) -> dict[str, float]:
        found = values.get(field) or {}
        if not isinstance(found, dict):
            raise ModelLoadError(f"{self._path}: {field} must be an object of numbers, got {str(found)[:80]!r}")
        for pattern, number in found.items():
            self._number(f"{field}[{pattern[:80]!r}]", number)
        return found

    def _number(self, field: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value <= 0:
            raise ModelLoadError(f"{self._path}: {field} must be a positive number, got {str(value)[:80]!r}")
        return value


def _by_pattern(numbers: Mapping[str, float], module: str, default: float) -> float:
    """Return the number of the first pattern that names a module, whole or from a dot on, as PEFT does."""
    for pattern, number in numbers.items():
        try:
            is_found = re.match(rf"(.*\.)?({pattern})$", module) is not None
        except re.error as error:
            raise ModelLoadError(f"{CONFIG}: {pattern[:80]!r} is no pattern of module names: {error}") from error
        if is_found:
            return number
    return default


def _modules(folder: SafetensorsFolder, known: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the names of each module's A and B in the file. Raises ModelLoadError for all other tensors."""
    found: dict[str, dict[str, str]] = {}
    for name in folder.names:
        end = next((end for end in (DOWN, UP) if name.endswith(end)), None)
        if end is None:
            meaning = next((meaning for part, meaning in REFUSED_TENSORS.items() if part in name), "something else")
            raise ModelLoadError(
                f"{folder.path}: tensor {name[:200]!r} holds {meaning}; only lora_A and lora_B of linear layers are "
                "served"
            )
        module = name.removeprefix(PREFIX).removesuffix(end)
        module = module if module in known else name_in_text_model(module)
        found.setdefault(module, {})[end] = name
    if not found:
        raise ModelLoadError(f"{folder.path}: {WEIGHTS} holds no tensors")
    if unknown := sorted(module for module in found if module not in known):
        served = ", ".join(sorted({module.rpartition(".")[2] for module in known}))
        shown = ", ".join(repr(module[:80]) for module in unknown[:5])
        raise ModelLoadError(
            f"{folder.path}: changes {len(unknown)} modules that the model does not have, or that adapters may not "
            f"change here: {shown}; served are {served} of its layers"
        )
    if halves := sorted(module for module, names in found.items() if len(names) < 2):
        raise ModelLoadError(f"{folder.path}: module {halves[0][:200]!r} has only one of lora_A and lora_B")
    return found


def _read_pair(
    folder: SafetensorsFolder,
    names: Mapping[str, str],
    config: AdapterConfig,
    module: str,
    target: AdapterTarget,
    source: Source,
) -> LowRank:
    """Read A and B of a module, the latter scaled. Raises ModelLoadError for other shapes and for NaN."""
    rank = config.rank(module)
    if rank > MAX_RANK:
        raise ModelLoadError(f"{folder.path}: the rank of {module!r} must be at most {MAX_RANK}, got {rank}")
    expected = {DOWN: (rank, target.num_inputs), UP: (source.module_rows, rank)}
    values = {}
    for end, shape in expected.items():
        if folder.shape(names[end]) != shape:
            raise ModelLoadError(
                f"{folder.path}: tensor {names[end]!r} must have the shape {shape}, got {folder.shape(names[end])}: "
                "the adapter was made for another model, or for other ranks than its config says"
            )
        # NOTE: a copy in any case, since a view would keep the file mapped.
        values[end] = folder.tensor(names[end]).to(torch.float32, copy=True)
        if not values[end].isfinite().all():
            raise ModelLoadError(f"{folder.path}: tensor {names[end]!r} holds NaN or infinite numbers")
    if target.num_inputs % INPUTS_STEP:
        raise ModelLoadError(
            f"{folder.path}: adapters are served for inputs in a multiple of {INPUTS_STEP}; {module!r} has "
            f"{target.num_inputs}"
        )
    return LowRank(values[DOWN], values[UP] * config.scale(module))


def _part(pairs: Mapping[str, LowRank], source: Source) -> LowRank | None:
    """Cut the range of outputs of one source out of a module."""
    if source.module not in pairs:
        return None
    down, up = pairs[source.module]
    rows = up[source.first : source.first + source.num_rows]
    return LowRank(down, rows if source.order is None else rows[source.order])
