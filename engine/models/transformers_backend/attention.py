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
SERVED = {"scaling", "softcap", "sliding_window", "s_aux", "is_causal"}
"""Arguments that the description of a layer holds. Windows are taken from masks, as transformers itself does."""
KNOWN = NEUTRAL | SERVED

AttentionCall = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor, torch.Tensor, Any, dict[str, Any]], torch.Tensor]
"""(module, q, k, v, mask, other arguments) -> (T, H, D); q: (T, H, D)  k, v: (T, K, D)"""

_call: ContextVar[AttentionCall] = ContextVar("attention_call")


class UnservedAttention(Exception):
    """An attention that the paged cache cannot compute; the text completes "its attention …"."""


@dataclass(frozen=True, slots=True)
class SeenPositions:
    """What stands for a mask while a model is checked: a token sees `window` positions, its own included; 0: all.

    None: another choice of positions, which the cache does not know. Models make masks that no layer uses.
    """

    window: int | None

    def __getitem__(self, index: tuple[slice, ...]) -> SeenPositions:
        """Cut the mask to tokens that the model goes on with: here these are all."""
        return self if all(part in (slice(None), slice(0, None)) for part in index) else SeenPositions(None)


@contextmanager
def attention_by(call: AttentionCall) -> Iterator[None]:
    """Have the attention of models that run in this context computed by `call`."""
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as transformers asks for it. query: (1, H, T, D)  key, value: (1, K, T, D)  ->  (1, T, H, D)"""
    q, k, v = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    return _call.get()(module, q, k, v, attention_mask, others)[None], None


def asked_shape(
    module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, others: dict[str, Any]
) -> AttentionShape:
    """Return the attention that a layer asks for. Raises UnservedAttention."""
    refuse_unknown(others)
    asked = {name: value for name, value in others.items() if value is not None}
    if not asked.get("is_causal", getattr(module, "is_causal", True)):
        raise UnservedAttention("sees later tokens")
    if not isinstance(mask, SeenPositions):
        raise UnservedAttention("has a mask of its own")
    if mask.window is None:
        raise UnservedAttention("is neither causal nor has it a sliding window")
    if v.shape[-1] != q.shape[-1]:
        raise UnservedAttention(f"has keys of {q.shape[-1]} and values of {v.shape[-1]} numbers")
    return AttentionShape(
        num_heads=q.shape[1],
        num_kv_heads=k.shape[1],
        head_size=q.shape[-1],
        scale=float(asked.get("scaling", q.shape[-1] ** -0.5)),
        window=mask.window,
        softcap=float(asked.get("softcap", 0.0)),
        has_sinks="s_aux" in asked,
    )


def refuse_unknown(others: dict[str, Any]) -> None:
    """Raise UnservedAttention if a layer gives arguments that would change what attention computes."""
    if unknown := [name for name, value in others.items() if value is not None and name not in KNOWN]:
        raise UnservedAttention(f"takes {', '.join(sorted(unknown))}, which the paged cache does not know")


def seen_positions(*, local_size: int | None = None, **mask: Any) -> SeenPositions:
    """Make what stands for a mask, by a few rows of it. `local_size`: the window; `mask`: what masks are made of."""
    if local_size == 0:
        return SeenPositions(None)
    window = local_size or 0
    expected_from = window or 16
    sizes = {"kv_offset": 0, "allow_is_causal_skip": False, "device": "cpu", "attention_mask": None}
    for row in {0, 1, expected_from - 1, expected_from, 2 * expected_from}:
        positions = torch.arange(row + 2)
        made = sdpa_mask(**mask | sizes | {"batch_size": 1, "q_length": 1, "q_offset": row, "kv_length": row + 2})
        expected = (positions <= row) & (positions > row - (window or row + 1))
        if made is None or not torch.equal(made.flatten(), expected):
            return SeenPositions(None)
    return SeenPositions(window)


AttentionInterface.register(PAGED, attend)
AttentionInterface.register(CHECKED, attend)
AttentionMaskInterface.register(CHECKED, seen_positions)
