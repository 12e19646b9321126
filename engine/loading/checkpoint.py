"""The tensors of a model's files under our names: shapes checked, stacked tensors cut apart, rotated pairs adjacent."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, nan, prod
from pathlib import Path
from typing import Protocol

import torch

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile, GgufTensor
from engine.loading.names import (
    TensorSource,
    is_ignorable,
    is_other_part,
    name_in_folder,
    pair_order,
    shared_keys,
    tensor_sources,
)
from engine.models.config import ModelConfig
from engine.models.decoder import OPTIONAL, decoder_tensors
from engine.models.family import Family
from engine.models.fields import blamed
from engine.models.held_bytes import decoder_bytes
from engine.quantization.scheme import WeightScheme
from engine.quantization.stored import StoredMatrix, StoredPart

logger = logging.getLogger(__name__)

UNTIED = "%s: config.json ties the output to the embedding, but they differ and are not tied"


class TensorFile(Protocol):
    """The tensors of a GGUF file or a folder, by their own names."""

    path: Path
    format: str
    """How the weights are quantised, for people; empty if the file's types say so."""

    @property
    def names(self) -> list[str]: ...

    def file_of(self, name: str) -> Path: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def matrix(self, name: str) -> StoredMatrix: ...

    def outline(self, name: str) -> StoredMatrix:
        """Return a matrix as `matrix` does, of which the data may be missing."""
        ...


class GgufTensors:
    """The tensors of a GGUF file as views of its map.

    A matrix may have a scale in a tensor of its own, as llama.cpp's converter writes beside NVFP4: it is a part of the
    matrix. The scale of its activations is left out, as they are quantised by what they hold.
    """

    format = ""

    def __init__(self, file: GgufFile) -> None:
        """Raise ModelLoadError if a scale is no finite number."""
        self.path = file.path
        self._tensors = dict(file.tensors)
        matrices = [name.removesuffix(".weight") for name, tensor in file.tensors.items() if len(tensor.shape) == 2]
        scales = {name: self._tensors.pop(f"{name}.scale", None) for name in matrices}
        self._scales = {f"{name}.weight": _number(scale) for name, scale in scales.items() if scale is not None}
        if left_out := sum(self._tensors.pop(f"{name}.input_scale", None) is not None for name in matrices):
            logger.info("%s: %d scales of activations are left out", self.path, left_out)

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def file_of(self, name: str) -> Path:
        """Return the part of a split model that holds a tensor, else the file."""
        return self._tensors[name].path

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def matrix(self, name: str) -> StoredMatrix:
        """Return a tensor as stored; a vector is a matrix of one row."""
        tensor = self._tensors[name]
        data = torch.from_numpy(tensor.data)
        source = f"{tensor.path}: tensor {name!r}"
        part = StoredPart(tensor.type, data, factor=self._scales.get(name, 1.0), source=source)
        return StoredMatrix((part,), (len(data), tensor.shape[-1]))

    def outline(self, name: str) -> StoredMatrix:
        """Do as `matrix`, which reads nothing."""
        return self.matrix(name)


def _number(tensor: GgufTensor) -> float:
    """Read a scale. Raises ModelLoadError."""
    number = float(tensor.data.view("<f4").flat[0]) if (tensor.type, tensor.shape) == ("F32", (1,)) else nan
    if not isfinite(number):
        raise ModelLoadError(f"{tensor.path}: tensor {tensor.name!r} must hold one finite number in float32")
    return number


def with_own_output(file: TensorFile, config: ModelConfig, family: Family) -> ModelConfig:
    """Return the description of a folder that says its output is tied to the embedding, but may hold another one.

    Fine-tuned models do. transformers does not tie them either.
    """
    untied, names = replace(config, tied_output=False), set(file.names)
    sources = tensor_sources(untied, family, is_gguf=False)
    embedding, output = (name_in_folder(sources[kind].name, names) for kind in ("embedding", "output"))
    shape = (config.vocab_size, config.hidden_size)
    if not config.tied_output or not names.issuperset((embedding, output)) or file.shape(embedding) != shape:
        return config
    if file.shape(output) == shape and has_equal_rows(file, embedding, output):
        return config
    logger.warning(UNTIED, file.path)
    return untied


def has_equal_rows(file: TensorFile, first: str, second: str) -> bool:
    """Return True if two matrices of one shape hold the same numbers."""
    rows = zip(file.matrix(first).open_rows(), file.matrix(second).open_rows(), strict=True)
    return all(torch.equal(*pair) for pair in rows)


class FileCheckpoint:
    """A `Checkpoint` over a file's tensors."""

    def __init__(
        self, file: TensorFile, config: ModelConfig, family: Family, fields: Mapping[str, object], *, is_gguf: bool
    ) -> None:
        """`fields`: the description as the file has it, for errors and parts that are not served."""
        self._file = file
        self._config = config
        self.family = family
        self._is_gguf = is_gguf
        self._fields = fields
        self._source = str(file.path)
        self._names = set(file.names)
        if config.num_layers > len(self._names):
            raise ModelLoadError(
                f"{self._source}: has {len(self._names)} tensors in all, fewer than layers"
                f"{blamed(fields, (config.num_layers,), ())}"
            )
        self._sources = tensor_sources(config, family, is_gguf=is_gguf)
        if not is_gguf:
            self._sources = {
                name: source._replace(name=name_in_folder(source.name, self._names))
                for name, source in self._sources.items()
            }
        self._reorders = not (family.gguf_adjacent_pairs if is_gguf else family.hf_adjacent_pairs)
        self._norm_offset = 0.0 if is_gguf else family.hf_norm_offset
        shared = shared_keys(config, family, is_gguf=is_gguf)
        self._ignorable = shared if is_gguf else {name_in_folder(name, self._names) for name in shared}
        self._used: set[str] = set()

    @property
    def format(self) -> str:
        return self._file.format

    def has(self, name: str) -> bool:
        return name in self._sources and self._sources[name].name in self._names

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix:
        source = self._find(name, shape)
        matrix = self._file.matrix(source.name).rows(source.first, shape[0])
        order = self._order(name)
        return matrix if order is None else matrix.take_rows(order)

    def vector(self, name: str, size: int) -> torch.Tensor:
        source = self._find(name, (size,))
        (part,) = self._file.matrix(source.name).parts
        values = part.load().flatten()[source.first : source.first + size]
        order = self._order(name)
        # NOTE: a copy, since a view would keep the whole file mapped for as long as the model lives.
        values = values.clone() if order is None else values[order]
        return values + self._norm_offset if self._norm_offset and name.endswith("norm") else values

    def held_bytes(self, scheme: WeightScheme) -> int:
        """Return the bytes that the weights will take, without reading them; after `check`."""

        def outline(name: str, shape: tuple[int, int]) -> StoredMatrix:
            source = self._find(name, shape)
            return self._file.outline(source.name).rows(source.first, shape[0])

        return decoder_bytes(self._config, outline, scheme)

    @property
    def num_other_weights(self) -> int:
        """The numbers of what is beside the text model, such as an encoder of images."""
        names = (name for name in self._names if is_other_part(name, self._fields))
        return sum(prod(self._file.shape(name)) for name in names)

    def check(self) -> None:
        """Raise ModelLoadError if a tensor of the architecture is missing or has another shape, or the file has one
        more: it is another kind of model. Does not read their data.
        """
        for name, shape in decoder_tensors(self._config):
            if name not in OPTIONAL or self.has(name):
                self._find(name, shape)
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        unused = {name for name in self._names - self._used if not self._is_ignorable(name)}
        others = {name for name in unused if is_other_part(name, self._fields)}
        if others:
            logger.info("%s: %d tensors are of parts beside the text model", self._source, len(others))
        unknown = sorted(name for name in unused - others if not self._is_zero_bias(name))
        if unknown:
            shown = ", ".join(repr(name[:80]) for name in unknown[:5])
            raise ModelLoadError(
                f"{self._source}: holds {len(unknown)} tensors that its architecture does not have: {shown}"
            )

    def _is_ignorable(self, name: str) -> bool:
        is_known = not self._is_gguf and any(part in name for part in self.family.hf_unused)
        return is_known or is_ignorable(name) or name in self._ignorable

    def _is_zero_bias(self, name: str) -> bool:
        """Return True for a bias that adds nothing: GPTQ files have such where the architecture has none."""
        if not name.endswith(".bias") or len(shape := self._file.shape(name)) != 1 or not shape[0]:
            return False
        return not any(rows.any() for rows in self._file.matrix(name).open_rows())

    def _order(self, name: str) -> torch.Tensor | None:
        return pair_order(name, self._config) if self._reorders else None

    def _find(self, name: str, shape: tuple[int, ...]) -> TensorSource:
        source = self._sources[name]
        if source.name not in self._names:
            raise ModelLoadError(f"{self._source}: tensor {source.name!r} is missing")
        found, expected = self._file.shape(source.name), (source.num_rows, *shape[1:])
        if found != expected:
            raise ModelLoadError(
                f"{self._file.file_of(source.name)}: tensor {source.name!r} must have the shape {expected}, got {found}"
                f"{blamed(self._fields, expected, found)}"
            )
        self._used.add(source.name)
        return source
