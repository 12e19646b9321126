"""What replaces the large matrices of a transformers model: our quantised products, tables and experts.

A part stands in the model before its weights are read: then it computes something that depends on its inputs row by
row, which is all that a check of the model's layers needs.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from engine.layers.embedding import Embedding
from engine.layers.linear import Linear


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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (…, K)  ->  (…, N), dtype of x"""
        if self.linear is None:
            return without_weight(x, self.out_features)
        y = self.linear(x.reshape(-1, self.in_features)).view(*x.shape[:-1], self.out_features).to(x.dtype)
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


class Experts(nn.Module):
    """The experts of a layer, each of them two products.

    `original` computes the activation and holds the biases; its matrices are not kept.
    """

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original
        self.ups: list[Linear] = []
        self.downs: list[Linear] = []
        """Empty until the weights are read."""

    def put(self, name: str, products: list[Linear]) -> None:
        """Store the products of all experts. `name`: of the stack of matrices in the original."""
        if name == "down_proj":
            self.downs = products
        else:
            self.ups = products

    def forward(self, hidden: torch.Tensor, expert_of: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """hidden: (T, E)  expert_of: (T, k) int64  weights: (T, k)  ->  (T, E)"""
        if not self.ups:
            return hidden * weights.sum(-1, keepdim=True).to(hidden.dtype)
        original = self.original
        up_name = "gate_up_proj" if original.has_gate else "up_proj"
        outputs = torch.zeros(*expert_of.shape, hidden.shape[1], dtype=hidden.dtype, device=hidden.device)
        for expert in expert_of.unique().tolist():
            rows, places = (expert_of == expert).nonzero(as_tuple=True)
            inner = self._product(self.ups, up_name, expert, hidden[rows])
            inner = original._apply_gate(inner) if original.has_gate else original.act_fn(inner)
            outputs[rows, places] = self._product(self.downs, "down_proj", expert, inner)
        return (outputs * weights[..., None].to(hidden.dtype)).sum(1)

    def _product(self, products: list[Linear], name: str, expert: int, x: torch.Tensor) -> torch.Tensor:
        y = products[expert](x).to(x.dtype)
        return y + getattr(self.original, f"{name}_bias")[expert] if self.original.has_bias else y
