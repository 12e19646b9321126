"""The interface between attention layers and the paged cache: write new keys and values, attend over the context.

    backend = make_backend(device, shapes, num_blocks=..., ...)   # once, by the runner
    attention = backend.begin_step(layout)                                      # each step
    out = attention.attend(layer, q, k, v)                                      # each layer of the step

Shapes: T tokens in the step, S sequences, G cache groups (cache_groups.py), H heads, K kv heads, D head size, B blocks,
P tokens per block.

A new backend implements `AttentionBackend` and `StepAttention` and gets a branch in `make_backend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from engine.api.errors import ModelLoadError
from engine.attention.cache_groups import CacheGroups

KV_CACHES = ("auto", "fp8")
FP8_CAPABILITY = (8, 9)
"""The least that converts eight-bit floats: Ada, Hopper and later."""
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The attention of a layer. Heads and their sizes may differ between the layers of a model on a CPU only."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    """Multiplies q·k."""
    window: int = 0
    """A token sees so many positions, its own included; 0: all."""
    softcap: float = 0.0
    """Scores become cap * tanh(score / cap); 0: no cap."""
    has_sinks: bool = False
    """Each head has a score that takes probability and has no value."""
    source: int | None = None
    """The index of the earlier layer whose keys and values this one reads; None: it has its own."""

    @property
    def has_keys(self) -> bool:
        return self.source is None


class WholeSpan(NamedTuple):
    """Adjacent tokens of one sequence that see each other in both directions, all new in the step."""

    first: int
    """The row of the first of `length` tokens."""
    start: int
    """Its position."""
    length: int
    block_ids: list[int]
    """As in StepLayout."""


@dataclass(frozen=True, slots=True)
class StepLayout:
    """The positions of one step's tokens in batch and cache. Tokens of one sequence are adjacent.

    query_lens: new tokens per sequence (S,)    context_lens: tokens in cache after the step, new ones included (S,)
    slots: (G, T) int64, flat cache slot (block * P + offset) of each new token in each cache group
    block_ids: per sequence, the ids of the blocks that hold its context, span by span, one of each group
    Sequences with one new token come first: decodes are `[:num_decodes]`.
    """

    query_lens: list[int]
    context_lens: list[int]
    slots: torch.Tensor
    block_ids: list[list[int]]
    num_decodes: int
    whole_spans: tuple[WholeSpan, ...] = ()


class StepAttention(Protocol):
    """Attention bound to the layout and the cache of one step."""

    def attend(
        self,
        layer: int,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Store k, v and attend causally. q and k are already rotated.

        q: (T, H, D)  k, v: (T, K, D), or None if the layer reads those of another  ->  (T, H, D), dtype of q
        sinks: (H,) float32, a score of each head that takes probability and has no value
        """

    def attend_heads(
        self, layer: int, heads: torch.Tensor, rotations: torch.Tensor, sinks: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rotate queries and keys, then do as `attend`. Only on CUDA, where rotating and storing are one kernel.

        heads: (T, H + 2K, D), queries, keys, values; changed in place   rotations: (T, 1, D/2) complex64  ->  (T, H, D)
        """


class AttentionBackend(Protocol):
    """The owner of the cache tensors of all layers."""

    def begin_step(self, layout: StepLayout) -> StepAttention:
        """Prepare index tensors once for all layers of a step."""


def cache_dtype(weights: str, kv_cache: str = "auto", device: torch.device = CPU) -> torch.dtype:
    """Return float32 for float32 weights; else bfloat16, which halves the memory and, on a CPU, the time of long
    contexts.

    "fp8" halves the memory again. Raises ModelLoadError on a device that does not support it.
    """
    if kv_cache not in KV_CACHES:
        raise ModelLoadError(f"kv_cache must be one of {', '.join(KV_CACHES)}, got {kv_cache!r}")
    if kv_cache == "auto":
        return torch.float32 if weights == "float32" else torch.bfloat16
    if device.type != "cuda":
        raise ModelLoadError(f"kv_cache 'fp8' needs a CUDA device, got {device.type!r}: use kv_cache 'auto'")
    capability = torch.cuda.get_device_capability(device)
    if capability < FP8_CAPABILITY:
        wanted, found = (".".join(map(str, version)) for version in (FP8_CAPABILITY, capability))
        raise ModelLoadError(
            f"kv_cache 'fp8' needs a device of compute capability {wanted}, this one has {found}: use kv_cache 'auto'"
        )
    return torch.float8_e4m3fn


def kv_sizes(shapes: Sequence[AttentionShape], block_size: int, device: torch.device) -> list[int]:
    """Return how many numbers the keys of a position have in the cache of each layer."""
    if device.type != "cpu":
        return [shape.num_kv_heads * shape.head_size for shape in shapes]
    from engine.kernels.cpu.operators import cached_size

    return [shape.num_kv_heads * cached_size(shape.head_size, block_size) for shape in shapes]


def make_backend(
    device: torch.device,
    shapes: Sequence[AttentionShape],
    *,
    num_blocks: int,
    groups: CacheGroups,
    dtype: torch.dtype,
    batch_invariant: bool,
) -> AttentionBackend:
    """Build the backend and its cache for layers of these shapes. Backends of other devices are not imported."""
    sizes = {"num_blocks": num_blocks, "block_size": groups.block_size, "groups": groups}

    if device.type == "cpu":
        from engine.attention.torch_cpu import TorchCpuAttention

        return TorchCpuAttention(shapes, dtype=dtype, batch_invariant=batch_invariant, **sizes)
    from engine.attention.xformers_paged import XformersAttention

    return XformersAttention(shapes, device=device, dtype=dtype, batch_invariant=batch_invariant, **sizes)
