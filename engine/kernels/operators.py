"""The kernels as functions of CPU tensors. Inputs are contiguous unless said; float32 or bfloat16 where a dtype is left open."""

from __future__ import annotations

import ctypes
import threading

import torch

from engine.kernels.team import Kernel, team

_team = team()  # its symbols must be there before the kernels are compiled or loaded

from engine.kernels import attention, eight_bit, four_bit, rows  # noqa: E402
from engine.kernels.integer_vectors import is_available  # noqa: E402

_ADD_NORMALIZE, _GATE, _QUANTIZE, _ROTATE = (Kernel(f) for f in (rows.add_normalize, rows.gate, rows.quantize, rows.rotate))
_ATTEND = Kernel(attention.attend)
_MULTIPLY = {bits: Kernel(kernel.multiply) for bits, kernel in ((4, four_bit), (8, eight_bit)) if is_available()}

_PARALLEL_FROM = 1 << 14
"""Elements below which a kernel is over before a second thread has woken."""
_PARALLEL_ATTENTION_FROM = 1 << 15
_ALIGNMENT = 16
"""Floats: threads' parts of a scratch buffer share no cache line."""


def add_normalize(
    hidden: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Add delta to hidden in place and return the normalised rows in `dtype`. hidden: (T, E) float32, delta: (T, E)."""
    num_rows, size = hidden.shape
    out = torch.empty(num_rows, size, dtype=dtype)
    _run(
        _ADD_NORMALIZE,
        num_rows * size,
        num_rows,
        size,
        hidden.data_ptr(),
        0 if delta is None else delta.data_ptr(),
        delta is not None and delta.dtype is torch.bfloat16,
        weight.data_ptr(),
        eps.data_ptr(),
        out.data_ptr(),
        dtype is torch.bfloat16,
        _scratch(size),
    )
    return out


def gate(gate_up: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """silu(gate) * up in `dtype`. gate_up: (T, 2I), gates first  ->  (T, I)."""
    num_rows, double = gate_up.shape
    size = double // 2
    out = torch.empty(num_rows, size, dtype=dtype)
    _run(
        _GATE,
        num_rows * double,
        num_rows,
        size,
        gate_up.data_ptr(),
        gate_up.dtype is torch.bfloat16,
        out.data_ptr(),
        dtype is torch.bfloat16,
        _scratch(double),
    )
    return out


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each row by itself: levels (R, K) in int8, or uint8 around 128, and the size of a level (R, 1) float32. x: (R, K)."""
    num_rows, size = x.shape
    levels, scales = torch.empty(num_rows, size, dtype=dtype), torch.empty(num_rows, 1)
    zero = 128 if dtype is torch.uint8 else 0
    is_half = x.dtype is torch.bfloat16
    _run(_QUANTIZE, num_rows * size, num_rows, size, x.data_ptr(), is_half, levels.data_ptr(), zero, scales.data_ptr(), _scratch(size))
    return levels, scales


def rotate(heads: torch.Tensor, num_rotated: int, rotations: torch.Tensor) -> torch.Tensor:
    """Rotate adjacent pairs of the first `num_rotated` heads; float32 in, changed in place. heads: (T, H, D)   rotations: (T, 1, D/2)."""
    num_rows, num_heads, size = heads.shape
    is_half = heads.dtype is torch.bfloat16
    out = torch.empty(num_rows, num_heads, size) if is_half else heads
    elements = num_rows * num_heads * size
    _run(_ROTATE, elements, num_rows, num_rotated, num_heads, size, heads.data_ptr(), is_half, rotations.data_ptr(), out.data_ptr())
    return out


def multiply(x: torch.Tensor, tiles: torch.Tensor, num_outputs: int, bits: int) -> torch.Tensor:
    """x times the transposed weight that four_bit.py or eight_bit.py describes. x: (R, K) float32  ->  (R, N) float32.

    Only where `integer_vectors.is_available()`.
    """
    num_rows, num_inputs = x.shape
    out = torch.empty(num_rows, num_outputs)
    floats = num_rows * (num_inputs + num_inputs // 4 + 4) // 4
    _run(
        _MULTIPLY[bits],
        num_rows * num_inputs * num_outputs,
        num_rows,
        num_outputs,
        num_inputs,
        x.data_ptr(),
        tiles.data_ptr(),
        out.data_ptr(),
        _scratch(floats),
        4 * _aligned(floats),
    )
    return out


class RowAttention:
    """Attention of rows that see contexts of their own, over the cache of every layer; one per step.

    slots: (T,) int64, of all tokens   tokens, contexts: (S,) int64, of the rows   table: (S, N) int64 block ids
    """

    def __init__(self, slots: torch.Tensor, tokens: torch.Tensor, contexts: torch.Tensor, table: torch.Tensor, scale: torch.Tensor) -> None:
        self._held = (slots, tokens, contexts, table, scale)  # the kernel reads them by address
        self._num_rows, self._width = table.shape
        self._work = int(contexts.sum()) if self._num_rows else 0

    def attend(
        self, keys: torch.Tensor, values: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Store k, v of all tokens and attend the rows into `out`.

        keys: (B, K, D, P)  values: (B, K, P, D)  q: (T, H, D)  k, v: (T, K, D), float32, tokens may be apart  ->  out: (T, H, D)
        """
        slots, tokens, contexts, table, scale = self._held
        num_tokens, num_heads, size = q.shape
        kv_heads, block_size = keys.shape[1], keys.shape[3]
        group = num_heads // kv_heads
        floats = size * block_size + 2 * group * size + group * self._width * block_size
        _run(
            _ATTEND,
            (self._work * num_heads * size >= _PARALLEL_ATTENTION_FROM or num_tokens * num_heads * size >= _PARALLEL_FROM) * _PARALLEL_FROM,
            num_tokens,
            self._num_rows,
            num_heads,
            kv_heads,
            size,
            block_size,
            k.data_ptr(),
            v.data_ptr(),
            slots.data_ptr(),
            k.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            keys.dtype is torch.bfloat16,
            q.data_ptr(),
            tokens.data_ptr(),
            contexts.data_ptr(),
            table.data_ptr(),
            self._width,
            out.data_ptr(),
            out.dtype is torch.bfloat16,
            scale.data_ptr(),
            _scratch(floats),
            _aligned(floats),
            q.stride(0),
        )


def _run(kernel: Kernel, elements: int, *arguments: int) -> None:
    _team.run(kernel, (ctypes.c_int64 * len(arguments))(*arguments), is_parallel=elements >= _PARALLEL_FROM)


class _Scratch(threading.local):
    """One buffer for each thread that calls kernels; its kernels run one after another."""

    buffer = torch.empty(0)


_scratch_of_thread = _Scratch()


def _scratch(floats: int) -> int:
    """Address of `floats` for each thread of the team."""
    needed = _aligned(floats) * _team.num_threads + _ALIGNMENT
    if _scratch_of_thread.buffer.numel() < needed:
        _scratch_of_thread.buffer = torch.empty(needed)
    return -(-_scratch_of_thread.buffer.data_ptr() // 64) * 64


def _aligned(floats: int) -> int:
    return -(-floats // _ALIGNMENT) * _ALIGNMENT
