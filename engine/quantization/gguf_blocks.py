"""Dequantisation of the block formats of GGUF files, with vectorised torch.

A block holds 32 or 256 neighbouring elements of a row: small integers with shared scales. The layouts are those of ggml
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h, MIT). Every output element is written. The gguf package
opens the types that we have no code for. Types with a table are those of `table_blocks`, those of folders of
`folder_blocks`.
Letters: N rows, K elements in a row, G groups of 32 in a row, n blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from engine.quantization.folder_blocks import FOLDER_BLOCKS, INT4_GROUPS, half, nibbles, uniform_groups
from engine.quantization.table_blocks import TABLE_BLOCKS

GROUP_SIZE = 32
FOUR_BIT_TYPES = frozenset({"Q4_0", "Q4_1", "Q4_K", "TQ1_0", "TQ2_0", INT4_GROUPS})
"""Types whose numbers the four-bit forms hold as they are; ternary ones too, in more bits than they need."""


@dataclass(frozen=True, slots=True)
class FourBitGroups:
    """A four-bit matrix: w = scale * q + minimum. q: (N, K) uint8 in 0..15   scale, minimum: (N, G) float32."""

    q: torch.Tensor
    scale: torch.Tensor
    minimum: torch.Tensor


@dataclass(frozen=True, slots=True)
class PackedGroups:
    """A matrix of a few bits in the numbers of its file, whose groups have two numbers each.

    q: (N, K) uint8 below 2^bits   numbers: two (N, G)   factors: (N, K / 256) float16 each

    Without factors: numbers are a scale and a minimum (float16), w = scale * q + minimum. With two: the same in bytes,
    w = factor0 * scale * q + factor1 * minimum. With one: numbers are the scales (int8) of the first and last 16
    elements, w = factor * scale * (q - 2^(bits - 1)).
    """

    bits: int
    q: torch.Tensor
    numbers: tuple[torch.Tensor, torch.Tensor]
    factors: tuple[torch.Tensor, ...] = ()


def dequantize(type_name: str, data: torch.Tensor) -> torch.Tensor:
    """Dequantise rows of blocks. data: (N, bytes per row) uint8  ->  (N, K) float32."""
    num_rows = data.shape[0]
    if type_name in FLOAT_DTYPES:
        return data.view(FLOAT_DTYPES[type_name]).float()
    if type_name not in _BLOCKS:
        return _open_by_library(type_name, data)
    block_bytes, open_blocks = _BLOCKS[type_name]
    return open_blocks(data.reshape(-1, block_bytes)).reshape(num_rows, -1)


def _open_by_library(type_name: str, data: torch.Tensor) -> torch.Tensor:
    import gguf  # imported late: most files do without

    with np.errstate(all="ignore"):
        return torch.from_numpy(gguf.dequantize(data.numpy(), gguf.GGMLQuantizationType[type_name]))


def four_bit_groups(type_name: str, data: torch.Tensor) -> FourBitGroups:
    """Split a 4-bit matrix into groups, without dequantising it. data: (N, bytes per row) uint8."""
    num_rows = data.shape[0]
    block_bytes, take_apart = _GROUPS[type_name]
    q, scale, minimum = take_apart(data.reshape(-1, block_bytes))
    return FourBitGroups(q.reshape(num_rows, -1), scale.reshape(num_rows, -1), minimum.reshape(num_rows, -1))


def packed_groups(type_name: str, data: torch.Tensor) -> PackedGroups:
    """Take a matrix of one of PACKED_TYPES apart. data: (N, bytes per row) uint8."""
    factors: tuple[torch.Tensor, ...] = ()
    if type_name in _SUPERBLOCKS:
        block_bytes, bits, take_parts = _SUPERBLOCKS[type_name]
        q, numbers, factors = take_parts(data.reshape(-1, block_bytes))
    else:
        bits = 4 if type_name in FOUR_BIT_TYPES else 5
        block_bytes, take_apart = _GROUPS[type_name]
        q, scale, minimum = take_apart(data.reshape(-1, block_bytes))
        numbers = (scale.half(), minimum.half())
    by_row = [part.reshape(len(data), -1) for part in (q, *numbers, *(factor.half() for factor in factors))]
    return PackedGroups(bits, by_row[0], (by_row[1], by_row[2]), tuple(by_row[3:]))


def _words(blocks: torch.Tensor, start: int, end: int) -> torch.Tensor:
    """Read bytes of each block, four to a word: (n, (end - start) / 4) int32. Torch is slow with bytes."""
    return blocks[:, start:end].clone(memory_format=torch.contiguous_format).view(torch.int32)


def _fields(words: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Cut each byte of words into fields of a few bits, the lowest first, each as a byte: fields follow in `dim`."""
    mask = 0x01010101 * ((1 << bits) - 1)
    return torch.cat([words >> shift & mask for shift in range(0, 8, bits)], dim=dim)


def _bytes(words: torch.Tensor, num_elements: int) -> torch.Tensor:
    return words.view(torch.uint8).view(-1, num_elements)


def _fifth_bits(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """Unpack the 32 bits at byte `start`, as 0 or 16: (n, 32) uint8."""
    bits = blocks[:, start : start + 4, None] >> torch.arange(8, dtype=torch.uint8)
    return (bits.reshape(-1, 32) & 1) << 4


def _q4_0_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale = half(blocks, 0)
    return nibbles(blocks, 2), scale, scale * -8


def _q4_1_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return nibbles(blocks, 4), half(blocks, 0), half(blocks, 2)


def _q5_0_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale = half(blocks, 0)
    return nibbles(blocks, 6) | _fifth_bits(blocks, 2), scale, scale * -16


def _q5_1_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return nibbles(blocks, 8) | _fifth_bits(blocks, 4), half(blocks, 0), half(blocks, 2)


def _q4_k_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _times_factors(*_q4_k_parts(blocks))


def _q5_k_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _times_factors(*_q5_k_parts(blocks))


def _times_factors(
    q: torch.Tensor, numbers: tuple[torch.Tensor, torch.Tensor], factors: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q, numbers[0] * factors[0], numbers[1] * factors[1]


_Parts = tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]
"""Levels, the two numbers of each group, and factors (float32), as in PackedGroups."""


def _q4_k_parts(blocks: torch.Tensor) -> _Parts:
    return _bytes(_k_nibbles(blocks, 16), 256), _k_scales(blocks), (half(blocks, 0), -half(blocks, 2))


def _q5_k_parts(blocks: torch.Tensor) -> _Parts:
    q = _k_nibbles(blocks, 48).view(-1, 8, 8) | _fields(_words(blocks, 16, 48)[:, None], 1, dim=1) << 4
    return _bytes(q, 256), _k_scales(blocks), (half(blocks, 0), -half(blocks, 2))


def _q3_k_parts(blocks: torch.Tensor) -> _Parts:
    low = _fields(_words(blocks, 32, 96).view(-1, 2, 1, 8), 2, dim=2)
    high = _fields(_words(blocks, 0, 32)[:, None], 1, dim=1).view(-1, 2, 4, 8)
    q = (low | high << 2) + 0x04040404  # levels around 4; those of four bits are around 8
    scale = _fields(_words(blocks, 96, 104), 4, dim=1) | _fields(_words(blocks, 104, 108), 2, dim=1) << 4
    scale = _bytes(scale, 16).view(torch.int8) - 32
    return _bytes(q, 256), (scale[:, 0::2], scale[:, 1::2]), (half(blocks, 108),)


def _q6_k_parts(blocks: torch.Tensor) -> _Parts:
    low = _fields(_words(blocks, 0, 128).view(-1, 2, 1, 16), 4, dim=2)
    high = _fields(_words(blocks, 128, 192).view(-1, 2, 1, 8), 2, dim=2)
    q = low.view(-1, 2, 4, 8) | high << 4
    scale = blocks[:, 192:208].view(torch.int8)
    return _bytes(q, 256), (scale[:, 0::2], scale[:, 1::2]), (half(blocks, 208),)


def _k_nibbles(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """Unpack the 128 bytes at `start`: of each 32 first the low nibbles, a group, then the high: (n, 4, 2, 8) int32."""
    return _fields(_words(blocks, start, start + 128).view(-1, 4, 1, 8), 4, dim=2)


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Unpack eight 6-bit scales and minima from the 12 bytes behind two float16: two (n, 8) uint8."""
    low, middle, high = _words(blocks, 4, 16).unbind(1)
    parts = ((low, high & 0x0F0F0F0F), (middle, high >> 4 & 0x0F0F0F0F))
    scale, minimum = (
        torch.stack((first & 0x3F3F3F3F, second | (first >> 6 & 0x03030303) << 4), dim=1) for first, second in parts
    )
    return _bytes(scale, 8), _bytes(minimum, 8)


def _tq1_0_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _ternary_groups("TQ1_0", blocks, half(blocks, 52))


def _tq2_0_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _ternary_groups("TQ2_0", blocks, half(blocks, 64))


def _ternary_groups(
    type_name: str, blocks: torch.Tensor, scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find the levels 7 to 10 of weights that are a block's scale times -1, 0, 1 (2 in no real file).

    They lie around 8, where torch's four-bit products have their zero: another one they round to bfloat16.
    """
    levels = (_open_by_library(type_name, blocks) / scale.where(scale != 0, 1) + 8).round()
    scale = scale.expand(-1, 8)
    return levels.to(torch.uint8), scale, scale * -8


def _open_groups(
    take_apart: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
) -> Callable[[torch.Tensor], torch.Tensor]:
    def open_blocks(blocks: torch.Tensor) -> torch.Tensor:
        q, scale, minimum = take_apart(blocks)
        groups = q.reshape(*scale.shape, GROUP_SIZE)
        return groups * scale[..., None] + minimum[..., None]

    return open_blocks


def _open_q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].view(torch.int8) * half(blocks, 0)


def _open_q3_k(blocks: torch.Tensor) -> torch.Tensor:
    return _open_centred(*_q3_k_parts(blocks), centre=8)


def _open_q6_k(blocks: torch.Tensor) -> torch.Tensor:
    return _open_centred(*_q6_k_parts(blocks), centre=32)


def _open_centred(
    q: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor], factors: tuple[torch.Tensor, ...], centre: int
) -> torch.Tensor:
    scale = torch.stack(scales, dim=2).flatten(1) * factors[0]
    return (q.reshape(-1, 16, 16).float() - centre) * scale[..., None]


HALVES = {
    "Q4_0": (18, (0,)),
    "Q4_1": (20, (0, 2)),
    "Q5_0": (22, (0,)),
    "Q5_1": (24, (0, 2)),
    "Q8_0": (34, (0,)),
    "Q2_K": (84, (80, 82)),
    "Q3_K": (110, (108,)),
    "Q4_K": (144, (0, 2)),
    "Q5_K": (176, (0, 2)),
    "Q6_K": (210, (208,)),
    "IQ2_XXS": (66, (0,)),
    "IQ2_XS": (74, (0,)),
    "IQ2_S": (82, (0,)),
    "IQ3_XXS": (98, (0,)),
    "IQ3_S": (110, (0,)),
    "IQ1_S": (50, (0,)),
    "IQ4_NL": (18, (0,)),
    "IQ4_XS": (136, (0,)),
    "TQ1_0": (54, (52,)),
    "TQ2_0": (66, (64,)),
}
"""Type -> bytes of a block, and where it has its scales in float16, by which alone a block can hold NaN."""

FLOAT_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_GROUPS = {
    "Q4_0": (18, _q4_0_groups),
    "Q4_1": (20, _q4_1_groups),
    "Q5_0": (22, _q5_0_groups),
    "Q5_1": (24, _q5_1_groups),
    "Q4_K": (144, _q4_k_groups),
    "Q5_K": (176, _q5_k_groups),
    "TQ1_0": (54, _tq1_0_groups),
    "TQ2_0": (66, _tq2_0_groups),
    INT4_GROUPS: (24, uniform_groups),
}

_SUPERBLOCKS: dict[str, tuple[int, int, Callable[[torch.Tensor], _Parts]]] = {
    "Q3_K": (110, 4, _q3_k_parts),
    "Q4_K": (144, 4, _q4_k_parts),
    "Q5_K": (176, 5, _q5_k_parts),
    "Q6_K": (210, 6, _q6_k_parts),
}
PACKED_TYPES = _GROUPS.keys() | _SUPERBLOCKS.keys()
"""Types whose numbers packed groups hold as they are."""

_BLOCKS: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    **{name: (block_bytes, _open_groups(take_apart)) for name, (block_bytes, take_apart) in _GROUPS.items()},
    "Q8_0": (34, _open_q8_0),
    "Q3_K": (110, _open_q3_k),
    "Q6_K": (210, _open_q6_k),
    **TABLE_BLOCKS,
    **FOLDER_BLOCKS,
}
