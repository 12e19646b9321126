"""The tensors of a folder for a model that transformers' layers compute: found by transformers' own names for them,
held in our forms of weights.

transformers may name, stack or cut tensors otherwise than the folder; its rules for that (`conversion_mapping`) are
applied here, so that each tensor is read, converted and quantised on its own.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from math import prod
from typing import Any, cast

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from engine.api.errors import ModelLoadError
from engine.layers.embedding import OpenEmbedding, StoredEmbedding
from engine.layers.linear import Linear
from engine.loading.checkpoint import UNTIED, has_equal_rows
from engine.loading.names import is_ignorable, is_other_part, name_in_text_model
from engine.loading.quantized_folder import QuantizedFolder
from engine.loading.safetensors_file import SafetensorsFolder
from engine.models.decoder import MAX_BUILDERS
from engine.models.fields import blamed
from engine.models.held_bytes import table_bytes
from engine.models.transformers_backend.decoder import TransformersDecoder
from engine.models.transformers_backend.parts import ExpertMatrices, Projection, Table
from engine.models.transformers_backend.skeleton import Skeleton, set_tensor
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix, damaged, is_finite

logger = logging.getLogger(__name__)


class Conversion:
    """Tensors of the folder that become one tensor of the model, or several. `converter` None: one as it is."""

    def __init__(self, target: str, converter: WeightConverter | None) -> None:
        self.target = target
        self.converter = converter
        self.sources: list[tuple[str, str | None]] = []
        """Names in the folder, and the pattern of the converter that each matches."""

    def targets(self) -> list[str]:
        if self.converter is None:
            return [self.target]
        first, *others = self.converter.target_patterns
        return [self.target, *(self.target.replace(first, other) for other in others)]

    def made(self, read: Callable[[str], torch.Tensor], skeleton: Skeleton) -> dict[str, torch.Tensor]:
        """Return the tensors of the model, made of what `read` returns. Raises ModelLoadError."""
        if self.converter is None:
            return {self.target: read(self.sources[0][0])}
        converter = deepcopy(self.converter)
        for name, pattern in self.sources:
            # NOTE: transformers takes a function in the place of a Future, and calls it.
            converter.add_tensor(self.target, name, str(pattern), cast(Any, partial(read, name)))
        try:
            made = converter.convert(self.target, model=skeleton.model, config=skeleton.model.config)
        except (RuntimeError, ValueError) as error:
            raise ModelLoadError(
                f"{skeleton.source}: tensor {self.target!r} cannot be made of {len(self.sources)} tensors such as "
                f"{self.sources[0][0]!r}: {error}"
            ) from error
        return {name: value[0] if isinstance(value, list) else value for name, value in made.items()}


class TransformersCheckpoint:
    """A folder and the skeleton that its tensors fill."""

    def __init__(self, folder: SafetensorsFolder | QuantizedFolder, skeleton: Skeleton) -> None:
        self._folder = folder
        self._skeleton = skeleton
        found = self._find()
        self._used = [one for one in found if skeleton.shapes.keys() & set(one.targets())]
        self._unused = [name for one in found if one not in self._used for name, _ in one.sources]

    @property
    def format(self) -> str:
        return self._folder.format

    def check(self) -> None:
        """Raise ModelLoadError if a tensor is missing, or has another shape, or belongs to no part of the model."""
        skeleton, source = self._skeleton, self._folder.path
        found = {name for conversion in self._used for name in conversion.targets()}
        if missing := sorted(skeleton.shapes.keys() - skeleton.tied.keys() - found):
            raise ModelLoadError(f"{source}: tensor {missing[0]!r} is missing")
        for conversion in self._used:
            for name, tensor in conversion.made(self._without_data, skeleton).items():
                expected = skeleton.shapes.get(name)
                if expected is not None and tensor.shape != expected:
                    found_shape = tuple(tensor.shape)
                    raise ModelLoadError(
                        f"{source}: tensor {name!r} must have the shape {expected}, got {found_shape}"
                        f"{blamed(skeleton.values, expected, found_shape)}"
                    )
        unused = [name for name in self._unused if not is_ignorable(name)]
        if left_out := {name for name in unused if self._is_left_out(name)}:
            shown = min(left_out)[:80]
            logger.info("%s: %d tensors such as %r are left out, as by transformers", source, len(left_out), shown)
            unused = [name for name in unused if name not in left_out]
        unknown = [name for name in unused if not self._is_other_part(name)]
        if len(unknown) < len(unused):
            num_others = len(unused) - len(unknown)
            logger.info("%s: %d tensors of parts that are not served are left out", source, num_others)
        if unknown:
            shown = ", ".join(repr(name[:80]) for name in sorted(unknown)[:5])
            raise ModelLoadError(f"{source}: holds {len(unknown)} tensors that its architecture does not have: {shown}")

    def held_bytes(self, scheme: WeightScheme) -> int:
        """Return the bytes that the weights will take, without reading them; after `check`."""
        model, tied, num_bytes = self._skeleton.model, dict(self._skeleton.tied), 0
        for conversion in self._used:
            outlines: dict[str, torch.Tensor | StoredMatrix]
            if conversion.converter is None and len(self._skeleton.shapes[conversion.target]) == 2:
                outlines = {conversion.target: self._folder.outline(conversion.sources[0][0])}
            else:
                outlines = dict(conversion.made(self._without_data, self._skeleton))
            for name, value in outlines.items():
                num_bytes += place_bytes(model, name, value, scheme)
                for other in (other for other, first in tied.items() if first == name):
                    is_shared = scheme.is_fixed and isinstance(
                        model.get_submodule(other.rpartition(".")[0]), Projection
                    )
                    num_bytes += 0 if is_shared else place_bytes(model, other, value, scheme)
        return num_bytes

    def build(
        self, scheme: WeightScheme, device: torch.device, progress: Callable[[float], None]
    ) -> TransformersDecoder:
        """Read the weights into the skeleton, several tensors at a time, and return its decoder."""
        places = Places(self._skeleton, scheme, device)
        num_threads = torch.get_num_threads()
        pool = ThreadPoolExecutor(min(num_threads, MAX_BUILDERS), initializer=torch.set_num_threads, initargs=(1,))

        @torch.inference_mode()
        def load(conversion: Conversion) -> None:
            if conversion.converter is None and len(self._skeleton.shapes[conversion.target]) == 2:
                places.put(conversion.target, self._folder.matrix(conversion.sources[0][0]))
                return
            for name, tensor in conversion.made(self._folder.tensor, self._skeleton).items():
                places.put(name, tensor)

        try:
            for number, _ in enumerate(pool.map(load, self._used)):
                progress((number + 1) / len(self._used))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(num_threads)
        places.finish()
        return self._skeleton.decoder

    def _find(self) -> list[Conversion]:
        """Say of which tensors of the folder each tensor of the model is made, by the rules of transformers."""
        model, shapes = self._skeleton.model, self._skeleton.shapes
        rules = get_model_conversion_mapping(model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
        found: dict[str, Conversion] = {}
        for name in sorted(self._folder.names, key=dot_natural_key):
            plain = name_in_text_model(name) if self._skeleton.is_text_part else name
            target, pattern = rename_source_key(plain, renamings, converters, model.base_model_prefix, shapes)
            if target not in shapes and plain in shapes:
                target, pattern = plain, None
            converter = by_pattern[pattern] if pattern is not None else None
            conversion = found.setdefault(target, Conversion(target, converter))
            conversion.sources.append((name, pattern))
            if converter is None and len(conversion.sources) > 1 and target in shapes:
                names = " and ".join(repr(source[:80]) for source, _ in conversion.sources)
                raise ModelLoadError(f"{self._folder.path}: tensors {names} are both {target[:80]!r}")
        for name, other in list(self._skeleton.tied.items()):
            if name in found and other in found and self._differ(found[name], found[other]):
                logger.warning(UNTIED, self._folder.path)
                del self._skeleton.tied[name]
            elif name in found:  # one of the two is in the file, or both, which are the same
                copied = found.pop(name)
                copied.target = other
                found.setdefault(other, copied)
        return list(found.values())

    def _differ(self, one: Conversion, other: Conversion) -> bool:
        """Return True if two tied matrices are both in the folder, and hold different numbers."""
        (first, _), (second, _) = one.sources[0], other.sources[0]
        is_plain = one.converter is other.converter is None
        shape = self._folder.shape(first)
        is_comparable = is_plain and len(shape) == 2 and min(shape) > 0 and shape == self._folder.shape(second)
        return is_comparable and not has_equal_rows(self._folder, first, second)

    def _without_data(self, name: str) -> torch.Tensor:
        return torch.empty(self._folder.shape(name), device="meta")

    def _is_left_out(self, name: str) -> bool:
        """Return True for a tensor that the class of the model expects in files and does not use, such as masks."""
        patterns = self._skeleton.model._keys_to_ignore_on_load_unexpected or ()
        return any(re.search(pattern, name) for pattern in patterns)

    def _is_other_part(self, name: str) -> bool:
        """Return True for a tensor beside the text model: in a larger one, all that its names do not have."""
        is_beside = self._skeleton.is_text_part and name_in_text_model(name) == name
        return is_beside or is_other_part(name, self._skeleton.values)


class Places:
    """The places of a skeleton that tensors fill, in our forms of weights. Several threads fill them."""

    def __init__(self, skeleton: Skeleton, scheme: WeightScheme, device: torch.device) -> None:
        self._model = skeleton.model
        self._file = skeleton.source
        self._scheme = scheme
        self._device = device
        self._tied: defaultdict[str, list[str]] = defaultdict(list)
        for name, other in skeleton.tied.items():
            self._tied[other].append(name)

    def put(self, name: str, value: torch.Tensor | StoredMatrix) -> None:
        """Store a tensor of the model, and give it to the names that are tied to it.

        Raises ModelLoadError for NaN and infinite numbers.
        """
        source = f"{self._file}: tensor {name!r}"
        place, _, leaf = name.rpartition(".")
        part, scheme = self._model.get_submodule(place), self._scheme
        shared = None
        if isinstance(part, Table):
            matrix = as_matrix(value, source)
            if scheme.keeps_stored(matrix):
                part.table = StoredEmbedding(matrix.parts[0], scheme.activation_dtype)
            else:
                shared = matrix.to_dtype(scheme.table_dtype).to(self._device)
                part.table = OpenEmbedding(shared, scheme.activation_dtype)
        elif isinstance(part, Projection) and leaf == "weight":
            part.linear = self._linear(as_tensor(value).T if part.is_transposed else value, source)
        elif isinstance(stack := getattr(part, leaf, None), ExpertMatrices):
            stack.linears = [self._linear(one.T if stack.is_transposed else one, source) for one in as_tensor(value)]
        else:
            numbers = as_tensor(value)
            if not is_finite(numbers):
                raise damaged(source)
            # NOTE: a copy, since a view would keep the whole file mapped for as long as the model lives.
            set_tensor(part, leaf, numbers.to(self._device, self._dtype(name), copy=True))
        for tied in self._tied[name]:
            other = self._model.get_submodule(tied.rpartition(".")[0])
            if isinstance(other, Projection) and shared is not None and scheme.is_fixed:
                other.linear = Linear(scheme.share(shared))
            else:
                self.put(tied, value)

    def finish(self) -> None:
        """Move the tables that the model computes itself to the device, and have parts answer for their dtype."""
        for part in self._model.modules():
            if isinstance(part, Projection | Table):
                part.weight = part.weight.to(self._scheme.activation_dtype)
        for name, buffer in list(self._model.named_buffers()):
            place, _, leaf = name.rpartition(".")
            set_tensor(self._model.get_submodule(place), leaf, buffer.to(self._device))

    def _linear(self, matrix: torch.Tensor | StoredMatrix, source: str) -> Linear:
        return Linear(self._scheme.build(as_matrix(matrix, source)))

    def _dtype(self, name: str) -> torch.dtype:
        exact = self._model._keep_in_fp32_modules_strict or ()
        return torch.float32 if any(re.search(pattern, name) for pattern in exact) else self._scheme.activation_dtype


def place_bytes(model: nn.Module, name: str, value: torch.Tensor | StoredMatrix, scheme: WeightScheme) -> int:
    """Return the bytes that a tensor without data takes in its place of a model, as `Places.put` stores it."""
    place, _, leaf = name.rpartition(".")
    part = model.get_submodule(place)
    if isinstance(part, Table):
        return table_bytes(as_matrix(value, name), scheme)
    is_experts = isinstance(getattr(part, leaf, None), ExpertMatrices)
    if not is_experts and not (isinstance(part, Projection) and leaf == "weight"):
        shape = value.shape
        return prod(shape) * scheme.activation_dtype.itemsize
    if isinstance(value, StoredMatrix) and not part.is_transposed:
        return scheme.held_bytes(value)
    count, owner = (value.shape[0], getattr(part, leaf)) if is_experts else (1, part)
    num_outputs, num_inputs = value.shape[-2:][:: -1 if owner.is_transposed else 1]
    return count * scheme.held_bytes(StoredMatrix.outline("F32", (num_outputs, num_inputs), 4 * num_inputs))


def as_matrix(value: torch.Tensor | StoredMatrix, source: str) -> StoredMatrix:
    return value if isinstance(value, StoredMatrix) else StoredMatrix.from_float(value).named(source)


def as_tensor(value: torch.Tensor | StoredMatrix) -> torch.Tensor:
    return value.to_dtype(torch.float32) if isinstance(value, StoredMatrix) else value
