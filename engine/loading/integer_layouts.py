"""Layouts of integers in 32-bit words, with a scale and a zero point for each group of inputs: AWQ, GPTQ, and
compressed-tensors' pack-quantized.

w = (level - zero point) * scale. Words hold levels from their lowest bits on. Four bits become groups of four bits, to
be computed as they are; others are dequantised when their form is built.
Letters: N outputs, K inputs, G groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.loading.layout import FLOATS, Layout, Module
from engine.quantization.folder_blocks import (
    BLOCK,
    BLOCK_BYTES,
    INT4_GROUPS,
    INT8_GROUPS,
    INT8_ROWS,
    block_rows,
    nibble_blocks,
)
from engine.quantization.stored import StoredMatrix, StoredPart

WORD = 32
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where a word has each of its eight outputs, from its lowest bits on."""
MAX_HALF, HALF_ERROR = 65504, 2.0**-11
INTEGERS = ("I32",)


@dataclass(frozen=True, slots=True)
class Groups:
    """Scales and zero points of a matrix: (N, G) float32 each. size: inputs in a group; the last may have fewer."""

    size: int
    scale: torch.Tensor
    zero: torch.Tensor

    def by_block(self, numbers: torch.Tensor, num_inputs: int) -> torch.Tensor:
        """Repeat numbers of groups for each block: (N, B)."""
        return numbers[:, torch.arange(num_inputs // BLOCK) * BLOCK // self.size]

    def fit_half(self) -> bool:
        """Return True if half precision, as four-bit products have it, holds the numbers to 1/2048 of the largest."""
        minimum = self.zero * self.scale
        return all(
            numbers.abs().max() <= MAX_HALF
            and bool(((numbers.half().float() - numbers).abs() <= HALF_ERROR * numbers.abs().amax(1, True)).all())
            for numbers in (self.scale, minimum)
        )


@dataclass(frozen=True, slots=True)
class Awq(Layout):
    """AutoAWQ's "gemm". qweight: (K, N / 8) words of outputs   qzeros: (G, N / 8)   scales: (G, N)."""

    group_size: int
    main = "qweight"
    others = ("qzeros", "scales")

    def shape(self, module: Module) -> tuple[int, int]:
        num_inputs, num_words = _matrix_shape(module, self.main)
        groups, outputs = num_groups(num_inputs, self.group_size), num_words * 8
        module.check("qzeros", INTEGERS, (groups, num_words))
        module.check("scales", FLOATS, (groups, outputs))
        return outputs, module.whole_blocks(self.main, num_inputs)

    def matrix(self, module: Module) -> StoredMatrix:
        shape, words = self.shape(module), module.read(self.main)
        zero = unpack(module.read("qzeros").T, 4, 0, AWQ_ORDER).float()
        groups = Groups(_size(self.group_size, shape), module.numbers("scales").T, zero)

        def levels(rows: slice) -> torch.Tensor:
            return unpack(words[:, rows.start // 8 : rows.stop // 8].T.contiguous(), 4, 0, AWQ_ORDER)

        return integer_matrix(shape, 4, groups, levels)


@dataclass(frozen=True, slots=True)
class Gptq(Layout):
    """GPTQ's. qweight: (K / per word, N) words of inputs   qzeros: (G, N / per word)   scales: (G, N)   g_idx: (K,).

    zero_offset: what is added to the zero points, 1 in the first version of the format.
    """

    bits: int
    group_size: int
    zero_offset: int
    main = "qweight"
    others = ("qzeros", "scales", "g_idx")

    def shape(self, module: Module) -> tuple[int, int]:
        num_words, outputs = _matrix_shape(module, self.main)
        per_word = WORD // self.bits
        num_inputs = module.whole_blocks(self.main, num_words * per_word)
        groups = num_groups(num_inputs, self.group_size)
        module.check("qzeros", INTEGERS, (groups, -(-outputs // per_word)))
        module.check("scales", FLOATS, (groups, outputs))
        if module.has("g_idx"):
            module.check("g_idx", ("I32", "I64"), (num_inputs,))
        return outputs, num_inputs

    def matrix(self, module: Module) -> StoredMatrix:
        shape, words = self.shape(module), module.read(self.main)
        zero = unpack(module.read("qzeros"), self.bits, 1)[:, : shape[0]].T
        zero = ((zero.int() + self.zero_offset) & ((1 << self.bits) - 1)).float()
        groups = Groups(_size(self.group_size, shape), module.numbers("scales").T, zero)
        order = group_order(module, "g_idx", groups)
        return integer_matrix(shape, self.bits, groups, lambda rows: unpack(words[:, rows], self.bits, 0).T, order)


@dataclass(frozen=True, slots=True)
class PackedIntegers(Layout):
    """compressed-tensors' pack-quantized: levels without their sign.

    weight_packed: (N, K / per word) words of inputs   weight_shape: N, K   weight_scale: (N, G), or one number
    weight_zero_point: (N / per word, G) words of outputs, or (N, G) int8   weight_g_idx: (K,)
    """

    bits: tuple[int, ...]
    group_sizes: tuple[int, ...]
    main = "weight_packed"
    others = ("weight_shape", "weight_scale", "weight_zero_point", "weight_g_idx")

    def takes(self, module: Module) -> bool:
        return module.dtype(self.main) in INTEGERS

    def shape(self, module: Module) -> tuple[int, int]:
        module.check("weight_shape", ("I64", "I32"), (2,))
        outputs, num_inputs = map(int, module.read("weight_shape").tolist())
        module.whole_blocks("weight_shape", num_inputs)
        module.check(self.main, INTEGERS, *((outputs, num_inputs * bits // WORD) for bits in self.bits))
        counts = {num_groups(num_inputs, size) for size in self.group_sizes}
        module.check("weight_scale", FLOATS, *((outputs, count) for count in sorted(counts)), (1,))
        groups = self._num_groups(module)
        if module.has("weight_zero_point"):
            is_packed = module.dtype("weight_zero_point") == "I32"
            per_word = WORD // self._bits(module, num_inputs) if is_packed else 1
            module.check("weight_zero_point", ("I32", "I8"), (-(-outputs // per_word), groups))
        if module.has("weight_g_idx"):
            module.check("weight_g_idx", ("I32", "I64"), (num_inputs,))
        return outputs, num_inputs

    def matrix(self, module: Module) -> StoredMatrix:
        shape, words = self.shape(module), module.read(self.main)
        bits, count = self._bits(module, shape[1]), self._num_groups(module)
        scale = module.numbers("weight_scale").expand(shape[0], count)
        sizes = (_size(size, shape) for size in self.group_sizes if num_groups(shape[1], size) == count)
        groups = Groups(next(sizes, shape[1]), scale, self._zero(module, bits, scale))
        order = group_order(module, "weight_g_idx", groups) if self._has_order(module) else None
        return integer_matrix(shape, bits, groups, lambda rows: unpack(words[rows], bits, 1), order)

    def _has_order(self, module: Module) -> bool:
        """Return True if inputs are grouped by activation; an index with a -1 was never set: they are in order."""
        return module.has("weight_g_idx") and not bool((module.read("weight_g_idx") == -1).any())

    def _bits(self, module: Module, num_inputs: int) -> int:
        return module.shape(self.main)[1] * WORD // num_inputs

    def _num_groups(self, module: Module) -> int:
        return (*module.shape("weight_scale"), 1)[1]

    def _zero(self, module: Module, bits: int, scale: torch.Tensor) -> torch.Tensor:
        middle = 1 << (bits - 1)
        if not module.has("weight_zero_point"):
            return torch.full_like(scale, middle)
        zero = module.read("weight_zero_point")
        if zero.dtype == torch.int8:
            return zero.float() + middle
        return unpack(zero, bits, 0)[: len(scale)].float()


def unpack(words: torch.Tensor, bits: int, dim: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Unpack the levels of words, which follow each other in `dim`: uint8. `order`: the place of each in its word."""
    places = torch.arange(WORD // bits) if order is None else torch.tensor(order)
    shifts = (places * bits).int()
    levels = words.unsqueeze(dim + 1) >> (shifts if dim else shifts[:, None]) & ((1 << bits) - 1)
    return levels.to(torch.uint8).flatten(dim, dim + 1)


def num_groups(num_inputs: int, group_size: int) -> int:
    """Return the number of groups of a row; a size of -1 means one."""
    return 1 if group_size < 0 else -(-num_inputs // group_size)


def _size(group_size: int, shape: tuple[int, int]) -> int:
    return shape[1] if group_size < 0 else group_size


def _matrix_shape(module: Module, suffix: str) -> tuple[int, int]:
    shape = module.shape(suffix)
    if len(shape) != 2 or module.dtype(suffix) not in INTEGERS:
        raise module.wrong(suffix, f"must be a matrix of I32, got {module.dtype(suffix)} in the shape {shape}")
    return shape[0], shape[1]


def group_order(module: Module, suffix: str, groups: Groups) -> torch.Tensor | None:
    """Return the order of the inputs that sorts them by group, None if they are sorted. Raises ModelLoadError."""
    if not module.has(suffix):
        return None
    index = module.read(suffix).long()
    sorted_index = torch.arange(len(index)) // groups.size
    if torch.equal(index, sorted_index):
        return None
    if not torch.equal(index.sort().values, sorted_index):
        raise module.wrong(
            suffix, f"must give {groups.size} inputs to each of {groups.scale.shape[1]} groups; it does not"
        )
    return index.argsort(stable=True)


def integer_matrix(
    shape: tuple[int, int],
    bits: int,
    groups: Groups,
    levels: Callable[[slice], torch.Tensor],
    order: torch.Tensor | None = None,
) -> StoredMatrix:
    """Lay a matrix into blocks. `levels` returns some rows, (n, K) uint8; `order`: of inputs, sorted by group."""
    scale, zero = (groups.by_block(numbers, shape[1]) for numbers in (groups.scale, groups.zero))
    is_four_bit = bits == 4 and groups.fit_half()
    is_by_row = bits == 8 and groups.size >= shape[1] and bool((groups.zero == 128).all())
    kind = INT4_GROUPS if is_four_bit else INT8_ROWS if is_by_row else INT8_GROUPS

    def blocks(rows: slice) -> tuple[torch.Tensor, ...]:
        some = levels(rows)
        some = some.contiguous() if order is None else some[:, order]
        if is_by_row:
            return scale[rows], (some ^ 128).view(len(some), -1, BLOCK)
        packed = nibble_blocks(some) if is_four_bit else some.view(len(some), -1, BLOCK)
        return scale[rows], zero[rows], packed

    columns = None if order is None else order.argsort()
    return StoredMatrix((StoredPart(kind, block_rows(shape, BLOCK_BYTES[kind], blocks), columns),), shape)
