"""Kernels over rows: the residual stream with its normalisation, and the gated activation."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _add_normalize(hidden, delta, weight, out, size, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    x = tl.load(hidden + row * size + columns, mask=inside, other=0.0)
    if HAS_DELTA:
        # The sum is rounded to the stream's dtype before it is normalised, as by two separate operators.
        x = (x.to(tl.float32) + tl.load(delta + row * size + columns, mask=inside, other=0.0).to(tl.float32)).to(
            x.dtype
        )
        tl.store(hidden + row * size + columns, x, mask=inside)
    wide = x.to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / size + eps)
    scaled = wide * factor * tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + columns, scaled.to(out.dtype.element_ty), mask=inside)


def add_normalize(
    hidden: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    """Add delta to hidden (T, E) in place and return the normalised rows in `dtype`. All are contiguous."""
    num_rows, size = hidden.shape
    out = torch.empty(num_rows, size, dtype=dtype, device=hidden.device)
    block = triton.next_power_of_2(size)
    warps = min(max(block // 512, 1), 16)
    if num_rows:
        source = hidden if delta is None else delta.contiguous()
        _add_normalize[(num_rows,)](
            hidden, source, weight, out, size, eps, HAS_DELTA=delta is not None, BLOCK=block, num_warps=warps
        )
    return out


@triton.jit
def _gate(gate_up, out, size, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    gate = tl.load(gate_up + row * 2 * size + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * size + size + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + columns, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)


def gate(gate_up: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return silu(gate) * up in `dtype`. gate_up: (T, 2I) contiguous, gates first  ->  (T, I)."""
    num_rows, double = gate_up.shape
    out = torch.empty(num_rows, double // 2, dtype=dtype, device=gate_up.device)
    if num_rows:
        _gate[(num_rows, triton.cdiv(double // 2, BLOCK))](gate_up, out, double // 2, BLOCK=BLOCK, num_warps=4)
    return out
