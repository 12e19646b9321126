"""Steps over a paged cache, and dense float32 attention to compare with.

A `PagedWorld` holds every sequence's whole keys and values densely, hands blocks out in a random order, and turns a
list of (sequence, new tokens) into the layout of a step. The oracle is a matmul-softmax-matmul over each sequence
alone.
"""

from __future__ import annotations

import random

import torch

from engine.attention.backend import AttentionShape, StepLayout


def dense_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend causally from the last `len(q)` of `len(k)` positions. q: (T, H, D) k, v: (C, K, D) -> (T, H, D)"""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("thd,chd->htc", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    if window:
        visible = visible.triu(len(k) - len(q) - window + 1)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(-1, len(q), 1)), -1)
    return torch.einsum("htc,chd->thd", scores.softmax(-1)[..., : len(k)], v)


class PagedWorld:
    """Sequences of random keys, values and queries, per layer, and the blocks that they own."""

    def __init__(
        self, shape: AttentionShape, *, num_layers: int, num_blocks: int, block_size: int, seed: int = 0
    ) -> None:
        self.shape = shape
        self.num_layers = num_layers
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free = random.Random(seed).sample(range(num_blocks), num_blocks)
        self.generator = torch.Generator().manual_seed(seed)
        self.blocks: dict[int, list[int]] = {}
        self.known: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self.computed: dict[int, int] = {}

    def add(self, sequence: int, max_tokens: int, shares: tuple[int, int] | None = None) -> None:
        """Draw a sequence; `shares` (other, blocks) makes its first blocks those of another, as a prefix hit does."""
        heads, kv_heads, size = self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_size
        q, k, v = (
            torch.randn(self.num_layers, max_tokens, count, size, generator=self.generator)
            for count in (heads, kv_heads, kv_heads)
        )
        self.blocks[sequence] = []
        self.computed[sequence] = 0
        if shares is not None:
            other, num_shared = shares
            num_tokens = num_shared * self.block_size
            assert num_tokens <= self.computed[other]
            k[:, :num_tokens] = self.known[other][1][:, :num_tokens]
            v[:, :num_tokens] = self.known[other][2][:, :num_tokens]
            self.blocks[sequence] = self.blocks[other][:num_shared]
            self.computed[sequence] = num_tokens
        self.known[sequence] = (q, k, v)

    def drop(self, sequence: int) -> None:
        """Forget a sequence that shares nothing; its blocks are handed out again, the last freed first."""
        self.free += self.blocks.pop(sequence)
        del self.known[sequence], self.computed[sequence]

    def step(
        self, backend, plan: list[tuple[int, int]], sinks: torch.Tensor | None = None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Advance (sequence, new tokens) pairs, one-token ones first; return (result, expected) of each layer, (T, H,
        D).
        """
        slots, block_ids, contexts, parts = [], [], [], []
        for sequence, num_new in plan:
            start, end = self.computed[sequence], self.computed[sequence] + num_new
            while len(self.blocks[sequence]) * self.block_size < end:
                self.blocks[sequence].append(self.free.pop())
            blocks = self.blocks[sequence]
            slots += [blocks[i // self.block_size] * self.block_size + i % self.block_size for i in range(start, end)]
            block_ids.append(list(blocks))
            contexts.append(end)
            parts.append((sequence, start, end))
            self.computed[sequence] = end
        lens = [num_new for _, num_new in plan]
        layout = StepLayout(lens, contexts, torch.tensor(slots), block_ids, sum(1 for num_new in lens if num_new == 1))
        attention = backend.begin_step(layout)
        results = []
        for layer in range(self.num_layers):
            q, k, v = (torch.cat([self.known[s][i][layer, start:end] for s, start, end in parts]) for i in range(3))
            expected = [
                dense_attention(
                    self.known[s][0][layer, start:end],
                    self.known[s][1][layer, :end],
                    self.known[s][2][layer, :end],
                    self.shape.scale,
                    self.shape.window,
                    self.shape.softcap,
                    sinks,
                )
                for s, start, end in parts
            ]
            ours = attention.attend(layer, q, k, v) if sinks is None else attention.attend(layer, q, k, v, sinks)
            results.append((ours, torch.cat(expected)))
        return results
