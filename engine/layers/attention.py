"""The attention layer: fused projection, rotation, StepAttention over the paged cache, output projection."""

from __future__ import annotations

import torch

from engine.attention.backend import AttentionShape, StepAttention
from engine.layers.linear import Linear
from engine.layers.rotary import rotate


class Attention:
    """The attention of one layer.

    `qkv` stacks the rows of queries, keys and values; `layer` is the index of the layer's cache.
    """

    def __init__(self, layer: int, shape: AttentionShape, qkv: Linear, output: Linear) -> None:
        self._layer = layer
        self._num_heads = shape.num_heads
        self._num_rotated = shape.num_heads + shape.num_kv_heads
        self._heads_shape = (-1, shape.num_heads + 2 * shape.num_kv_heads, shape.head_size)
        self._qkv = qkv
        self._output = output

    def __call__(self, x: torch.Tensor, rotations: torch.Tensor, attention: StepAttention) -> torch.Tensor:
        """x: (T, E)   rotations: (T, 1, D/2)  ->  (T, E). q, k, v reach the backend as views of one buffer."""
        heads = self._qkv(x).view(self._heads_shape)
        if not heads.is_cpu:
            return self._output(attention.attend_heads(self._layer, heads, rotations).flatten(1))
        heads = rotate(heads, self._num_rotated, rotations)
        q, k, v = (
            heads[:, : self._num_heads],
            heads[:, self._num_heads : self._num_rotated],
            heads[:, self._num_rotated :],
        )
        return self._output(attention.attend(self._layer, q, k, v).flatten(1))

    def input_dtype(self, num_rows: int) -> torch.dtype:
        """Return the dtype in which the projection takes so many rows."""
        return self._qkv.input_dtype(num_rows)
