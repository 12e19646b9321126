"""What replaces the large matrices of a transformers model: our quantised products, tables and experts.

A part stands in the model before its weights are read: then it computes something that depends on its inputs row by
row, which is all that a check of the model's layers needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from engine.layers.adapters import StepAdapters
from engine.layers.embedding import Embedding
from engine.layers.linear import Linear

_adapters: ContextVar[StepAdapters | None] = ContextVar("adapters", default=None)


@contextmanager
def changed_by(adapters: StepAdapters | None) -> Iterator[None]:
    """Have the projections of models that run in this context changed by the adapters of a step."""
    token = _adapters.set(adapters)
    try:
        yield
    finally:
        _adapters.reset(token)


def stand_in(shape: torch.Size) -> torch.Tensor:
    """Return numbers of a shape that differ along every axis and take the memory of a vector."""
    base = torch.randn(sum(shape) + 1, generator=torch.Generator().manual_seed(0))
    return base.as_strided(shape, (1,) * len(shape))


def without_weight(x: torch.Tensor, width: int) -> torch.Tensor:
    """Repeat or cut rows, within bounds, so that no number outgrows the others. x: (…, K)  ->  (…, width)"""
    return x.repeat(*(1,) * (x.dim() - 1), -(-width // x.shape[-1]))[..., :width].sin()


class Projection(nn.Module):
    """A linear layer; `linear` is None until its weight is read."""

    def __init__(self, original: nn.Linear | Conv1D) -> None:
        """`original`: GPT-2's Conv1D holds its matrix by inputs."""
        super().__init__()
        self.is_transposed = isinstance(original, Conv1D)
        self.in_features, self.out_features = original.weight.shape[:: 1 if self.is_transposed else -1]
        self.weight = original.weight.detach()
        """On no device, for models that ask for its dtype."""
        self.bias = None if original.bias is None else nn.Parameter(torch.zeros(self.out_features), False)
        self.linear: Linear | None = None
        self.place: int | None = None
        """Its number among the projections that adapters may change."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (…, K)  ->  (…, N), dtype of x"""
        if self.linear is None:
            return without_weight(x, self.out_features)
        rows = x.reshape(-1, self.in_features)
        y = self.linear(rows)
        if self.place is not None and (adapters := _adapters.get()) is not None:
            y = adapters.add(self.place, rows, y)
        y = y.view(*x.shape[:-1], self.out_features).to(x.dtype)
        return y if self.bias is None else y + self.bias


class Table(nn.Module):
    """A table of embeddings; `table` is None until it is read."""

    def __init__(self, original: nn.Embedding, scale: float) -> None:
        """`scale`: multiplies the numbers of the table."""
        super().__init__()
        self.scale = scale
        self.embedding_dim = original.embedding_dim
        self.weight = original.weight.detach()
        """On no device, for models that ask for its dtype."""
        self.table: Embedding | None = None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids: (1, T) int64  ->  (1, T, E)"""
        if self.table is None:
            rows = nn.functional.embedding(ids, stand_in(self.weight.shape))
        else:
            rows = self.table(ids.flatten()).view(*ids.shape, self.embedding_dim)
        return rows if self.scale == 1.0 else rows * self.scale


def scale_of(embedding: nn.Embedding) -> float | None:
    """Return by what an embedding multiplies its table, as Gemma's do; None if it does anything else."""
    if type(embedding) is nn.Embedding:
        return 1.0
    table, kept = stand_in(embedding.weight.shape), embedding.weight
    ids = torch.arange(min(len(table), 4))[None]
    embedding.weight = nn.Parameter(table, False)
    try:
        found = embedding(ids)
    except Exception:  # it takes more than ids, such as positions
        return None
    finally:
        embedding.weight = kept
    plain = nn.functional.embedding(ids, table)
    if found.shape != plain.shape:
        return None
    scale = float((found * plain).sum() / (plain * plain).sum())
    return scale if torch.allclose(found, plain * scale) else None


class ExpertMatrix:
    """A matrix of an expert for transformers' code, which multiplies by it: torch asks it for the products
    (https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api).
    """

    def __init__(self, linear: Linear | None, width: int) -> None:
        """`width`: its outputs; `linear` is None until its weight is read."""
        self._linear = linear
        self._width = width

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, given: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Compute `linear(x, matrix)` and `x @ matrix`. torch raises TypeError for anything else."""
        if function not in PRODUCTS or named or len(given) != 2 or not isinstance(given[1], cls):
            return NotImplemented
        x, matrix = given
        return matrix._multiply(x)

    def _multiply(self, x: torch.Tensor) -> torch.Tensor:
        """x: (T, K)  ->  (T, N), dtype of x"""
        return without_weight(x, self._width) if self._linear is None else self._linear(x).to(x.dtype)


PRODUCTS = (nn.functional.linear, torch.Tensor.matmul, torch.matmul)


class ExpertMatrices(nn.Module):
    """The matrices of a layer's experts in the place of a stack, from which transformers' code takes one at a time."""

    def __init__(self, stack: torch.Tensor, *, is_transposed: bool) -> None:
        """`is_transposed`: the stack, on no device, holds matrices by inputs."""
        super().__init__()
        self.is_transposed = is_transposed
        self._width = stack.shape[2 if is_transposed else 1]
        self.linears: list[Linear] = []
        """Empty until the weights are read."""

    def __getitem__(self, expert: int | torch.Tensor) -> ExpertMatrix:
        return ExpertMatrix(self.linears[expert] if self.linears else None, self._width)
