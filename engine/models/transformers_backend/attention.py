"""The attention function that transformers' models call, and what they ask of it.

transformers looks attention up by name and passes queries, keys and values of one layer after another. Ours hands them
to the caller's `AttentionCall`: while a model is checked, to one that notes what its layers ask for; while it serves,
to the paged cache.

Shapes: T tokens, H heads, K kv heads, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from engine.attention.backend import AttentionShape

PAGED = "lightcone"
"""Our name among transformers' attention functions. It has no masks: the cache knows what a token sees."""
CHECKED = "lightcone_checked"
"""The same, with masks that say which positions a layer's tokens see."""
NEUTRAL = {"position_ids", "use_cache", "dropout", "output_attentions", "output_router_logits", "logits_to_keep"}
"""Arguments that do not change what attention computes, as positions are in queries and keys already."""

AttentionCall = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor, torch.Tensor, Any, dict[str, Any]], torch.Tensor]
"""(module, q, k, v, mask, other arguments) -> (T, H, D); q: (T, H, D)  k, v: (T, K, D)"""

_call: ContextVar[AttentionCall] = ContextVar("attention_call")


class UnservedAttention(Exception):
    """An attention that the paged cache cannot compute; the text completes "its attention …"."""


@dataclass(frozen=True, slots=True)
class SeenPositions:
    """What stands for a mask while a model is checked: a token sees `window` positions, its own included; 0: all."""

    window: int


@contextmanager
def attention_by(call: AttentionCall) -> Iterator[None]:
    """Have the attention of models that run in this context computed by `call`."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def attend(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **others: Any
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers asks for it. query: (1, H, T, D)  key, value: (1, K, T, D)  ->  (1, T, H, D)"""
    q, k, v = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    return _call.get()(module, q, k, v, mask, others)[None], None


def asked_shape(
    module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, others: dict[str, Any]
) -> AttentionShape:
    """Return the attention that a layer asks for. Raises UnservedAttention."""
    others = {name: value for name, value in others.items() if value is not None and name not in NEUTRAL}
    scale, softcap = others.pop("scaling", q.shape[-1] ** -0.5), others.pop("softcap", 0.0)
    others.pop("sliding_window", None)  # the mask says it too, and is what transformers' own attention reads
    has_sinks = others.pop("s_aux", None) is not None
    if not others.pop("is_causal", getattr(module, "is_causal", True)):
        raise UnservedAttention("sees later tokens")
    if others:
        raise UnservedAttention(f"takes {', '.join(sorted(others))}, which the paged cache does not know")
    if not isinstance(mask, SeenPositions):
        raise UnservedAttention("has a mask of its own")
    if v.shape[-1] != q.shape[-1]:
        raise UnservedAttention(f"has keys of {q.shape[-1]} and values of {v.shape[-1]} numbers (latent attention)")
    return AttentionShape(q.shape[1], k.shape[1], q.shape[-1], float(scale), mask.window, float(softcap), has_sinks)


def seen_positions(*, local_size: int | None = None, **mask: Any) -> SeenPositions:
    """Make what stands for a mask. Raises UnservedAttention unless it is causal, with a window or without.

    `mask`: what transformers makes masks of. A few rows of the mask are made and compared.
    """
    window = local_size or 0
    expected_from = window or 16
    sizes = {"kv_offset": 0, "allow_is_causal_skip": False, "device": "cpu", "attention_mask": None}
    for row in {0, 1, expected_from - 1, expected_from, 2 * expected_from}:
        positions = torch.arange(row + 2)
        made = sdpa_mask(**mask | sizes | {"batch_size": 1, "q_length": 1, "q_offset": row, "kv_length": row + 2})
        expected = (positions <= row) & (positions > row - (window or row + 1))
        if made is None or not torch.equal(made.flatten(), expected):
            raise UnservedAttention("is neither causal nor has it a sliding window")
    return SeenPositions(window)


AttentionInterface.register(PAGED, attend)
AttentionInterface.register(CHECKED, attend)
AttentionMaskInterface.register(CHECKED, seen_positions)
