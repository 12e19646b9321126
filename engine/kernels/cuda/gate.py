"""The gated activation of the feed-forward block: silu(gate) * up."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024


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
