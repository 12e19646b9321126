"""Blocks of 32 weights into which matrices of quantised folders are laid, so that rows can be cut and reordered alone.

Folders keep levels and their numbers in tensors of their own, some packed along outputs. A block holds a scale
(float32), for uniform levels of either sign a zero point (float32), and 32 levels in four or eight bits. Nothing is
rounded: a block opens to the float32 numbers that the definition of its format gives.
Letters: N rows, K elements in a row, B blocks in a row, n blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

BLOCK = 32
"""Weights in a block."""
PACK_ELEMENTS = 1 << 22
"""Weights that are laid into blocks at a time."""
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334)
NF4 += (-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224)
NF4 += (0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
"""Levels of NormalFloat (https://arxiv.org/abs/2305.14314, appendix E), as shares of a block's largest weight."""
FP4 = (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25)
FP4 += tuple(-level for level in FP4)
"""Levels of bitsandbytes' FP4, of one sign bit, two of exponent and one of mantissa."""
E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
"""The numbers of FP8 (https://arxiv.org/abs/2209.05433) by their bytes."""


def block_rows(
    shape: tuple[int, int], block_bytes: int, blocks: Callable[[slice], tuple[torch.Tensor, ...]]
) -> torch.Tensor:
    """Lay a matrix into blocks, some rows at a time: (N, B * block_bytes) uint8.

    `blocks` returns for some rows what follows each other in a block: numbers (n, B) float32, levels (n, B, bytes).
    """
    num_rows, num_blocks = shape[0], shape[1] // BLOCK
    out = torch.empty(num_rows, num_blocks, block_bytes, dtype=torch.uint8)
    height = max(1, PACK_ELEMENTS // shape[1] // BLOCK) * BLOCK
    for first in range(0, num_rows, height):
        rows = slice(first, min(first + height, num_rows))
        start = 0
        for part in blocks(rows):
            stored = part if part.dtype == torch.uint8 else part.contiguous().view(torch.uint8).view(*part.shape, -1)
            out[rows, :, start : start + stored.shape[2]] = stored
            start += stored.shape[2]
    return out.flatten(1)


def nibble_blocks(levels: torch.Tensor) -> torch.Tensor:
    """Pack levels below 16, each block's first half in the low nibbles. (n, K) uint8  ->  (n, B, 16) uint8."""
    halves = levels.view(len(levels), -1, 2, BLOCK // 2)
    return halves[:, :, 0] | halves[:, :, 1] << 4


def uniform_groups(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Take INT4_GROUPS apart: levels (n, 32) uint8, scale and minimum (n, 1) float32."""
    scale = number(blocks, 0)
    return nibbles(blocks, 8), scale, -number(blocks, 4) * scale


def byte_rows(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Take rows of INT8_ROWS apart: levels (N, K) int8 and scales (N,) float32."""
    blocks = data.view(len(data), -1, 4 + BLOCK)
    return blocks[:, :, 4:].flatten(1).view(torch.int8), number(blocks[:, 0], 0).flatten()


def number(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """Read the float32 at byte `start` of each block: (n, 1)."""
    return blocks[:, start : start + 4].clone(memory_format=torch.contiguous_format).view(torch.float32)


def half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """Read the float16 at byte `start` of each block: (n, 1) float32."""
    return blocks[:, start : start + 2].contiguous().view(torch.float16).float()


def nibbles(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """Unpack the 16 bytes at `start` of each block, as `nibble_blocks` packs them: (n, 32) uint8.

    Four bytes at a time, as torch is slow with bytes.
    """
    words = blocks[:, start : start + BLOCK // 2].clone(memory_format=torch.contiguous_format).view(torch.int32)
    return torch.cat((words & 0x0F0F0F0F, words >> 4 & 0x0F0F0F0F), dim=1).view(torch.uint8)


def _open_int4_groups(blocks: torch.Tensor) -> torch.Tensor:
    return (nibbles(blocks, 8).float() - number(blocks, 4)) * number(blocks, 0)


def _open_int8_groups(blocks: torch.Tensor) -> torch.Tensor:
    return (blocks[:, 8:].float() - number(blocks, 4)) * number(blocks, 0)


def _open_int8_rows(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 4:].view(torch.int8).float() * number(blocks, 0)


def _open_fp8(blocks: torch.Tensor) -> torch.Tensor:
    return look_up(E4M3, blocks[:, 4:]) * number(blocks, 0)


def look_up(table: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return the table's number for each code: (n, m) uint8  ->  (n, m) float32. Quicker than torch's conversions."""
    return table.index_select(0, codes.flatten().int()).view(codes.shape)


INT4_GROUPS, INT8_GROUPS, INT8_ROWS = "INT4_GROUPS", "INT8_GROUPS", "INT8_ROWS"
BLOCK_BYTES = {INT4_GROUPS: 24, INT8_GROUPS: 40, INT8_ROWS: 36, "FP8": 36, "NF4": 20, "FP4": 20}
"""Type -> bytes of a block. The levels of INT8_ROWS are signed, and all blocks of a row have one scale."""
_OPENERS = {
    INT4_GROUPS: _open_int4_groups,
    INT8_GROUPS: _open_int8_groups,
    INT8_ROWS: _open_int8_rows,
    "FP8": _open_fp8,
}
FOLDER_BLOCKS = {name: (BLOCK_BYTES[name], open_blocks) for name, open_blocks in _OPENERS.items()}
"""Type -> bytes of a block, and what opens blocks: (n, bytes) -> (n, 32) float32."""
