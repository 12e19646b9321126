"""Implementations of `Checkpoint` for GGUF files and Hugging Face folders: our names, checked shapes, rotated pairs
adjacent.
"""

from __future__ import annotations

import torch

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile, GgufTensor
from engine.layers.rotary import adjacent_pairs
from engine.loading.names import gguf_name, hf_name, is_ignorable, num_rotated_heads
from engine.loading.safetensors_file import SafetensorsFolder
from engine.models.config import ModelConfig
from engine.quantization.gguf_blocks import dequantize
from engine.quantization.stored import StoredMatrix


class GgufCheckpoint:
    """The tensors of a GGUF file.

    `reorders`: the family stores q and k rows as halves, which must be reordered into pairs.
    """

    def __init__(self, file: GgufFile, config: ModelConfig, reorders: bool) -> None:
        self._file = file
        self._config = config
        self._reorders = reorders
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        return gguf_name(name) in self._file.tensors

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix:
        type_name, data = self._take(name, shape)
        matrix = StoredMatrix.from_blocks(type_name, data, shape)
        order = _row_order(name, self._config) if self._reorders else None
        return matrix if order is None else matrix.take_rows(order)

    def vector(self, name: str, size: int) -> torch.Tensor:
        # NOTE: a copy, since a view would keep the whole file mapped for as long as the model lives.
        values = dequantize(*self._take(name, (size,))).flatten().clone()
        order = _row_order(name, self._config) if self._reorders else None
        return values if order is None else values[order]

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise ModelLoadError if the tensor is missing or has another shape; do not read its data."""
        self._find(name, shape)

    def refuse_unused(self) -> None:
        """Raise ModelLoadError if the file has tensors that the decoder did not ask for: it is another kind of
        model."""
        _refuse_unused(str(self._file.path), set(self._file.tensors) - self._used)

    def _take(self, name: str, shape: tuple[int, ...]) -> tuple[str, torch.Tensor]:
        tensor = self._find(name, shape)
        return tensor.type, torch.from_numpy(tensor.data)

    def _find(self, name: str, shape: tuple[int, ...]) -> GgufTensor:
        file_name = gguf_name(name)
        tensor = self._file.tensors.get(file_name)
        if tensor is None:
            raise _missing(str(self._file.path), file_name)
        _check_shape(str(self._file.path), file_name, tensor.shape, shape)
        self._used.add(file_name)
        return tensor


class SafetensorsCheckpoint:
    """The tensors of a Hugging Face folder, which stores q and k rows as halves."""

    def __init__(self, folder: SafetensorsFolder, config: ModelConfig) -> None:
        self._folder = folder
        self._config = config
        self._names = set(folder.names)
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        return name != "frequency_factors" and hf_name(name) in self._names

    def matrix(self, name: str, shape: tuple[int, int]) -> StoredMatrix:
        return StoredMatrix.from_float(self._take(name, shape))

    def vector(self, name: str, size: int) -> torch.Tensor:
        return self._take(name, (size,)).float()

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Do as GgufCheckpoint.check."""
        self._find(name, shape)

    def refuse_unused(self) -> None:
        """Raise ModelLoadError if the folder has tensors that the decoder did not ask for: it is another kind of
        model."""
        _refuse_unused(str(self._folder.path), self._names - self._used)

    def _take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = self._folder.tensor(self._find(name, shape))
        order = _row_order(name, self._config)
        return tensor if order is None else tensor[order]

    def _find(self, name: str, shape: tuple[int, ...]) -> str:
        """Return the name that the tensor has in its file."""
        file_name = hf_name(name)
        if file_name not in self._names:
            raise _missing(str(self._folder.path), file_name)
        _check_shape(str(self._folder.path), file_name, self._folder.shape(file_name), shape)
        self._used.add(file_name)
        return file_name


def _row_order(name: str, config: ModelConfig) -> torch.Tensor | None:
    num_heads = num_rotated_heads(name, config)
    return adjacent_pairs(num_heads, config.head_size) if num_heads else None


def _missing(source: str, file_name: str) -> ModelLoadError:
    return ModelLoadError(f"{source}: tensor {file_name!r} is missing")


def _check_shape(source: str, file_name: str, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if found != shape:
        raise ModelLoadError(f"{source}: tensor {file_name!r} must have the shape {shape}, got {found}")


def _refuse_unused(source: str, names: set[str]) -> None:
    unknown = sorted(name for name in names if not is_ignorable(name))
    if unknown:
        shown = ", ".join(repr(name[:80]) for name in unknown[:5])
        raise ModelLoadError(f"{source}: holds {len(unknown)} tensors that its architecture does not have: {shown}")
