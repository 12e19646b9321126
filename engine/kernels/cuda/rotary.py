"""Rotate queries and keys, and write keys and values into the cache, in one pass over the fused projection's output."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

FP8_LEAST_POWER = tl.constexpr(2.0**-6)
FP8_MAX = tl.constexpr(448.0)
FP8_SHIFT = tl.constexpr(1.5 * 2.0**20)


@triton.jit
def _store(place, x, inside):
    # Eight-bit floats (e4m3) saturate. The number is first rounded to three bits after the leading one (to even, by
    # adding and subtracting a large float), so that the conversion is exact: Triton's interpreter would round wrongly,
    # and a device need not saturate.
    if place.dtype.element_ty == tl.float8e4nv:
        wide = tl.minimum(tl.maximum(x.to(tl.float32), -FP8_MAX), FP8_MAX)
        power = (wide.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
        shift = tl.maximum(power, FP8_LEAST_POWER) * FP8_SHIFT
        x = (wide + shift) - shift
    tl.store(place, x.to(place.dtype.element_ty), mask=inside)


@triton.jit
def _rotate_and_store(
    heads,
    rotations,
    slots,
    keys,
    values,
    num_heads,
    kv_heads,
    SIZE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pairs = tl.arange(0, BLOCK)
    inside = pairs < HALF
    place = heads + (token * (num_heads + 2 * kv_heads) + head) * SIZE + 2 * pairs
    x = tl.load(place, mask=inside, other=0.0)
    y = tl.load(place + 1, mask=inside, other=0.0)
    if head < num_heads + kv_heads:
        cosine = tl.load(rotations + token * SIZE + 2 * pairs, mask=inside, other=0.0)
        sine = tl.load(rotations + token * SIZE + 2 * pairs + 1, mask=inside, other=0.0)
        left, right = x.to(tl.float32), y.to(tl.float32)
        x = (left * cosine - right * sine).to(x.dtype)
        y = (left * sine + right * cosine).to(y.dtype)
        tl.store(place, x, mask=inside)
        tl.store(place + 1, y, mask=inside)
    slot = tl.load(slots + token)
    if head >= num_heads + kv_heads:
        there = values + (slot * kv_heads + head - num_heads - kv_heads) * SIZE + 2 * pairs
        _store(there, x, inside)
        _store(there + 1, y, inside)
    elif head >= num_heads:
        there = keys + (slot * kv_heads + head - num_heads) * SIZE + 2 * pairs
        _store(there, x, inside)
        _store(there + 1, y, inside)


def rotate_and_store(
    heads: torch.Tensor,
    rotations: torch.Tensor,
    slots: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    num_heads: int,
) -> None:
    """Rotate adjacent pairs of queries and keys in place; write keys and values to their slots.

    heads: (T, H + 2K, D) contiguous: queries, keys, values   rotations: (T, 1, D/2) complex64   slots: (T,) int64
    keys, values: (slots of the cache, K, D) contiguous, in any float dtype; in float8_e4m3fn they saturate
    """
    num_tokens, _, size = heads.shape
    if not num_tokens:
        return
    turns = torch.view_as_real(rotations)
    half = size // 2
    _rotate_and_store[(num_tokens, heads.shape[1])](
        heads,
        turns,
        slots,
        keys,
        values,
        num_heads,
        keys.shape[1],
        SIZE=size,
        HALF=half,
        BLOCK=triton.next_power_of_2(half),
        num_warps=1,
    )
