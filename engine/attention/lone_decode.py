"""Attention of a sequence that decodes alone, in a dense copy of its keys and values.

At one stream the operators' fixed costs are most of a step. A dense copy needs no index: two products and a softmax. The copy runs
ahead of the paged cache, which gets the new positions, all layers at once, when another kind of step comes (`write_back`). Until
then no step reads or writes the cache, since every step begins here; so what the cache lacks is never missed.
"""

from __future__ import annotations

import torch

from engine.attention.backend import AttentionShape, StepLayout

PATIENCE = 3
"""Steps alone before a copy is made: it costs about as much as that many steps gain."""
MAX_TOKENS = 4096
"""Longer contexts are attended in place; bounds the memory of the copy."""
_GROWTH = 256


class LoneDecode:
    """Follows which sequence decodes alone and for how long, and owns the dense copy, float32.

    keys: (L, B, K, D, P), values: (L, B, K, P, D), the paged cache.
    """

    def __init__(self, shape: AttentionShape, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._shape = shape
        self._paged_keys, self._paged_values = keys, values
        self._block_size = keys.shape[-1]
        self._capacity = 0
        self._block_ids: list[int] = []
        self._length = 0  # positions of the sequence after its last step alone
        self._stored = 0  # of these, positions that the paged cache has
        self._is_dense = False
        self._alone = 0

    def step(self, layout: StepLayout) -> LoneStep | None:
        """The step in the dense copy, or None if it must go through the paged cache, which is then complete."""
        context = layout.context_lens[0]
        if layout.query_lens != [1] or context > MAX_TOKENS:
            self.write_back()
            self._alone = 0
            return None
        blocks = layout.block_ids[0][: -(-context // self._block_size)]
        continues = self._alone and context == self._length + 1 and blocks[: len(self._block_ids)] == self._block_ids
        if not continues:
            self.write_back()
        self._alone = self._alone + 1 if continues else 1
        self._block_ids, self._length = blocks, context
        if self._alone <= PATIENCE:
            return None
        if not self._is_dense:
            self._read(context - 1)
        if context > self._capacity:
            self._grow(context)
        return LoneStep(self._shape, self._keys, self._values, context)

    def write_back(self) -> None:
        """Store what the dense copy has and the paged cache lacks, and drop the copy."""
        if self._is_dense and self._stored < self._length:
            positions = torch.arange(self._stored, self._length)
            blocks = torch.tensor(self._block_ids)[positions // self._block_size]
            offsets = positions % self._block_size
            keys = self._keys[..., self._stored : self._length].permute(3, 0, 1, 2)  # (T, L, K, D)
            values = self._values[:, :, self._stored : self._length].permute(2, 0, 1, 3)
            self._paged_keys[:, blocks, :, :, offsets] = keys.to(self._paged_keys.dtype)
            self._paged_values[:, blocks, :, offsets] = values.to(self._paged_values.dtype)
        self._is_dense = False

    def _read(self, num_tokens: int) -> None:
        """Copy the first `num_tokens` positions from the paged cache."""
        self._is_dense, self._stored = True, num_tokens
        if num_tokens > self._capacity:
            self._allocate(num_tokens)
        blocks = torch.tensor(self._block_ids[: -(-num_tokens // self._block_size)])
        for layer in range(len(self._paged_keys)):
            keys = self._paged_keys[layer].index_select(0, blocks).permute(1, 2, 0, 3)  # (K, D, N, P)
            values = self._paged_values[layer].index_select(0, blocks).transpose(0, 1)  # (K, N, P, D)
            self._keys[layer, :, :, :num_tokens] = keys.flatten(2)[..., :num_tokens]
            self._values[layer, :, :num_tokens] = values.flatten(1, 2)[:, :num_tokens]

    def _grow(self, num_tokens: int) -> None:
        keys, values, have = self._keys, self._values, num_tokens - 1
        self._allocate(num_tokens)
        self._keys[..., :have] = keys[..., :have]
        self._values[:, :, :have] = values[:, :, :have]

    def _allocate(self, num_tokens: int) -> None:
        layers, (_, kv_heads, size, _) = len(self._paged_keys), self._paged_keys[0].shape
        self._capacity = min(MAX_TOKENS, -(-num_tokens // _GROWTH) * _GROWTH + _GROWTH)
        self._keys = torch.empty(layers, kv_heads, size, self._capacity)  # (L, K, D, C)
        self._values = torch.empty(layers, kv_heads, self._capacity, size)  # (L, K, C, D)


class LoneStep:
    """One new token over the dense copy; its views are made once for all layers."""

    def __init__(self, shape: AttentionShape, keys: torch.Tensor, values: torch.Tensor, context: int) -> None:
        self._new_keys = keys[..., context - 1].unsqueeze(1).unbind(0)  # of each layer (1, K, D)
        self._new_values = values[:, :, context - 1].unsqueeze(1).unbind(0)
        self._keys = keys[..., :context].unbind(0)  # of each layer (K, D, C)
        self._values = values[:, :, :context].unbind(0)  # of each layer (K, C, D)
        self._grouped = (shape.num_kv_heads, shape.num_heads // shape.num_kv_heads, shape.head_size)
        self._flat = (1, shape.num_heads, shape.head_size)
        self._scale = shape.scale
        self._nothing = torch.zeros(1, 1, 1)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q: (1, H, D)  k, v: (1, K, D)  ->  (1, H, D)"""
        self._new_keys[layer].copy_(k)
        self._new_values[layer].copy_(v)
        queries = q.float().view(self._grouped)  # (K, G, D)
        scores = torch.baddbmm(self._nothing, queries, self._keys[layer], beta=0, alpha=self._scale)
        return torch.bmm(torch.softmax(scores, -1), self._values[layer]).view(self._flat).to(q.dtype)
