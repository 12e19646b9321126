"""Kernels over rows: norms of the residual stream after an addition, norms of queries and keys, activations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024
GELU, CUBE = tl.constexpr(1.5957691216057308), tl.constexpr(0.044715)
"""gelu(x) is x * sigmoid(GELU * x * (1 + CUBE * x^2))."""


@triton.jit
def _add_normalize(
    hidden,
    delta,
    weight,
    bias,
    out,
    size,
    eps,
    scale,
    HAS_DELTA: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    x = tl.load(hidden + row * size + columns, mask=inside, other=0.0)
    if HAS_DELTA:
        # The sum is rounded to the stream's dtype before it is normalised, as by two separate operators.
        added = tl.load(delta + row * size + columns, mask=inside, other=0.0).to(tl.float32) * scale
        x = (x.to(tl.float32) + added).to(x.dtype)
        tl.store(hidden + row * size + columns, x, mask=inside)
    wide = x.to(tl.float32)
    if HAS_BIAS:
        wide = tl.where(inside, wide - tl.sum(wide, axis=0) / size, 0.0)
    if HAS_WEIGHT:
        factor = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / size + eps)
        wide = wide * factor * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        wide += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + columns, wide.to(out.dtype.element_ty), mask=inside)


def add_normalize(
    hidden: torch.Tensor,
    delta: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    scale: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Add scale * delta to hidden in place and return the normalised rows in `dtype`.

    hidden, delta: (T, E) contiguous   weight, bias: (E,)

    With a bias the norm is a LayerNorm; without a weight the rows are returned as they are.
    """
    num_rows, size = hidden.shape
    out = torch.empty(num_rows, size, dtype=dtype, device=hidden.device)
    block = triton.next_power_of_2(size)
    warps = min(max(block // 512, 1), 16)
    if num_rows:
        _add_normalize[(num_rows,)](
            hidden,
            hidden if delta is None else delta.contiguous(),
            hidden if weight is None else weight,
            hidden if bias is None else bias,
            out,
            size,
            eps,
            scale,
            HAS_DELTA=delta is not None,
            HAS_WEIGHT=weight is not None,
            HAS_BIAS=bias is not None,
            BLOCK=block,
            num_warps=warps,
        )
    return out


@triton.jit
def _normalize_heads(
    heads, query_weight, key_weight, row_size, num_queries, query_size, key_size, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    is_query = group < num_queries
    size = tl.where(is_query, query_size, key_size)
    start = tl.where(is_query, group * query_size, num_queries * query_size + (group - num_queries) * key_size)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    place = heads + row * row_size + start + columns
    x = tl.load(place, mask=inside, other=0.0)
    wide = x.to(tl.float32)
    weight = tl.load(tl.where(is_query, query_weight + columns, key_weight + columns), mask=inside, other=0.0)
    factor = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / size + eps)
    tl.store(place, (wide * factor * weight.to(tl.float32)).to(x.dtype), mask=inside)


def normalize_heads(
    heads: torch.Tensor, queries: tuple[int, torch.Tensor], keys: tuple[int, torch.Tensor], eps: float
) -> None:
    """Normalise queries and keys in place. heads: (T, H, D) contiguous: queries, then keys, then others.

    queries, keys: number of groups with one norm each, weight of a group
    """
    num_rows = heads.shape[0]
    (num_queries, query_weight), (num_keys, key_weight) = queries, keys
    sizes = len(query_weight), len(key_weight)
    if num_rows:
        block = triton.next_power_of_2(max(sizes))
        _normalize_heads[(num_rows, num_queries + num_keys)](
            heads,
            query_weight,
            key_weight,
            heads[0].numel(),
            num_queries,
            *sizes,
            eps,
            BLOCK=block,
            num_warps=min(max(block // 512, 1), 16),
        )


@triton.jit
def _gate(x, out, size, width, IS_GELU: tl.constexpr, IS_GATED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(x + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    power = gate * (GELU + GELU * CUBE * gate * gate) if IS_GELU else gate
    value = gate / (1.0 + tl.exp(-power))
    if IS_GATED:
        value *= tl.load(x + row * width + size + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + columns, value.to(out.dtype.element_ty), mask=inside)


def gate(x: torch.Tensor, dtype: torch.dtype, *, is_gelu: bool, is_gated: bool) -> torch.Tensor:
    """Activate in `dtype`: act(gate) * up for x of (T, 2I), gates first, or act(x) for (T, I)  ->  (T, I).

    x is contiguous.
    """
    num_rows, width = x.shape
    size = width // 2 if is_gated else width
    out = torch.empty(num_rows, size, dtype=dtype, device=x.device)
    if num_rows:
        grid = (num_rows, triton.cdiv(size, BLOCK))
        _gate[grid](x, out, size, width, IS_GELU=is_gelu, IS_GATED=is_gated, BLOCK=BLOCK, num_warps=4)
    return out
