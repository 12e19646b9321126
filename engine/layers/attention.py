"""The attention layer: fused projection, rotation, StepAttention over the paged cache, output projection."""

from __future__ import annotations

import torch

from engine.attention.backend import AttentionShape, StepAttention
from engine.layers.adapters import StepAdapters
from engine.layers.linear import Linear
from engine.layers.norm import HeadsNorm
from engine.layers.rotary import rotate


class Attention:
    """The attention of one layer.

    `qkv` stacks the rows of queries, and of keys and values if the layer has its own. `layer` is the index of the
    layer's cache, `rotation` that of its rotation, `query_rotation` that of queries if they have another: the same
    with magnitudes that grow. `sinks`: (H,) float32, where the layer has them.
    """

    def __init__(
        self,
        layer: int,
        shape: AttentionShape,
        qkv: Linear,
        output: Linear,
        rotation: int = 0,
        heads_norm: HeadsNorm | None = None,
        query_rotation: int | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self._layer = layer
        self._rotation = rotation
        self._query_rotation = query_rotation
        self._heads_norm = heads_norm
        self._sinks = sinks
        self._num_heads = shape.num_heads
        num_keys = shape.num_kv_heads if shape.has_keys else 0
        self._has_keys = shape.has_keys
        self._num_pairs = shape.head_size // 2
        self._num_rotated = shape.num_heads + num_keys
        self._heads_shape = (-1, shape.num_heads + 2 * num_keys, shape.head_size)
        self._qkv = qkv
        self._output = output

    def __call__(
        self,
        x: torch.Tensor,
        rotations: torch.Tensor,
        attention: StepAttention,
        adapters: StepAdapters | None = None,
    ) -> torch.Tensor:
        """x: (T, E)   rotations: (N, T, 1, D/2)  ->  (T, E). q, k, v reach the backend as views of one buffer.

        D is the size of the largest heads of the model.
        """
        heads = self._qkv(x, adapters).view(self._heads_shape)
        rotation = rotations[self._rotation, :, :, : self._num_pairs]
        if self._heads_norm is not None:
            heads = heads.float() if heads.is_cpu else heads
            self._heads_norm(heads)
        for_queries = None
        if self._query_rotation is not None:
            for_queries = rotations[self._query_rotation, :, :, : self._num_pairs]
        if not heads.is_cpu:
            if for_queries is not None:
                heads[:, : self._num_heads] *= for_queries[:, :, :1].abs() / rotation[:, :, :1].abs()
            return self._output(attention.attend_heads(self._layer, heads, rotation, self._sinks).flatten(1), adapters)
        if for_queries is None:
            heads = rotate(heads, self._num_rotated, rotation)
        else:
            heads = rotate(heads, self._num_heads, for_queries)
            heads = rotate(heads, self._num_rotated - self._num_heads, rotation, self._num_heads)
        q, k, v = (
            heads[:, : self._num_heads],
            heads[:, self._num_heads : self._num_rotated] if self._has_keys else None,
            heads[:, self._num_rotated :] if self._has_keys else None,
        )
        return self._output(attention.attend(self._layer, q, k, v, self._sinks).flatten(1), adapters)

    def input_dtype(self, num_rows: int) -> torch.dtype:
        """Return the dtype in which the projection takes so many rows."""
        return self._qkv.input_dtype(num_rows)
