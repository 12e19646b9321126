"""How a folder lays a quantised matrix over several tensors: what a layout is given, and what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from engine.api.errors import ModelLoadError
from engine.loading.safetensors_file import DTYPES, SafetensorsFolder
from engine.quantization.folder_blocks import BLOCK
from engine.quantization.stored import StoredMatrix

FLOATS = tuple(DTYPES)


class Module:
    """The tensors of a folder whose names begin with `prefix`: they hold one quantised matrix."""

    def __init__(self, folder: SafetensorsFolder, prefix: str) -> None:
        self._folder = folder
        self._names = folder.by_name
        self.prefix = prefix

    @property
    def path(self) -> Path:
        return self._folder.path

    def has(self, suffix: str) -> bool:
        return self.prefix + suffix in self._names

    def dtype(self, suffix: str) -> str:
        """Return the name that safetensors has for a tensor's dtype. Raises ModelLoadError if the tensor is missing."""
        return self._stored(suffix)[0]

    def shape(self, suffix: str) -> tuple[int, ...]:
        """Return a tensor's shape. Raises ModelLoadError if the tensor is missing."""
        return self._stored(suffix)[1]

    def check(self, suffix: str, dtypes: tuple[str, ...], *shapes: tuple[int, ...]) -> None:
        """Raise ModelLoadError unless the tensor is there, in one of these dtypes and shapes."""
        dtype, shape = self._stored(suffix)
        if dtype not in dtypes:
            raise self.wrong(suffix, f"must have the dtype {' or '.join(dtypes)}, got {dtype}")
        if shape not in shapes:
            raise self.wrong(suffix, f"must have the shape {' or '.join(map(str, shapes))}, got {shape}")

    def read(self, suffix: str) -> torch.Tensor:
        """Read a tensor in its own dtype."""
        return self._folder.read(self.prefix + suffix)

    def numbers(self, suffix: str) -> torch.Tensor:
        """Read scales as float32. Raises ModelLoadError for infinite ones."""
        numbers = self.read(suffix).float()
        if not numbers.isfinite().all():
            raise self.wrong(suffix, "must hold finite numbers")
        return numbers

    def whole_blocks(self, suffix: str, num_inputs: int) -> int:
        """Return the number of inputs of a matrix. Raises ModelLoadError if they do not fill blocks."""
        if num_inputs <= 0 or num_inputs % BLOCK:
            raise self.wrong(suffix, f"must have inputs in a multiple of {BLOCK}, got {num_inputs}")
        return num_inputs

    def wrong(self, suffix: str, problem: str) -> ModelLoadError:
        return ModelLoadError(f"{self.name(suffix)} {problem}")

    def name(self, suffix: str) -> str:
        """Return the file and the name of a tensor, for errors."""
        return f"{self.path}: tensor {self.prefix + suffix!r}"

    def _stored(self, suffix: str) -> tuple[str, tuple[int, ...]]:
        if not self.has(suffix):
            raise self.wrong(suffix, "is missing")
        return self._folder.stored(self.prefix + suffix)


class Layout(Protocol):
    """One way to hold a matrix. Names are those of tensors behind the module's prefix."""

    main: str
    """The tensor that shows that a module has this layout, if `takes` agrees."""
    others: tuple[str, ...]
    """The tensors that may belong to it."""
    target: str = "weight"
    """The name of the matrix."""

    def takes(self, module: Module) -> bool:
        return True

    def shape(self, module: Module) -> tuple[int, ...]:
        """Return the shape of the matrix, (N, K). Raises ModelLoadError if its tensors do not fit each other."""
        ...

    def matrix(self, module: Module) -> StoredMatrix:
        """Read the matrix, whose `shape` was asked for. Raises ModelLoadError for numbers out of range."""
        ...

    def tensor(self, module: Module) -> torch.Tensor:
        """Read and dequantise the matrix: float32 in its `shape`."""
        return self.matrix(module).named(module.name(self.main)).to_dtype(torch.float32)
