"""Inputs of single layers: each token has one for every layer, besides the residual stream.

Source: Gemma 4's per-layer embeddings (transformers, models/gemma4, Apache 2.0). P: their size in one layer, L layers.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch.nn import functional

from engine.layers.embedding import Embedding
from engine.layers.feed_forward import activate
from engine.layers.linear import Linear
from engine.layers.norm import Norm

SHARE = sqrt(0.5)
"""Keeps the spread of the sum of two inputs of equal spread."""


class OwnInputs:
    """The inputs of all layers: rows of a table, and a normalised projection of the token's embedding.

    norm: (P,)
    """

    def __init__(self, table: Embedding, projection: Linear, norm: torch.Tensor, eps: float) -> None:
        self._table = table
        self._projection = projection
        self._norm = norm
        self._eps = eps

    def __call__(self, token_ids: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """token_ids: (T,) int64   embedded: (T, E), scaled as the layers read it  ->  (T, L * P) float32"""
        num_rows, hidden_size = embedded.shape
        size = len(self._norm)
        projected = self._projection(embedded.to(self._projection.input_dtype(num_rows))).float()
        projected = (projected * hidden_size**-0.5).view(num_rows, -1, size)
        projected = functional.rms_norm(projected, (size,), self._norm, self._eps).flatten(1)
        return (projected + self._table(token_ids).float() * sqrt(size)) * SHARE


class OwnInput:
    """The end of a layer that has an input of its own: add the output of the feed-forward, gate the input by the
    residual stream, project it to the size of the stream, normalise it.

    `part`: the layer's columns of the inputs.
    """

    def __init__(self, add: Norm, gate: Linear, up: Linear, norm: Norm, part: slice, *, is_gelu: bool) -> None:
        self._add = add
        self._gate = gate
        self._up = up
        self._norm = norm
        self._part = part
        self._is_gelu = is_gelu

    def __call__(self, hidden: torch.Tensor, delta: torch.Tensor, own_inputs: torch.Tensor) -> torch.Tensor:
        """Add `delta` to hidden in place. hidden, delta: (T, E)   own_inputs: (T, L * P)  ->  (T, E)"""
        num_rows = hidden.shape[0]
        gates = self._gate(self._add(hidden, delta, self._gate.input_dtype(num_rows)))
        dtype, factors = self._up.input_dtype(num_rows), own_inputs[:, self._part]
        gated = activate(gates, dtype, is_gelu=self._is_gelu, is_gated=False, factors=factors)
        return self._norm(self._up(gated).to(hidden.dtype), None, hidden.dtype)
