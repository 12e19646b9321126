"""Blocks of four bits whose weights are a scale times numbers of a table, of GGUF files and of folders.

Files give codes, places in the table. Products take the table's numbers as signed bytes: those of IQ4 and MXFP4 are
whole, those of NF4 and FP4 are rounded.
Letters: N rows, K elements in a row, G groups of 32 in a row, n blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.quantization.folder_blocks import BLOCK_BYTES, FP4, NF4, half, look_up, nibbles, number

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Numbers of IQ4_NL and IQ4_XS (llama.cpp, ggml-common.h, MIT)."""
E2M1 = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, -0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0)
EXPONENTS = torch.arange(-128, 128).float().exp2()
"""Twice the numbers and half the scales of MXFP4, by their codes (OCP Microscaling Formats, version 1.0)."""
GROUP_SIZE = 32


@dataclass(frozen=True, slots=True)
class TableGroups:
    """A four-bit matrix: w = scale * table[code]. codes: (N, K) uint8   scale: (N, G) float32   table: (16,) int8."""

    codes: torch.Tensor
    scale: torch.Tensor
    table: torch.Tensor


class _Type:
    """A type of blocks. numbers: its table   factor: what makes them whole, or nearly so."""

    def __init__(
        self,
        block_bytes: int,
        numbers: tuple[float, ...],
        factor: float,
        take_apart: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        self.block_bytes, self.factor, self.take_apart = block_bytes, factor, take_apart
        self.numbers = torch.tensor(numbers).float()
        self.table = (self.numbers * factor).round().to(torch.int8)

    def open(self, blocks: torch.Tensor) -> torch.Tensor:
        """Dequantise blocks exactly. (n, bytes) uint8  ->  (n, elements) float32."""
        codes, scale = self.take_apart(blocks)
        return (look_up(self.numbers, codes).view(*scale.shape, GROUP_SIZE) * scale[..., None]).flatten(1)


def table_groups(type_name: str, data: torch.Tensor) -> TableGroups:
    """Take a matrix of one of TABLE_TYPES apart. data: (N, bytes per row) uint8."""
    kind = _TYPES[type_name]
    codes, scale = kind.take_apart(data.reshape(-1, kind.block_bytes))
    return TableGroups(codes.view(len(data), -1), scale.reshape(len(data), -1) / kind.factor, kind.table)


def _iq4_nl(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return nibbles(blocks, 2), half(blocks, 0)


def _iq4_xs(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Six bits of scale for each of eight groups: two of each in bytes 2 and 3, four in bytes 4 to 7."""
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8)
    high = (blocks[:, 2:4, None] >> shifts & 3).flatten(1)
    low = torch.stack((blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4), dim=2).flatten(1)
    codes = nibbles(blocks[:, 8:].reshape(-1, GROUP_SIZE // 2), 0).view(-1, 256)
    return codes, half(blocks, 0) * ((low | high << 4).float() - 32)


def _mxfp4(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return nibbles(blocks, 1), look_up(EXPONENTS, blocks[:, :1])


def _bitsandbytes(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return nibbles(blocks, 4), number(blocks, 0)


_TYPES = {
    "IQ4_NL": _Type(18, IQ4, 1, _iq4_nl),
    "IQ4_XS": _Type(136, IQ4, 1, _iq4_xs),
    "MXFP4": _Type(17, E2M1, 1, _mxfp4),
    "NF4": _Type(BLOCK_BYTES["NF4"], NF4, 124, _bitsandbytes),
    "FP4": _Type(BLOCK_BYTES["FP4"], FP4, 120, _bitsandbytes),
}
"""Of the factors up to 127, those with the least error on normal weights: at most 1/256 of a block's largest weight."""
TABLE_TYPES = _TYPES.keys()
TABLE_BLOCKS = {name: (kind.block_bytes, kind.open) for name, kind in _TYPES.items()}
"""Type -> bytes of a block, and what opens blocks: (n, bytes) -> (n, elements) float32."""
