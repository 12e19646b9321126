"""The kernels as functions of CPU tensors. Inputs are contiguous unless said; float32 or bfloat16 where a dtype is left open."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from engine.kernels.cpu import program
from engine.kernels.cpu.integer_product import opened_bytes, scratch_bytes
from engine.kernels.cpu.integer_vectors import PANEL
from engine.kernels.cpu.sampling import BLOCK
from engine.kernels.cpu.threads import TEAM
from engine.kernels.cpu.work_sharing import MOST_PARTS

_NUMBER = {name: number for number, name in enumerate(program.KERNELS)}

_PART = 1 << 13
"""Elements of rows that are worth a part; with fewer than two parts a kernel is over before a second thread has woken."""
_PART_OF_PRODUCT = 1400 << 10
"""The same in products of numbers; reading a weight from memory counts as READING of them."""
_READING = 9
_PART_OF_ATTENTION = 1 << 14
_EASY = 4
"""Times that worth a thread, from which on a thread gets more than one part."""
_PARTS = 16
"""Parts a thread at most: what one thread is slower in, another takes on."""
_SHARED_FROM = 1 << 13
"""Inputs in all rows from which threads share the quantising; below, each does it for itself, which is quicker than to wait."""
_ALIGNMENT = 16
"""Floats: threads' parts of a scratch buffer share no cache line."""
_APART = 3
"""How many results later a recording may write over one: it is read by the operators that make the next two at most."""


class Recording:
    """What a recorded program reads and writes, and its words. `run` repeats it with what then stands in its inputs.

    Every operation is of the same number of rows: `run` may be told a smaller one.
    """

    def __init__(self) -> None:
        self._operations: list[_Operation] = []
        self._rings: dict[tuple[int, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        self._num_results = 0
        self._num_threads = TEAM.num_threads
        self._scratches: dict[int, torch.Tensor] = {}

    def add(self, operation: _Operation) -> None:
        """Append an operation. The tensors that it names are kept, whoever has made them."""
        self._operations.append(operation)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory for a result: that of the oldest one of its size, if nobody reads it any more."""
        ring = self._rings.setdefault((math.prod(shape), dtype), [])
        self._num_results += 1
        is_over = bool(ring) and self._num_results - ring[0][0] >= _APART
        tensor = ring.pop(0)[1] if is_over else torch.empty(math.prod(shape), dtype=dtype)
        ring.append((self._num_results, tensor))
        return tensor.view(shape)

    def scratch(self, floats: int) -> torch.Tensor:
        """Memory of the threads, shared by operations of one size."""
        if floats not in self._scratches:
            self._scratches[floats] = torch.empty(floats)
        return self._scratches[floats]

    def close(self) -> None:
        """Make the program, after the last operation."""
        self._program = program.assemble([word for operation in self._operations for word in operation.words])
        self._parts, self._rows = program.parts_and_rows(self._program)
        self._num_rows = int(self._rows.max(initial=0))
        assert (self._rows == self._num_rows).all()

    def run(self, num_rows: int) -> None:
        """Compute the program anew, of the first rows of its inputs."""
        if num_rows != self._num_rows:
            self._num_rows = num_rows
            self._rows[:] = num_rows
            if TEAM.num_threads == self._num_threads:  # otherwise it would be cut for others; only speed depends on it
                self._parts[:] = [operation.cut(num_rows) for operation in self._operations]
        TEAM.run(self._program, num_threads=self._num_threads)


class _Thread(threading.local):
    """Of each thread that calls kernels: one buffer, as its kernels run one after another, and what it records."""

    buffer = torch.empty(0)
    recording: Recording | None = None


_thread = _Thread()


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the operators that this thread calls, while they compute as always. Whatever torch computes in between is not recorded."""
    assert _thread.recording is None
    made = _thread.recording = Recording()
    try:
        yield made
    finally:
        _thread.recording = None
    made.close()


def add_normalize(
    hidden: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Add delta to hidden in place and return the normalised rows in `dtype`. hidden: (T, E) float32, delta: (T, E)."""
    num_rows, size = hidden.shape
    out = empty((num_rows, size), dtype)
    _run(
        "add_normalize",
        _by_rows(size),
        num_rows,
        size,
        hidden,
        0 if delta is None else delta,
        delta is not None and delta.dtype is torch.bfloat16,
        weight,
        eps,
        out,
        dtype is torch.bfloat16,
        _scratch(size),
    )
    return out


def gate(gate_up: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """silu(gate) * up in `dtype`. gate_up: (T, 2I), gates first  ->  (T, I)."""
    num_rows, double = gate_up.shape
    size = double // 2
    out = empty((num_rows, size), dtype)
    _run(
        "gate",
        _by_rows(double),
        num_rows,
        size,
        gate_up,
        gate_up.dtype is torch.bfloat16,
        out,
        dtype is torch.bfloat16,
        _scratch(double),
    )
    return out


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each row by itself: levels (R, K) in int8, or uint8 around 128, and the size of a level (R, 1) float32. x: (R, K)."""
    num_rows, size = x.shape
    levels, scales = empty((num_rows, size), dtype), empty((num_rows, 1), torch.float32)
    zero = 128 if dtype is torch.uint8 else 0
    is_half = x.dtype is torch.bfloat16
    _run("quantize", _by_rows(size), num_rows, size, x, is_half, levels, zero, scales, _scratch(size))
    return levels, scales


def rotate(heads: torch.Tensor, num_rotated: int, rotations: torch.Tensor) -> torch.Tensor:
    """Rotate adjacent pairs of the first `num_rotated` heads; float32 in, changed in place. heads: (T, H, D)   rotations: (T, 1, D/2)."""
    num_rows, num_heads, size = heads.shape
    is_half = heads.dtype is torch.bfloat16
    out = empty((num_rows, num_heads, size), torch.float32) if is_half else heads
    _run("rotate", _by_rows(num_heads * size), num_rows, num_rotated, num_heads, size, heads, is_half, rotations, out)
    return out


def multiply(x: torch.Tensor, panels: torch.Tensor, num_outputs: int, bits: int) -> torch.Tensor:
    """x times the transposed weight that four_bit.py or eight_bit.py describes. x: (R, K) float32  ->  (R, N) float32.

    Only where `integer_vectors.is_available()`.
    """
    num_rows, num_inputs = x.shape
    out = empty((num_rows, num_outputs), torch.float32)
    floats = scratch_bytes(num_rows, num_inputs) // 4
    scratch = _scratch(floats)

    def parts(rows: int) -> int:
        return _parts(num_outputs // PANEL, num_inputs * num_outputs * (rows + _READING), _PART_OF_PRODUCT)

    records = 0
    operations = []
    if parts(num_rows) > 1 and num_rows * num_inputs >= _SHARED_FROM:
        records = scratch + opened_bytes(num_inputs)
        operations = [_operation("quantize_groups", _by_rows(num_inputs), num_rows, num_inputs, x, records)]
    multiplication = _operation(
        "multiply",
        parts,
        num_rows,
        num_outputs,
        num_inputs,
        x,
        panels,
        out,
        scratch,
        4 * _aligned(floats),
        bits,
        records,
    )
    _run_all(*operations, multiplication)
    return out


TILE_QUERIES, PROMPT_TILE_QUERIES = 6, 24
"""Queries that a tile of attention has at least, where the sequence has as many: they are computed together. Those of a prompt read
blocks that were widened once for all."""
PROMPT_ROWS = 32
"""More new rows of a sequence than this are a prompt."""


def attention_has_vectors(size: int, block_size: int) -> bool:
    """Whether attention is quick for heads of `size` floats and such blocks."""
    return bool(program.attention.has_vectors(size, block_size))


def tile_rows(group: int, num_rows: int) -> int:
    """How many of a sequence's `num_rows` new rows make a tile if `group` query heads share a kv head."""
    return max(2, (TILE_QUERIES if num_rows <= PROMPT_ROWS else PROMPT_TILE_QUERIES) // group)


class RowAttention:
    """Attention of rows that see contexts of their own, over the cache of every layer; one per step.

    slots: (T,) int64, of all tokens   tokens, contexts: (S,) int64, of the rows   table: (N, W) int64, block ids of each tile
    tiles: (N + 2,) int64, the number of tiles, the first row of each and the end of the last; a tile is adjacent tokens of one sequence,
    at most `most_rows`
    """

    def __init__(
        self,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        contexts: torch.Tensor,
        tiles: torch.Tensor,
        table: torch.Tensor,
        scale: torch.Tensor,
        most_rows: int,
    ) -> None:
        self._held = (slots, tokens, contexts, tiles, table, scale)  # the kernel reads them by address
        self._most_rows = most_rows
        self._width = table.shape[1]
        self._work = int(contexts.sum())

    def attend(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Store k, v of all tokens and attend the rows into `out`.

        keys: (B, K, D, P)  values: (B, K, P, D)  q: (T, H, D)  k, v: (T, K, D), float32, tokens may be apart  ->  out: (T, H, D)
        """
        slots, tokens, contexts, tiles, table, scale = self._held
        num_tokens, num_heads, size = q.shape
        kv_heads, block_size = keys.shape[1], keys.shape[3]
        group = num_heads // kv_heads
        queries = self._most_rows * group
        floats = program.attention.scratch_floats(queries, size, block_size, self._width)
        arguments = (
            num_tokens,
            tiles,
            num_heads,
            kv_heads,
            size,
            block_size,
            k,
            v,
            slots,
            k.stride(0),
            keys,
            values,
            keys.dtype is torch.bfloat16,
            q,
            tokens,
            contexts,
            table,
            self._width,
            out,
            out.dtype is torch.bfloat16,
            scale,
            _scratch(floats),
            _aligned(floats),
            q.stride(0),
            queries,
        )
        # How long the contexts of a recorded step will be is not known.
        work = self._work * num_heads * size if _thread.recording is None else sys.maxsize
        most_tiles = table.shape[0]
        _run_all(
            _operation("store", _by_rows(2 * kv_heads * size), *arguments),
            _operation(
                "attend", lambda rows: _parts(min(rows, most_tiles) * kv_heads, work, _PART_OF_ATTENTION), *arguments
            ),
        )


def add_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Add a row to every row, in place. x: (R, N) float32   bias: (N,) float32."""
    num_rows, size = x.shape
    _run("add_bias", _by_rows(size), num_rows, size, x, bias)
    return x


def forbid(logits: torch.Tensor, rows: torch.Tensor, words: torch.Tensor) -> None:
    """Add -inf, in place, to what masks do not allow.

    logits: (R, V) float32   rows: (G,) int64, each once   words: (G, W) int32

    Bit `i % 32` of word `i // 32` is set where token i is allowed; tokens beyond the words are forbidden.
    """
    num_masks, width = words.shape[0], logits.shape[1]
    _run("forbid", _by_rows(width), num_masks, width, words.shape[1], rows, words, logits)


def weigh_blocks(logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Mass of each block of BLOCK tokens relative to the most likely token: (R, V) float32 -> (R, V / BLOCK) float64.

    best, temperature: (R,) float32. V is a multiple of BLOCK.
    """
    num_rows, width = logits.shape
    masses = empty((num_rows, width // BLOCK), torch.float64)
    _run("weigh_blocks", _by_rows(width), num_rows, width, logits, best, temperature, masses)
    return masses


def draw(logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Draw ids (R,) int64 from whole rows; as `weigh_blocks`, with `uniforms` (R,) float64 in [0, 1)."""
    num_rows, width = logits.shape
    token_ids = empty((num_rows,), torch.int64)
    floats = 2 * (width // BLOCK + BLOCK)
    _run(
        "draw",
        _by_rows(width),
        num_rows,
        width,
        logits,
        best,
        temperature,
        uniforms,
        token_ids,
        _scratch(floats),
        4 * _aligned(floats),
    )
    return token_ids


class _Operation(NamedTuple):
    """One operation of a program: its words, the tensors that those name by address, and how many parts so many rows make."""

    words: list[int]
    tensors: list[torch.Tensor]
    cut: Callable[[int], int]


def _operation(kernel: str, cut: Callable[[int], int], num_rows: int, *arguments: torch.Tensor | int) -> _Operation:
    words = [argument.data_ptr() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    words = [_NUMBER[kernel], cut(num_rows), num_rows, *words]
    return _Operation(words + [0] * (program.STRIDE - len(words)), tensors, cut)


def _run(kernel: str, cut: Callable[[int], int], num_rows: int, *arguments: torch.Tensor | int) -> None:
    """Run one operation."""
    _run_all(_operation(kernel, cut, num_rows, *arguments))


def _run_all(*operations: _Operation) -> None:
    """Run operations one after another."""
    if _thread.recording is not None:
        for operation in operations:
            _thread.recording.add(operation)
    is_parallel = any(operation.words[1] > 1 for operation in operations)
    words = [word for operation in operations for word in operation.words]
    TEAM.run(program.assemble(words), num_threads=TEAM.num_threads if is_parallel else 1)


def _parts(pieces: int, work: int, worth: int = _PART) -> int:
    """How many parts `pieces` are taken in, each with work that is worth it: one a thread, or more where there is much of it."""
    num_threads = TEAM.num_threads
    most = num_threads * max(1, min(work // worth // (_EASY * num_threads), _PARTS))
    return max(1, min(pieces, work // worth, most, MOST_PARTS)) if num_threads > 1 else 1


def _by_rows(size: int) -> Callable[[int], int]:
    """How many parts so many rows make if each has `size` elements to go through."""
    return lambda num_rows: _parts(num_rows, num_rows * size)


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory for the result of an operator; anything that a kernel writes to must come from here."""
    if _thread.recording is not None:
        return _thread.recording.empty(shape, dtype)
    return torch.empty(shape, dtype=dtype)


def _scratch(floats: int) -> int:
    """Address of `floats` for each thread of the team."""
    needed = _aligned(floats) * TEAM.num_threads + _ALIGNMENT
    if _thread.recording is not None:
        buffer = _thread.recording.scratch(needed)
    else:
        if _thread.buffer.numel() < needed:
            _thread.buffer = torch.empty(needed)
        buffer = _thread.buffer
    return -(-buffer.data_ptr() // 64) * 64


def _aligned(floats: int) -> int:
    return -(-floats // _ALIGNMENT) * _ALIGNMENT
