"""Add to the residual stream and normalise: one pass over each row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


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
    """Add delta to hidden in place and return the normalised rows in `dtype`.

    hidden, delta: (T, E) contiguous   weight: (E,).
    """
    num_rows, size = hidden.shape
    out = torch.empty(num_rows, size, dtype=dtype, device=hidden.device)
    block = triton.next_power_of_2(size)
    warps = min(max(block // 512, 1), 16)
    has_delta = delta is not None
    if num_rows:
        source = delta.contiguous() if has_delta else hidden
        _add_normalize[(num_rows,)](
            hidden, source, weight, out, size, eps, HAS_DELTA=has_delta, BLOCK=block, num_warps=warps
        )
    return out
