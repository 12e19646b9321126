"""Attention of tokens that see each other in both directions, as those of an image do in Gemma 3.

Kernels compute every row as if it saw nothing behind it, and store all keys of the step. These rows are then computed
anew over their span and what lies before it, by torch's `scaled_dot_product_attention`. A window ends before a row as
always; it does not reach behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.backend import AttentionShape, WholeSpan
from engine.attention.cache_groups import CacheGroups
from engine.kernels.cpu.transfer import upload

Gather = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Returns keys and values (N, K, D) of slots (N,) int64 of a layer."""


class BothWays:
    """The rows of a step in such spans."""

    def __init__(self, spans: Sequence[WholeSpan], groups: CacheGroups, device: torch.device) -> None:
        self._spans = spans
        self._groups = groups
        self._device = device
        self._slots: dict[tuple[int, int], torch.Tensor] = {}
        """By group and number of the span: those of the positions that its rows see."""
        self._masks: dict[tuple[int, int], torch.Tensor | None] = {}
        """By window and number of the span."""

    def attend(self, group: int, shape: AttentionShape, gather: Gather, q: torch.Tensor, out: torch.Tensor) -> None:
        """Compute the rows of the spans into `out`. q, out: (T, H, D)"""
        assert not shape.softcap, "no model with soft caps has such spans"
        for number, span in enumerate(self._spans):
            rows = slice(span.first, span.first + span.length)
            keys, values = gather(self._slots_of(group, number, shape.window))
            found = scaled_dot_product_attention(
                q[rows].transpose(0, 1)[None],
                keys.to(q.dtype).transpose(0, 1)[None],
                values.to(q.dtype).transpose(0, 1)[None],
                attn_mask=self._mask_of(number, shape.window),
                scale=shape.scale,
                enable_gqa=shape.num_heads != shape.num_kv_heads,
            )
            out[rows] = found[0].transpose(0, 1)

    def _slots_of(self, group: int, number: int, window: int) -> torch.Tensor:
        if (group, number) not in self._slots:
            span, size = self._spans[number], self._groups.block_size
            positions = np.arange(first_seen(span, window), span.start + span.length)
            table = np.asarray(span.block_ids).reshape(-1, self._groups.count)[:, group]
            slots = table[positions // size] * size + positions % size
            self._slots[group, number] = upload(slots, torch.int64, self._device)
        return self._slots[group, number]

    def _mask_of(self, number: int, window: int) -> torch.Tensor | None:
        """Return which positions each row sees (rows, positions) bool; None: all."""
        span = self._spans[number]
        if not window or span.start + span.length <= window:
            return None
        if (window, number) not in self._masks:
            rows = torch.arange(span.start, span.start + span.length)[:, None]
            positions = torch.arange(first_seen(span, window), span.start + span.length)
            self._masks[window, number] = (positions > rows - window).to(self._device)
        return self._masks[window, number]


def first_seen(span: WholeSpan, window: int) -> int:
    """Return the first position that a row of a span sees."""
    return max(0, span.start + 1 - window) if window else 0
