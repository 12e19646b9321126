"""Products with eight-bit weights. Each byte is read once and widened to the dtype of the activations as it is loaded.

The scales, one per output, are applied to the sums, so weights enter the product as integers, which bfloat16 and
float16 hold exactly. Programs that differ only in their rows run next to each other and find the weights in the
device's cache.

Shapes: R rows, N outputs, K inputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LEAST_ROWS, MOST_ROWS = 16, 64
"""Rows of one program: the smallest side of a matrix product, and the most that leaves room to read ahead."""
MOST_OUTPUTS, LEAST_OUTPUTS = 128, 16
INPUTS = 128
PROGRAMS_PER_PROCESSOR = 2


@triton.jit(do_not_specialize=["num_rows"])
def _multiply(
    x,
    values,
    scales,
    bias,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
    IS_EXACT: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    outputs = tl.program_id(1).to(tl.int64) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row, is_output = rows < num_rows, outputs < num_outputs
    sums = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for start in range(0, num_inputs, INPUTS):
        inputs = start + tl.arange(0, INPUTS)
        is_input = inputs < num_inputs
        left = tl.load(
            x + rows[:, None] * num_inputs + inputs[None, :], mask=is_row[:, None] & is_input[None, :], other=0.0
        )
        place = values + outputs[:, None] * num_inputs + inputs[None, :]
        right = tl.load(place, mask=is_output[:, None] & is_input[None, :], other=0).to(left.dtype)
        if IS_EXACT:
            sums += tl.dot(left, tl.trans(right), input_precision="ieee")
        else:
            sums += tl.dot(left, tl.trans(right))
    result = sums * tl.load(scales + outputs, mask=is_output, other=0.0)[None, :]
    if HAS_BIAS:
        result += tl.load(bias + outputs, mask=is_output, other=0.0).to(tl.float32)[None, :]
    place = out + rows[:, None] * num_outputs + outputs[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=is_row[:, None] & is_output[None, :])


def multiply(
    x: torch.Tensor,
    values: torch.Tensor,
    scales: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    rows_per_program: int,
    outputs_per_program: int,
) -> torch.Tensor:
    """Return x @ (values * scales).T + bias, (R, N) in the dtype of x. For fixed program sizes (powers of two), a row's
    result depends only on the row.

    x: (R, K) contiguous   values: (N, K) int8, contiguous   scales: (N,) float32   bias: (N,)
    """
    num_rows, num_inputs = x.shape
    num_outputs = values.shape[0]
    out = torch.empty(num_rows, num_outputs, dtype=x.dtype, device=x.device)
    if num_rows:
        _multiply[(triton.cdiv(num_rows, rows_per_program), triton.cdiv(num_outputs, outputs_per_program))](
            x,
            values,
            scales,
            scales if bias is None else bias,
            out,
            num_rows,
            num_outputs,
            num_inputs,
            HAS_BIAS=bias is not None,
            ROWS=rows_per_program,
            OUTPUTS=outputs_per_program,
            INPUTS=INPUTS,
            IS_EXACT=x.dtype is torch.float32,
            num_warps=4,
            num_stages=4,
        )
    return out


def rows_for(num_rows: int) -> int:
    """Return the rows of a program for a product of `num_rows`."""
    return min(MOST_ROWS, max(LEAST_ROWS, triton.next_power_of_2(num_rows)))


def outputs_for(num_outputs: int, num_processors: int) -> int:
    """Return the outputs of a program, so many that each processor still has a few programs to interleave."""
    share = num_outputs // (PROGRAMS_PER_PROCESSOR * num_processors)
    return min(MOST_OUTPUTS, max(LEAST_OUTPUTS, triton.next_power_of_2(share + 1) // 2))
