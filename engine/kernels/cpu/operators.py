"""The kernels as functions of CPU tensors, and recordings of them as programs.

Inputs are contiguous unless stated, and float32 or bfloat16 where no dtype is stated.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch

from engine.kernels.cpu import flash_attention, low_rank, program
from engine.kernels.cpu.integer_product import records_offset, scratch_bytes
from engine.kernels.cpu.integer_vectors import GROUP, LANES, PANEL, has_pairs
from engine.kernels.cpu.row_records import takes_tiles
from engine.kernels.cpu.sampling import BLOCK
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.kernels.cpu.vectors import HEAD_STEP
from engine.kernels.cpu.work_sharing import MAX_PARTS

_NUMBER = {name: number for number, name in enumerate(program.KERNELS)}

_PART = 1 << 13
"""Elements of rows that justify a part; with less work than two parts a kernel ends before a second thread has woken.
"""
_PART_OF_PRODUCT = 1400 << 10
"""The same for products, in multiplications; reading a weight from memory counts as _READ_COST of them."""
_READ_COST = 9
_PART_OF_ATTENTION = 1 << 14
_PART_OF_LOW_RANK = 1 << 13
"""In multiplications, if ranks are those of a vector."""
_WORTH_PER_EXTRA_PART = 4
"""A thread gets another part, of which fast threads take over some, for each so many times the least work of a part."""
_MAX_PARTS_PER_THREAD = 16
"""More than one part a thread, so that fast threads take over the parts of slow ones."""
_MAX_AMX_PARTS_PER_THREAD = 4
"""Fewer where products take tiles of AMX: the rows of a chunk are read once for all panels of a part."""
_SHARE_QUANTIZING_FROM = 1 << 13
"""Inputs (rows times columns) from which threads share quantising, instead of each doing all rows without waiting."""
_ALIGNMENT = 16
"""In floats: the scratch of two threads shares no cache line."""
_REUSE_AFTER = 3
"""A recording may overwrite a result so many results later: only the operators that make the next two read it."""


class Recording:
    """A recorded program with the tensors that it reads and writes. All operations have the same number of rows."""

    def __init__(self) -> None:
        self._operations: list[_Operation] = []
        self._rings: dict[tuple[int, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        self._num_results = 0
        self._num_threads = KERNEL_THREADS.num_threads
        self._scratches: dict[int, torch.Tensor] = {}

    def add(self, operation: _Operation) -> None:
        """Append an operation and keep its tensors alive."""
        self._operations.append(operation)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return memory for a result: that of the oldest result of its size, if no later operation reads it.

        It holds zeros at first: torch operators between the recorded ones find no wild numbers.
        """
        ring = self._rings.setdefault((math.prod(shape), dtype), [])
        self._num_results += 1
        is_over = bool(ring) and self._num_results - ring[0][0] >= _REUSE_AFTER
        tensor = ring.pop(0)[1] if is_over else torch.zeros(math.prod(shape), dtype=dtype)
        ring.append((self._num_results, tensor))
        return tensor.view(shape)

    def scratch(self, floats: int) -> torch.Tensor:
        """Return scratch memory for the threads, shared by operations that need the same size."""
        if floats not in self._scratches:
            self._scratches[floats] = torch.empty(floats)
        return self._scratches[floats]

    def close(self) -> None:
        """Assemble the program after the last operation."""
        self._program = program.assemble([value for operation in self._operations for value in operation.encoded])
        self._parts, self._rows = program.parts_and_rows(self._program)
        self._num_rows = int(self._rows.max(initial=0))
        assert (self._rows == self._num_rows).all()

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self._operations)

    def end_of_last(self, kernel: str) -> int:
        """Return the number of operations up to the last one of a kernel, that one included."""
        number = _NUMBER[kernel]
        return max(place for place, operation in enumerate(self._operations, 1) if operation.encoded[0] == number)

    def run(self, num_rows: int, start: int = 0, end: int | None = None) -> None:
        """Run operations `start` to `end`, or to the last, on what the first `num_rows` rows of the inputs hold now."""
        if num_rows != self._num_rows:
            self._num_rows = num_rows
            self._rows[:] = num_rows
            if KERNEL_THREADS.num_threads == self._num_threads:  # otherwise keep the cut: only speed depends on it
                self._parts[:] = [operation.cut(num_rows) for operation in self._operations]
        self._program[program.START], self._program[program.END] = start, len(self) if end is None else end
        KERNEL_THREADS.run(self._program, num_threads=self._num_threads)


class _Thread(threading.local):
    """The scratch buffer and the recording of a thread that calls kernels, which run one after another."""

    buffer = torch.empty(0)
    recording: Recording | None = None


_thread = _Thread()


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the operators that this thread calls, without computing them; torch operators in between are missed."""
    assert _thread.recording is None
    made = _thread.recording = Recording()
    try:
        yield made
    finally:
        _thread.recording = None
    made.close()


def add_normalize(
    hidden: torch.Tensor,
    delta: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    constants: torch.Tensor,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Compute hidden = stream_scale * (hidden + scale * delta) in place; return the normalised rows in `dtype`.

    hidden: (T, E) float32   delta: (T, E)   weight, bias: (E,) float32   constants: eps, scale, stream_scale, float32

    With a bias the norm is a LayerNorm; without a weight the rows are returned as they are.
    """
    num_rows, size = hidden.shape
    out = empty((num_rows, size), dtype)
    added = (0, False) if delta is None else (delta, _is_half(delta))
    _run(
        "add_normalize",
        _by_rows(size),
        num_rows,
        size,
        hidden,
        *added,
        0 if weight is None else weight,
        constants,
        out,
        _is_half(out),
        _scratch(size),
        0 if bias is None else bias,
    )
    return out


def gate(
    x: torch.Tensor, dtype: torch.dtype, *, is_gelu: bool, is_gated: bool, factors: torch.Tensor | None = None
) -> torch.Tensor:
    """Activate in `dtype`: act(gate) * up for x of (T, 2I), gates first, or act(x) for (T, I)  ->  (T, I).

    factors: (T, I) float32, rows may be apart, multiply act(x) if not `is_gated`.
    """
    num_rows, width = x.shape
    size = width // 2 if is_gated else width
    out = empty((num_rows, size), dtype)
    given = (x, _is_half(x))
    by = (0, 0) if factors is None else (factors, factors.stride(0))
    _run("gate", _by_rows(width), num_rows, size, *given, out, _is_half(out), _scratch(width), is_gelu, is_gated, *by)
    return out


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise rows of x (R, K): int8 levels (R, K), or uint8 around 128, and the step between them (R, 1) float32."""
    num_rows, size = x.shape
    levels, scales = empty((num_rows, size), dtype), empty((num_rows, 1), torch.float32)
    zero = 128 if dtype is torch.uint8 else 0
    _run("quantize", _by_rows(size), num_rows, size, x, _is_half(x), levels, zero, scales, _scratch(size))
    return levels, scales


def normalize_heads(heads: torch.Tensor, kinds: Sequence[tuple[int, torch.Tensor]], eps: torch.Tensor) -> None:
    """Normalise queries, keys and values in place. heads: (T, H, D) float32, in this order.

    kinds: of the three, the number of groups with one norm each and the weight of a group, float32   eps: float32
    """
    num_rows = heads.shape[0]
    size = heads[0].numel() if num_rows else 0
    norms = [argument for count, weight in kinds for argument in (count, len(weight), weight)]
    _run("normalize_heads", _by_rows(size), num_rows, size, heads, *norms, eps)


def rotate(heads: torch.Tensor, num_rotated: int, rotations: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Rotate pairs of `num_rotated` heads from `first` on; float32 in place.

    heads: (T, H, D)   rotations: (T, 1, D/2) complex64, rows may be apart
    """
    num_rows, num_heads, size = heads.shape
    is_half = _is_half(heads)
    out = empty((num_rows, num_heads, size), torch.float32) if is_half else heads
    arguments = (num_rotated, num_heads, size, heads, is_half, rotations, out, 2 * rotations.stride(0), first)
    _run("rotate", _by_rows(num_heads * size), num_rows, *arguments)
    return out


def multiply(x: torch.Tensor, *weights: tuple[torch.Tensor, int], may_take_tiles: bool = False) -> torch.Tensor:
    """Multiply x by the transposed weights, stacked by outputs. x: (R, K) float32  ->  (R, N) float32.

    weights: panels (N / 32, bytes) as in panels.py and the number of their format. Works only where
    `integer_vectors.is_available()`, with `may_take_tiles` only where `integer_vectors.has_tiles()`.
    """
    num_rows, num_inputs = x.shape
    width = sum(len(panels) * PANEL for panels, _ in weights)
    out = empty((num_rows, width), torch.float32)
    floats = scratch_bytes(num_rows, num_inputs, may_take_tiles) // 4
    scratch = _scratch(floats)

    def parts(num_outputs: int, rows: int) -> int:
        work = num_inputs * num_outputs * (rows + _READ_COST)
        most = _MAX_AMX_PARTS_PER_THREAD if takes_tiles(rows, may_take_tiles) else _MAX_PARTS_PER_THREAD
        return _parts(num_outputs // PANEL, work, _PART_OF_PRODUCT, most)

    records = 0
    operations = []
    if parts(width, num_rows) > 1 and num_rows * num_inputs >= _SHARE_QUANTIZING_FROM:
        records = scratch + records_offset(num_inputs // GROUP)
        quantized = (num_rows, num_inputs, x, records, int(may_take_tiles))
        operations = [_operation("quantize_groups", _by_rows(num_inputs), *quantized)]
    first = 0
    for panels, form in weights:
        num_outputs = len(panels) * PANEL
        product = (
            num_rows,
            num_outputs,
            num_inputs,
            x,
            panels,
            out[:, first:] if first else out,
            scratch,
            4 * _aligned(floats),
        )
        how = (form, records, width, int(may_take_tiles))
        operations.append(_operation("multiply", partial(parts, num_outputs), *product, *how))
        first += num_outputs
    _run_all(*operations)
    return out


TILE_QUERIES, PROMPT_TILE_QUERIES = 6, 24
"""Queries of one attention tile, if the sequence has as many. A prompt's tile widens each block once."""
FLASH_TILE_QUERIES, FLASH_PROMPT_TILE_QUERIES, FLASH_MOST_TILE_QUERIES = 24, 96, 384
"""The same of flash attention, where every tile opens each block: a prompt's are larger where there are few threads."""
FLASH_TILES_PER_THREAD = 12
"""Tiles of a prompt's step that each thread has at least, if a tile has more than FLASH_PROMPT_TILE_QUERIES."""
PROMPT_ROWS = 32
"""A sequence with more new rows than this counts as a prompt."""


def attention_has_vectors(size: int, block_size: int) -> bool:
    """Return True if the vector kernels can attend heads of `size` floats over blocks of this size."""
    return bool(program.attention.has_vectors(size, block_size))


def cached_size(size: int, block_size: int) -> int:
    """Return the head size with which the cache suits the vector kernels: the next that does, if it is not far."""
    filled = -(-size // HEAD_STEP) * HEAD_STEP
    return filled if size > HEAD_STEP and attention_has_vectors(filled, block_size) else size


def attention_is_flash(size: int, block_size: int, dtype: torch.dtype) -> bool:
    """Return True if flash attention computes heads of `size` over a cache of this type and block size."""
    return has_pairs() and dtype is torch.bfloat16 and attention_has_vectors(size, block_size)


def tile_rows(num_heads: int, kv_heads: int, num_rows: int, is_flash: bool) -> int:
    """Return how many of a sequence's `num_rows` new rows make a tile, with the query heads that share a kv head."""
    group = num_heads // kv_heads
    few, many = (FLASH_TILE_QUERIES, FLASH_PROMPT_TILE_QUERIES) if is_flash else (TILE_QUERIES, PROMPT_TILE_QUERIES)
    if num_rows <= PROMPT_ROWS:
        return max(2, few // group)
    if is_flash:
        shared = num_rows * num_heads // (FLASH_TILES_PER_THREAD * KERNEL_THREADS.num_threads)
        many = max(many, min(FLASH_MOST_TILE_QUERIES, shared))
    return max(2, many // group)


class RowAttention:
    """Attention of rows with a context each, over the cache of every layer; one object per step.

    slots: (T,) int64, of all tokens   tokens, contexts: (S,) int64, of the rows
    table: (N, W) int64, block ids of each tile, which is adjacent tokens of one sequence, at most `most_rows`; tiles
    may be apart
    tiles: (N + 2,) int64, the number of tiles, the first row of each and the end of the last
    """

    def __init__(
        self,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        contexts: torch.Tensor,
        tiles: torch.Tensor,
        table: torch.Tensor,
        most_rows: int,
    ) -> None:
        assert slots.is_contiguous(), "the kernel reads slots one after another"
        self._held = (slots, tokens, contexts, tiles, table)  # the kernel reads them by address
        self._most_rows = most_rows
        self._width = table.shape[1]
        self._work = int(contexts.sum())
        self._shared: dict[tuple[int, ...], torch.Tensor] = {}
        """What threads share of rows, by the sizes of layers, which are computed one after another."""

    def attend(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        out: torch.Tensor,
        constants: torch.Tensor,
        window: int = 0,
        sinks: torch.Tensor | None = None,
    ) -> None:
        """Store k, v of all tokens, unless they are None, and attend the rows into `out`.

        keys: (B, K, D', P)  values: (B, K, P, D'), with D' >= D, blocks may be apart
        q, out: (T, H, D)  k, v: (T, K, D), float32, tokens may be apart
        constants: scale, softcap or 0, float32   `window`: positions that a row sees, itself included, or 0
        sinks: (H,) float32
        """
        slots, tokens, contexts, tiles, table = self._held
        num_tokens, num_heads, size = q.shape
        kv_heads, block_size = keys.shape[1], keys.shape[3]
        group = num_heads // kv_heads
        queries = self._most_rows * group
        if is_flash := attention_is_flash(keys.shape[2], block_size, keys.dtype):
            floats = flash_attention.scratch_floats(queries, num_heads, keys.shape[2])
        else:
            floats = program.attention.scratch_floats(queries, keys.shape[2], block_size, self._width)
        sizes = (num_tokens, tiles, num_heads, kv_heads, size, block_size)
        new = (0, 0, slots, 0) if k is None or v is None else (k, v, slots, k.stride(0))
        written = (*new, keys, values, _is_half(keys))
        attended = (q, tokens, contexts, table, table.stride(0), out, _is_half(out), constants)
        scratch = (_scratch(floats), _aligned(floats), q.stride(0), queries)
        shared, most_pieces = self._shared_pieces(num_heads, keys, is_flash)
        own = (keys.shape[2], keys.stride(0), KERNEL_THREADS.num_threads, shared, most_pieces)
        options = (window, 0 if sinks is None else sinks, *own)
        arguments = (*sizes, *written, *attended, *scratch, *options)
        # How long the contexts of a recorded step will be is not known.
        work = self._work * num_heads * size if _thread.recording is None else sys.maxsize
        most_tiles = table.shape[0]
        attend = _operation(
            "flash_attend" if is_flash else "attend",
            lambda rows: _parts(min(rows, most_tiles) * kv_heads * max(1, most_pieces), work, _PART_OF_ATTENTION),
            *arguments,
        )
        if k is None:
            _run_all(attend)
        else:
            _run_all(_operation("store", _by_rows(2 * kv_heads * size), *arguments), attend)

    def _shared_pieces(self, num_heads: int, keys: torch.Tensor, is_flash: bool) -> tuple[torch.Tensor | int, int]:
        """Return memory for the pieces of rows that are too few for all threads, as flash attention reads it."""
        num_tiles, kv_heads, size = self._held[4].shape[0], *keys.shape[1:3]
        has_enough = num_tiles >= flash_attention.TASKS_PER_THREAD * KERNEL_THREADS.num_threads
        if not is_flash or has_enough or KERNEL_THREADS.num_threads == 1:
            return 0, 0
        most = flash_attention.num_pieces(self._width)
        sizes = (num_tiles, flash_attention.shared_floats(num_heads, kv_heads, size, most))
        if sizes not in self._shared:
            self._shared[sizes] = torch.empty(sizes)
            self._shared[sizes][:, : 2 * kv_heads] = 0.0
        return self._shared[sizes], most


def add_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Add a row to every row, in place. x: (R, N) float32   bias: (N,) float32."""
    num_rows, size = x.shape
    _run("add_bias", _by_rows(size), num_rows, size, x, bias)
    return x


class LowRankRows(NamedTuple):
    """Which rows of a step have which low-rank matrices; the kernels read it by address (low_rank.py).

    tiles: (1 + 3 N,) int64   members: (R,) int64   products: (R, ranks) float32, what `shrink` leaves to `expand`
    """

    tiles: torch.Tensor
    members: torch.Tensor
    products: torch.Tensor


def add_low_rank(
    x: torch.Tensor, y: torch.Tensor, rows: LowRankRows, table: torch.Tensor, outputs: Sequence[int], is_half: bool
) -> torch.Tensor:
    """Add (x A^T) B^T to the rows of y that have such matrices, in place. x: (R, K)  y: (R, N), float32.

    table: (adapters, ENTRY) int64, which names the matrices   outputs: the sizes of the ranges of outputs that B has
    `is_half`: they are bfloat16   K is a multiple of low_rank.INPUTS_STEP.
    """
    (num_rows, num_inputs), num_outputs = x.shape, y.shape[1]
    floats = low_rank.scratch_floats(num_inputs)
    shared = (num_rows, rows.tiles, rows.members, table, is_half, rows.products.shape[1], rows.products)
    scratch = (_scratch(floats), 4 * _aligned(floats))
    places = [
        place for first, size in zip(accumulate(outputs, initial=0), outputs, strict=False) for place in (first, size)
    ]

    def by_units(units: int, size: int) -> Callable[[int], int]:
        return lambda num_rows: _parts(num_rows * units, num_rows * units * size, _PART_OF_LOW_RANK)

    _run_all(
        _operation("shrink", by_units(len(outputs), LANES * num_inputs), *shared, num_inputs, x, *scratch),
        _operation(
            "expand",
            by_units(-(-num_outputs // low_rank.PANEL), LANES * low_rank.PANEL),
            *(*shared, num_outputs, y, *scratch, len(outputs), *places),
        ),
    )
    return y


def forbid(logits: torch.Tensor, rows: torch.Tensor, masks: torch.Tensor) -> None:
    """Add -inf, in place, to the logits of tokens that masks do not allow: those without a bit, or beyond the mask.

    logits: (R, V) float32   rows: (G,) int64, distinct   masks: (G, W) int32, bit `i % 32` of integer `i // 32` is
    token i
    """
    num_masks, width = masks.shape[0], logits.shape[1]
    _run("forbid", _by_rows(width), num_masks, width, masks.shape[1], rows, masks, logits)


def weigh_blocks(logits: torch.Tensor, best: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Return the mass of each block of BLOCK tokens, (R, V / BLOCK) float64, relative to the most likely token.

    logits: (R, V) float32, V a multiple of BLOCK   best, temperature: (R,) float32
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
    drawn = (logits, best, temperature, uniforms, token_ids)
    _run("draw", _by_rows(width), num_rows, width, *drawn, _scratch(floats), 4 * _aligned(floats))
    return token_ids


class _Operation(NamedTuple):
    """One operation of a program."""

    encoded: list[int]
    """As program.py lays it out."""
    tensors: list[torch.Tensor]
    """The tensors whose addresses `encoded` holds."""
    cut: Callable[[int], int]
    """Returns the number of parts for a number of rows."""


def _operation(kernel: str, cut: Callable[[int], int], num_rows: int, *arguments: torch.Tensor | int) -> _Operation:
    values = [argument.data_ptr() if isinstance(argument, torch.Tensor) else argument for argument in arguments]
    tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    encoded = [_NUMBER[kernel], cut(num_rows), num_rows, *values]
    return _Operation(encoded + [0] * (program.STRIDE - len(encoded)), tensors, cut)


def _run(kernel: str, cut: Callable[[int], int], num_rows: int, *arguments: torch.Tensor | int) -> None:
    """Run one operation."""
    _run_all(_operation(kernel, cut, num_rows, *arguments))


def _run_all(*operations: _Operation) -> None:
    """Run operations one after another."""
    if _thread.recording is not None:
        for operation in operations:
            _thread.recording.add(operation)
        return
    is_parallel = any(operation.encoded[1] > 1 for operation in operations)
    encoded = [value for operation in operations for value in operation.encoded]
    KERNEL_THREADS.run(program.assemble(encoded), num_threads=KERNEL_THREADS.num_threads if is_parallel else 1)


def _parts(pieces: int, work: int, worth: int = _PART, most_per_thread: int = _MAX_PARTS_PER_THREAD) -> int:
    """Return into how many parts to cut `pieces`, each of at least `worth` work: one a thread, or more of much work."""
    num_threads = KERNEL_THREADS.num_threads
    most = num_threads * max(1, min(work // worth // (_WORTH_PER_EXTRA_PART * num_threads), most_per_thread))
    return max(1, min(pieces, work // worth, most, MAX_PARTS)) if num_threads > 1 else 1


def _is_half(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.bfloat16


def _by_rows(size: int) -> Callable[[int], int]:
    """Return a function from a number of rows, of `size` elements each, to their number of parts."""
    return lambda num_rows: _parts(num_rows, num_rows * size)


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return memory for a result; kernels write only to memory from here, so that a recording owns it."""
    if _thread.recording is not None:
        return _thread.recording.empty(shape, dtype)
    return torch.empty(shape, dtype=dtype)


def _scratch(floats: int) -> int:
    """Return the address of scratch memory of `floats` for each thread."""
    needed = _aligned(floats) * KERNEL_THREADS.num_threads + _ALIGNMENT
    if _thread.recording is not None:
        buffer = _thread.recording.scratch(needed)
    else:
        if _thread.buffer.numel() < needed:
            _thread.buffer = torch.empty(needed)
        buffer = _thread.buffer
    return -(-buffer.data_ptr() // 64) * 64


def _aligned(floats: int) -> int:
    return -(-floats // _ALIGNMENT) * _ALIGNMENT
