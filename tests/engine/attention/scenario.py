"""Steps over a paged cache, and dense float32 attention to compare with.

A `PagedWorld` holds every sequence's whole keys and values densely, hands blocks out in a random order, and turns a
list of (sequence, new tokens) into the layout of a step. The oracle is a matmul-softmax-matmul over each sequence
alone. With cache groups, blocks behind windows are handed out again.
"""

from __future__ import annotations

import random

import torch

from engine.attention.backend import AttentionShape, StepLayout, WholeSpan
from engine.attention.cache_groups import NO_BLOCK, CacheGroups


def dense_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    whole: tuple[tuple[int, int], ...] = (),
) -> torch.Tensor:
    """Attend causally from the last `len(q)` of `len(k)` positions. q: (T, H, D) k, v: (C, K, D) -> (T, H, D)

    `whole`: start and end of positions that also see those behind them, up to the end.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("thd,chd->htc", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    num_before = len(k) - len(q)
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(num_before)
    for start, end in whole:
        visible[start - num_before : end - num_before, start:end] = True
    if window:
        visible = visible.triu(len(k) - len(q) - window + 1)
    scores = scores.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks[:, None, None].expand(-1, len(q), 1)), -1)
    return torch.einsum("htc,chd->thd", scores.softmax(-1)[..., : len(k)], v)


SMALL = AttentionShape(num_heads=12, num_kv_heads=2, head_size=64, scale=0.125)
"""Six query heads share a kv head: alone they are computed in another way than in a tile."""


class PagedWorld:
    """Sequences of random keys, values and queries, per layer, and the blocks that they own."""

    def __init__(
        self,
        shape: AttentionShape | list[AttentionShape],
        *,
        num_blocks: int,
        block_size: int,
        num_layers: int = 1,
        groups: CacheGroups | None = None,
        seed: int = 0,
    ) -> None:
        """`shape`: of all layers, or of each."""
        self.shapes = shape if isinstance(shape, list) else [shape] * num_layers
        self.groups = groups or CacheGroups(block_size)
        self.random = random.Random(seed)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free = self.random.sample(range(num_blocks), num_blocks)
        self.generator = torch.Generator().manual_seed(seed)
        self.blocks: dict[int, list[int]] = {}
        self.known: dict[int, tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]] = {}
        """Queries, keys and values of each layer, (tokens, heads, size)."""
        self.computed: dict[int, int] = {}

    def add(self, sequence: int, max_tokens: int, shares: tuple[int, int] | None = None) -> None:
        """Draw a sequence; `shares` (other, blocks) makes its first blocks those of another, as a prefix hit does."""
        counts = [(shape.num_heads, shape.num_kv_heads, shape.num_kv_heads) for shape in self.shapes]
        q, k, v = (
            [
                torch.randn(max_tokens, count[part], shape.head_size, generator=self.generator)
                for shape, count in zip(self.shapes, counts, strict=True)
            ]
            for part in range(3)
        )
        self.blocks[sequence] = []
        self.computed[sequence] = 0
        if shares is not None:
            other, num_shared = shares
            num_tokens = num_shared * self.block_size
            assert num_tokens <= self.computed[other]
            for mine, theirs in zip((k, v), self.known[other][1:], strict=True):
                for layer, part in enumerate(theirs):
                    mine[layer][:num_tokens] = part[:num_tokens]
            self.blocks[sequence] = self.blocks[other][: num_shared * self.groups.count]
            self.computed[sequence] = num_tokens
        self.known[sequence] = (q, k, v)

    def drop(self, sequence: int) -> None:
        """Forget a sequence that shares nothing; its blocks are handed out again, the last freed first."""
        self.free += self.blocks.pop(sequence)
        del self.known[sequence], self.computed[sequence]

    def step(
        self,
        backend,
        plan: list[tuple[int, int]],
        sinks: torch.Tensor | None = None,
        whole: dict[int, tuple[tuple[int, int], ...]] | None = None,
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Advance (sequence, new tokens) pairs, one-token ones first; return (result, expected) of each layer, (T, H,
        D).

        `whole`: of sequences, the new positions that see each other in both directions.
        """
        whole = whole or {}
        spans = []
        block_ids, contexts, parts = [], [], []
        size, num_groups = self.block_size, self.groups.count
        slots: list[list[int]] = [[] for _ in range(num_groups)]
        for sequence, num_new in plan:
            start, end = self.computed[sequence], self.computed[sequence] + num_new
            blocks = self.blocks[sequence]
            self._release_behind_windows(blocks, start)
            while len(blocks) // num_groups * size < end:
                blocks += [self.free.pop() for _ in range(num_groups)]
            for group, own in enumerate(slots):
                own += [blocks[i // size * num_groups + group] * size + i % size for i in range(start, end)]
            first = len(slots[0]) - num_new - start
            spans += [WholeSpan(first + low, low, high - low, list(blocks)) for low, high in whole.get(sequence, ())]
            block_ids.append(list(blocks))
            contexts.append(end)
            parts.append((sequence, start, end))
            self.computed[sequence] = end
        lens = [num_new for _, num_new in plan]
        num_decodes = sum(1 for num_new in lens if num_new == 1)
        layout = StepLayout(lens, contexts, torch.tensor(slots), block_ids, num_decodes, tuple(spans))
        attention = backend.begin_step(layout)
        results = []
        for layer, shape in enumerate(self.shapes):
            q, k, v = (torch.cat([self.known[s][i][layer][start:end] for s, start, end in parts]) for i in range(3))
            expected = [
                dense_attention(
                    self.known[s][0][layer][start:end],
                    self.known[s][1][layer][:end],
                    self.known[s][2][layer][:end],
                    shape.scale,
                    shape.window,
                    shape.softcap,
                    sinks,
                    whole.get(s, ()),
                )
                for s, start, end in parts
            ]
            ours = attention.attend(layer, q, k, v) if sinks is None else attention.attend(layer, q, k, v, sinks)
            results.append((ours, torch.cat(expected)))
        return results

    def _release_behind_windows(self, blocks: list[int], start: int) -> None:
        """Hand blocks that no token from `start` on sees to whoever comes next."""
        for group, window in enumerate(self.groups.windows):
            for span in range((start - window + 1) // self.block_size if window else 0):
                place = span * self.groups.count + group
                if blocks[place] != NO_BLOCK:
                    self.free.append(blocks[place])
                    blocks[place] = NO_BLOCK
