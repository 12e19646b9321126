"""The interface between attention layers and the paged cache: write new keys and values, attend over the context.

Shapes: T tokens in the step, S sequences, H heads, K kv heads, D head size, B blocks, P tokens per block.
Implemented by torch_cpu.py and xformers_paged.py; used by execution/runner.py, which builds one `StepAttention` per
step:

    backend = make_backend(device, shape, num_layers=..., num_blocks=..., ...)   # once (select.py)
    attention = backend.begin_step(layout)                                      # each step
    out = attention.attend(layer, q, k, v)                                      # each layer of the step

A new backend implements `AttentionBackend` and `StepAttention` and gets a branch in `make_backend`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The sizes of a model's attention, the same in every layer. `scale` multiplies q·k."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float


@dataclass(frozen=True, slots=True)
class StepLayout:
    """The positions of one step's tokens in batch and cache.

    Tokens of one sequence are adjacent; sequences keep the plan's order.

    query_lens: new tokens per sequence (S,)    context_lens: tokens in cache after the step, new ones included (S,)
    slots: (T,) int64, flat cache slot (block * P + offset) of each new token
    block_ids: per sequence, the ids of the blocks that hold its context
    Sequences with one new token come first: decodes are `[:num_decodes]`.
    """

    query_lens: list[int]
    context_lens: list[int]
    slots: torch.Tensor
    block_ids: list[list[int]]
    num_decodes: int


class StepAttention(Protocol):
    """Attention bound to the layout and the cache of one step."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Store k, v and attend causally.

        q: (T, H, D)  k, v: (T, K, D)  ->  (T, H, D), dtype of q. q and k are already rotated.
        """
        ...

    def attend_heads(self, layer: int, heads: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        """Rotate queries and keys, then do as `attend`. Only on CUDA, where rotating and storing are one kernel.

        heads: (T, H + 2K, D), queries, keys, values; changed in place   rotations: (T, 1, D/2) complex64  ->  (T, H, D)
        """
        ...


class AttentionBackend(Protocol):
    """The owner of the cache tensors of all layers."""

    def begin_step(self, layout: StepLayout) -> StepAttention:
        """Prepare index tensors once for all layers of a step."""
        ...
