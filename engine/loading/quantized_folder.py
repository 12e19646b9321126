"""A folder of quantised weights: each matrix is one tensor under its plain name, whatever tensors hold it."""

from __future__ import annotations

import logging
from math import prod
from pathlib import Path
from threading import local

import torch

from engine.loading.layout import Layout, Module
from engine.loading.quantization_config import Quantization
from engine.loading.safetensors_file import SafetensorsFolder
from engine.quantization.stored import StoredMatrix

logger = logging.getLogger(__name__)

LEFT_OUT = (
    ".input_scale",
    ".input_scale_ub",
    ".input_zero_point",
    ".activation_scale",
    ".output_scale",
    ".output_zero_point",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".prob_scale",
    ".k_zero_point",
    ".v_zero_point",
)
"""Scales of activations, which are quantised by what they hold, and of the cache, which is not quantised by scales."""


class QuantizedFolder:
    """The tensors of a `SafetensorsFolder`, in which the quantised matrices are single tensors."""

    def __init__(self, folder: SafetensorsFolder, quantization: Quantization) -> None:
        self.path: Path = folder.path
        self.files = folder.files
        self._folder = folder
        self._modules: dict[str, tuple[Layout, Module]] = {}
        held: set[str] = set()
        for name in folder.names:
            layout = next((one for one in quantization.layouts if _has(one, folder, name)), None)
            if layout is not None:
                module = Module(folder, name.removesuffix(layout.main))
                self._modules[module.prefix + layout.target] = layout, module
                held |= {module.prefix + suffix for suffix in (layout.main, *layout.others)}
        self.format = quantization.described if self._modules else ""
        left_out = {name for name in folder.names if name.endswith(LEFT_OUT)}
        if left_out:
            logger.info("%s: %d scales of activations and of the cache are left out", self.path, len(left_out))
        self._plain = [name for name in folder.names if name not in held | left_out]
        self._latest = local()
        self._outlines: dict[tuple[object, ...], tuple[str, float]] = {}
        """Type and bytes of an input, by layout and by what a module holds for an input."""
        logger.info("%s: %d matrices are %s", self.path, len(self._modules), quantization.described)

    @property
    def names(self) -> list[str]:
        return [*self._plain, *self._modules]

    def file_of(self, name: str) -> Path:
        """Return what errors about a tensor name: the folder."""
        return self.path

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of one tensor without reading its numbers.

        Raises as SafetensorsFolder's, and ModelLoadError if the tensors of a matrix do not fit each other.
        """
        if name not in self._modules:
            return self._folder.shape(name)
        layout, module = self._modules[name]
        return layout.shape(module)

    def tensor(self, name: str) -> torch.Tensor:
        """Read one tensor, dequantised. Raises ModelLoadError for numbers out of range."""
        if name not in self._modules:
            return self._folder.tensor(name)
        layout, module = self._modules[name]
        return layout.tensor(module)

    def matrix(self, name: str) -> StoredMatrix:
        """Read one tensor; quantised ones in blocks. Raises ModelLoadError for numbers out of range.

        Each thread keeps its latest, as tensors that stack several of ours are asked for several times in a row.
        """
        if name not in self._modules:
            return self._folder.matrix(name)
        if getattr(self._latest, "name", None) != name:
            layout, module = self._modules[name]
            self._latest.matrix = layout.matrix(module).named(module.name(layout.main))
            self._latest.name = name
        return self._latest.matrix

    def outline(self, name: str) -> StoredMatrix:
        """Do as `matrix`, without data. Reads one matrix of each kind. Raises as `matrix` for those."""
        if name not in self._modules:
            return self._folder.outline(name)
        layout, module = self._modules[name]
        num_outputs, num_inputs = layout.shape(module)
        stored = prod(module.shape(layout.main)) / (num_outputs * num_inputs)
        kind = (id(layout), module.dtype(layout.main), round(stored, 3))
        if kind not in self._outlines:
            (part,) = self.matrix(name).parts
            type_name = part.packed_type or "F32"  # others are held alike
            self._outlines[kind] = type_name, part.data.shape[1] / num_inputs if part.packed_type else 4.0
        type_name, input_bytes = self._outlines[kind]
        return StoredMatrix.outline(type_name, (num_outputs, num_inputs), round(num_inputs * input_bytes))


def _has(layout: Layout, folder: SafetensorsFolder, name: str) -> bool:
    return name.endswith(layout.main) and layout.takes(Module(folder, name.removesuffix(layout.main)))
