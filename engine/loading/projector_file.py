"""The tensors of a projector's file under the names of transformers, their shapes checked before one is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from engine.api.errors import ModelLoadError
from engine.gguf_file import GgufFile
from engine.gguf_pair import Projector
from engine.loading.checkpoint import GgufTensors
from engine.models.projectors.described import Described, Form, Source

Shape = tuple[int, ...]
AUDIO = ("a.", "mm.a.")
"""Beginnings of the names of what files have for sound."""


class ProjectorFile:
    """The tensors of a projector, opened and checked. Raises ModelLoadError by name of file and tensor."""

    def __init__(self, projector: Projector, described: Described, shapes: Mapping[str, Shape], num_heads: int) -> None:
        """`shapes`: of the tensors that transformers wants, by its names. `num_heads`: of the tower."""
        self.path: Path = projector.path
        self._tensors = GgufTensors(GgufFile.open(projector.path))
        self._names = set(self._tensors.names)
        self._num_heads = num_heads
        self._shapes = shapes
        self._sources = {name: self._find(described, name, shape) for name, shape in shapes.items()}
        used = {own for source in self._sources.values() if source is not None for own in source.names}
        unused = (*described.unused, *AUDIO)
        unknown = sorted(name for name in self._names - used if not name.startswith(unused))
        if unknown:
            listed = ", ".join(repr(name[:80]) for name in unknown[:5])
            raise ModelLoadError(
                f"{self.path}: holds {len(unknown)} tensors that its kind of projector does not have: {listed}"
            )

    def tensors(self) -> dict[str, torch.Tensor]:
        """Read all tensors, in float32. Raises ModelLoadError for numbers that are not finite."""
        found = {}
        for name, source in self._sources.items():
            shape = self._shapes[name]
            value = torch.zeros(shape) if source is None else self._read(source).reshape(shape)
            if not torch.isfinite(value).all():
                raise ModelLoadError(f"{self.path}: tensor {name!r} holds numbers that are not finite")
            found[name] = value.contiguous()
        return found

    def _find(self, described: Described, name: str, shape: Shape) -> Source | None:
        sources = described.sources(name)
        whole = [source for source in sources if self._names.issuperset(source.names)]
        if not whole:
            if name.startswith(described.uncomputed):
                return None
            missing = next((own for source in sources[-1:] for own in source.names if own not in self._names), name)
            raise ModelLoadError(f"{self.path}: tensor {missing!r} is missing")
        source = whole[0]
        parts = [self._tensors.shape(own) for own in source.names]
        wanted = _parts_of(shape, source)
        for own, part in zip(source.names, parts, strict=True):
            if _without_ones(part) != _without_ones(wanted):
                raise ModelLoadError(f"{self.path}: tensor {own!r} must have the shape {wanted}, got {part}")
        return source

    def _read(self, source: Source) -> torch.Tensor:
        parts = [
            self._tensors.matrix(own).to_dtype(torch.float32).reshape(self._tensors.shape(own)) for own in source.names
        ]
        if source.form is Form.ROWS:
            return torch.cat(parts)
        if source.form is Form.FRAMES:
            return torch.stack(parts, dim=2)
        (value,) = parts
        if source.form is Form.LESS_ONE:
            return value - 1
        if source.form is Form.HALVES:
            rows = value.shape[0] // self._num_heads
            return value.reshape(self._num_heads, rows // 2, 2, -1).transpose(1, 2).reshape(value.shape)
        return value


def _parts_of(shape: Shape, source: Source) -> Shape:
    """Return the shape that each tensor of the file must have for one of transformers."""
    if source.form is Form.ROWS:
        return (shape[0] // len(source.names), *shape[1:])
    if source.form is Form.FRAMES:
        return (*shape[:2], *shape[3:])
    return shape


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)
