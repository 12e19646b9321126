"""An oracle for StepAttention: plain causal attention in float32 over keys and values kept in lists, no paging."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.attention.backend import AttentionShape


class DenseHistory:
    """Keys and values of some sequences, per layer. Steps are opened on it as a backend opens them on its cache."""

    def __init__(self, shapes: Sequence[AttentionShape], num_sequences: int = 1) -> None:
        self.shapes = shapes
        self.caches: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = [{} for _ in range(num_sequences)]

    def step(self, query_lens: list[int]) -> DenseStep:
        """Open a step with `query_lens[i]` new tokens for sequence i."""
        return DenseStep(self, query_lens)


class DenseStep:
    """StepAttention over a DenseHistory."""

    def __init__(self, history: DenseHistory, query_lens: list[int]) -> None:
        self._history = history
        self._query_lens = query_lens

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        outputs, start = [], 0
        for cache, length in zip(self._history.caches, self._query_lens, strict=True):
            new = slice(start, start + length)
            shape = self._history.shapes[layer]
            if k is not None and v is not None:
                old_k, old_v = cache.get(layer, (k[:0], v[:0]))
                cache[layer] = (torch.cat((old_k, k[new])), torch.cat((old_v, v[new])))
            kept = cache[layer if shape.source is None else shape.source]
            outputs.append(self._attend_one(shape, q[new], *kept, sinks))
            start += length
        return torch.cat(outputs)

    def _attend_one(
        self, shape: AttentionShape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> torch.Tensor:
        """q: (T, H, D)   k, v: (C, K, D), the last T of them new  ->  (T, H, D)."""
        group = shape.num_heads // shape.num_kv_heads
        keys, values = (x.float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v))
        scores = q.float().transpose(0, 1) @ keys.transpose(1, 2) * shape.scale
        length, context = q.shape[0], k.shape[0]
        if shape.softcap:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        unseen = torch.ones(length, context, dtype=torch.bool).triu(context - length + 1)
        if shape.window:
            unseen |= torch.ones(length, context, dtype=torch.bool).tril(context - length - shape.window)
        scores = scores.masked_fill(unseen, -torch.inf)
        if sinks is not None:
            scores = torch.cat((scores, sinks[:, None, None].expand(-1, length, 1)), dim=-1)
        return (scores.softmax(-1)[..., :context] @ values).transpose(0, 1).to(q.dtype)
