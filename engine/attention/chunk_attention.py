"""Attention of chunks of several tokens on CUDA: the implementations, and the choice of the first that works here.

Version numbers do not tell whether a build of xformers loads beside this torch and whether a kernel supports the device
and the dtype, so each is tried once at start. Results are compared with plain products, because a mask with another
alignment raises no error.

Shapes: T new tokens of all chunks, C positions of all contexts, H heads, K kv heads, D head size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from engine.api.errors import ModelLoadError
from engine.attention.backend import AttentionShape
from engine.kernels.cpu.transfer import upload

logger = logging.getLogger(__name__)

TRIED_QUERIES, TRIED_CONTEXTS = [3, 40], [300, 40]
"""One chunk with a long context before it, one with none."""
TOLERANCES = {torch.float32: 0.01, torch.bfloat16: 0.05}
"""Absolute, for standard normal inputs: on a GPU float32 may have 10 bits, and a wrong mask is off by 1 or more."""
REASON_CHARS = 300

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""q: (T, H, D)  k, v: (C, K, D), contexts one after another  ->  (T, H, D)"""


ChunkWay = Callable[[list[int], list[int], AttentionShape, torch.device], Attend]
"""Prepares the attention of chunks for all layers, from the lengths of their queries and contexts. A chunk's tokens are
the last of its context; attention is causal."""


def with_xformers(
    query_lens: list[int], context_lens: list[int], shape: AttentionShape, device: torch.device
) -> Attend:
    """Use the operator that xformers chooses (xformers.ops.fmha, BSD licence, read at 0.0.35).

    If its extension does not load, it warns on import and refuses every input on CUDA.
    """
    from xformers.ops import fmha

    masks = fmha.attn_bias
    if shape.window:
        plain = masks.BlockDiagonalMask.from_seqlens(query_lens, context_lens, device=device)
        mask = plain.make_local_attention_from_bottomright(shape.window)
    else:
        mask = masks.BlockDiagonalCausalFromBottomRightMask.from_seqlens(query_lens, context_lens, device=device)
    group = shape.num_heads // shape.num_kv_heads

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend; query heads share a key by a zero stride, without a copy."""
        q = q.unflatten(1, (shape.num_kv_heads, group))[None]
        k, v = (part[None, :, :, None].expand(-1, -1, -1, group, -1) for part in (k, v))
        out = fmha.memory_efficient_attention_forward(q, k, v, attn_bias=mask, scale=shape.scale)
        return out.reshape(-1, shape.num_heads, shape.head_size)

    return attend


def with_flash(query_lens: list[int], context_lens: list[int], shape: AttentionShape, device: torch.device) -> Attend:
    """Use torch's flash attention for sequences of different lengths, which takes half precision only."""
    from torch.nn.attention.varlen import varlen_attn

    ends = [upload([0, *accumulate(lengths)], torch.int32, device) for lengths in (query_lens, context_lens)]
    longest = max(query_lens), max(context_lens)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attend; the window excludes later tokens, which makes this function causal."""
        out = varlen_attn(
            q, k, v, *ends, *longest, scale=shape.scale, window_size=(shape.window - 1, 0), enable_gqa=True
        )
        assert isinstance(out, torch.Tensor)
        return out

    return attend


def with_sdpa(query_lens: list[int], context_lens: list[int], shape: AttentionShape, device: torch.device) -> Attend:
    """Use torch's `scaled_dot_product_attention`, chunk by chunk, with repeated keys: few of its kernels share them."""
    masks = [
        visible(query_len, context_len, shape.window).to(device)
        if shape.window
        else causal_lower_right(query_len, context_len)
        for query_len, context_len in zip(query_lens, context_lens, strict=True)
    ]
    group = shape.num_heads // shape.num_kv_heads

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        chunks = zip(q.split(query_lens), k.split(context_lens), v.split(context_lens), masks, strict=True)
        return torch.cat([attend_one(*chunk) for chunk in chunks])

    def attend_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.transpose(0, 1)[None] for part in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        )
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=shape.scale)[0].transpose(0, 1)

    return attend


WAYS: dict[str, ChunkWay] = {
    "xformers": with_xformers,
    "torch's flash attention": with_flash,
    "torch's scaled_dot_product_attention": with_sdpa,
}
"""By name, best first."""


def choose_chunk_way(shapes: Sequence[AttentionShape], dtype: torch.dtype, device: torch.device) -> ChunkWay:
    """Return the first way that computes these layers in `dtype` on `device`, and log why those before it failed.

    Raises ModelLoadError if none does.
    """
    refusals = []
    for name, way in WAYS.items():
        plain = dict.fromkeys(replace(shape, softcap=0.0) for shape in shapes)
        problem = next(filter(None, (problem_of(way, shape, dtype, device) for shape in plain)), "")
        if not problem:
            logger.info("attention of prompts: %s%s", name, "".join(f"; not {refusal}" for refusal in refusals))
            return way
        refusals.append(f"{name}: {problem}")
    raise ModelLoadError(f"no way to compute attention of prompts works on {device} in {dtype}: {'; '.join(refusals)}")


def problem_of(way: ChunkWay, shape: AttentionShape, dtype: torch.dtype, device: torch.device) -> str:
    """Return on one line why a way cannot be used, or '' if it can."""
    num_heads, num_rotated = shape.num_heads, shape.num_heads + shape.num_kv_heads
    heads = torch.randn(
        sum(TRIED_CONTEXTS),
        num_rotated + shape.num_kv_heads,
        shape.head_size,
        generator=torch.Generator().manual_seed(0),
    )

    def parts_of(heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split queries, keys and values off one buffer, as layers pass them."""
        return heads[: sum(TRIED_QUERIES), :num_heads], heads[:, num_heads:num_rotated], heads[:, num_rotated:]

    try:
        found = way(TRIED_QUERIES, TRIED_CONTEXTS, shape, device)(*parts_of(heads.to(device, dtype))).float().cpu()
    except Exception as error:  # absent package, missing kernel, failed launch: each library raises other types
        return " ".join(f"{type(error).__name__}: {error}".split())[:REASON_CHARS]
    expected = attend_plainly(*parts_of(heads.to(dtype).float()), shape)
    return "" if torch.allclose(found, expected, rtol=0, atol=TOLERANCES[dtype]) else "its results are wrong"


def visible(num_queries: int, num_keys: int, window: int) -> torch.Tensor:
    """Return which keys each query sees, the last ones their own: (queries, keys) bool. `window` 0: all before it."""
    seen = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)
    return seen.triu(num_keys - num_queries - window + 1) if window else seen


def attend_plainly(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    """Compute the attention of the tried chunks with plain products and a mask, as the reference."""
    group = q.shape[1] // k.shape[1]
    parts = []
    chunks = zip(
        q.split(TRIED_QUERIES),
        *(part.repeat_interleave(group, 1).split(TRIED_CONTEXTS) for part in (k, v)),
        strict=True,
    )
    for queries, keys, values in chunks:
        scores = torch.einsum("thd,chd->htc", queries, keys) * shape.scale
        is_visible = visible(len(queries), len(keys), shape.window)
        parts.append(torch.einsum("htc,chd->thd", scores.masked_fill(~is_visible, float("-inf")).softmax(-1), values))
    return torch.cat(parts)
