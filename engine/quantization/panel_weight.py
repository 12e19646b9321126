"""Integer weights with eight-bit activations on our own kernels, for any number of rows, where the processor has AVX2.

Inputs are quantised per row and group of 32, an error of about half a percent of the output's spread. Weights of four
to six bits keep the file's numbers, those from a table too; others take eight bits with a scale per output and group.
Layouts: engine.kernels.cpu.panels. Steps of inputs: docs/decisions/0021.
"""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators
from engine.kernels.cpu.integer_vectors import (
    CHUNKS,
    GROUP,
    LANE_INPUTS,
    LANES,
    PANEL,
    VECTORS,
    ZERO,
    has_tiles,
    is_available,
)
from engine.kernels.cpu.panels import FORMATS, SUPERBLOCK, PackedPanel, TablePanel
from engine.quantization.gguf_blocks import FourBitGroups, PackedGroups
from engine.quantization.stored import StoredMatrix
from engine.quantization.table_blocks import TableGroups
from engine.quantization.torch_forms import quantize_groups

ALIGNMENT = 64
PACK_ELEMENTS = 1 << 20
"""Weights that are packed at a time: what comes between stays in the caches, and calls of torch take little time."""
TABLE, EIGHT = FORMATS.index(TablePanel()), len(FORMATS) - 1


class PanelWeight:
    """A weight of N outputs and K inputs, of parts stacked by outputs.

    parts: panels (N / 32, bytes) uint8, the last one filled up with zeros, and the number of their format in FORMATS

    With `may_take_tiles` (AMX) many rows are multiplied in bfloat16. That is faster and more exact, but a row's result
    then depends a little on how many rows there are.
    """

    input_dtype = torch.float32

    def __init__(self, num_outputs: int, *parts: tuple[torch.Tensor, int], may_take_tiles: bool = False) -> None:
        assert has_tiles() or not may_take_tiles
        self._num_outputs = num_outputs
        self._may_take_tiles = may_take_tiles
        self.parts = [(_aligned(panels), form) for panels, form in parts]
        self.num_bytes = sum(panels.nbytes for panels, _ in parts)

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Return True if this processor has the instructions and the kernels take a matrix of this shape."""
        return is_available() and shape[1] % GROUP == 0

    @classmethod
    def of_matrix(cls, matrix: StoredMatrix, *, may_take_tiles: bool = False) -> PanelWeight:
        """Pack every part of a matrix in the numbers of its file, or in eight bits if no format holds them."""
        runs = matrix.runs()
        if any(run.shape[0] % PANEL for run in runs[:-1]):
            parts = cls.eight_bit(*quantize_groups(matrix)).parts
        else:
            parts = [*map(_packed_run, runs)]
        return cls(matrix.shape[0], *parts, may_take_tiles=may_take_tiles)

    @classmethod
    def four_bit(cls, groups: FourBitGroups) -> PanelWeight:
        """Pack a four-bit matrix, its scales and minima in half precision."""
        return cls.packed(PackedGroups(4, groups.q, (groups.scale.half(), groups.minimum.half())))

    @classmethod
    def packed(cls, groups: PackedGroups) -> PanelWeight:
        """Pack a matrix of four to six bits."""
        num_outputs = len(groups.q)
        blocks = [_levels(_whole_panels(groups.q), groups.bits), *map(_numbers, groups.numbers)]
        panels = torch.cat(blocks, dim=2)
        if groups.factors:
            superblocks = panels.view(len(panels), -1, SUPERBLOCK * panels.shape[2])
            panels = torch.cat([*map(_numbers, groups.factors), superblocks], dim=2)
        return cls(num_outputs, (panels.flatten(1), FORMATS.index(PackedPanel(groups.bits, len(groups.factors)))))

    @classmethod
    def tabled(cls, groups: TableGroups) -> PanelWeight:
        """Pack a four-bit matrix whose weights come from a table, its scales as shares of a power of two."""
        exponent = groups.scale.abs().amax(dim=1).frexp().exponent - 1
        shares = groups.scale.ldexp(-exponent[:, None]).half()
        blocks = torch.cat([_levels(_whole_panels(groups.codes), 4), _numbers(shares)], dim=2)
        table = (groups.table.view(torch.uint8) ^ ZERO).repeat(4).expand(len(blocks), -1)
        scale = _whole_panels(torch.ones(len(shares)).ldexp(exponent)).view(-1, PANEL).view(torch.uint8)
        return cls(len(shares), (torch.cat([table, blocks.flatten(1), scale], dim=1), TABLE))

    @classmethod
    def eight_bit(cls, values: torch.Tensor, scale: torch.Tensor) -> PanelWeight:
        """Pack an eight-bit matrix. values: (N, K) int8   scale: (N, K / 32), or (N, 1) for whole rows, float32."""
        num_outputs, num_inputs = values.shape
        largest = scale.amax(dim=1)
        shares = (scale / largest[:, None]).nan_to_num_(0.0).half().expand(-1, num_inputs // GROUP)
        unsigned = _whole_panels(values).view(torch.uint8) ^ ZERO
        lanes = unsigned.view(-1, PANEL, num_inputs // LANE_INPUTS, LANE_INPUTS).transpose(1, 2)
        blocks = torch.cat([lanes.reshape(len(lanes), num_inputs // GROUP, GROUP * PANEL), _numbers(shares)], dim=2)
        panels = torch.cat([blocks.flatten(1), _whole_panels(largest).view(-1, PANEL).view(torch.uint8)], dim=1)
        return cls(num_outputs, (panels, EIGHT))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) float32."""
        out = operators.multiply(x.float(), *self.parts, may_take_tiles=self._may_take_tiles)
        return out if out.shape[1] == self._num_outputs else out[:, : self._num_outputs].contiguous()

    def __deepcopy__(self, memo: dict) -> PanelWeight:
        parts = ((panels.clone(), form) for panels, form in self.parts)
        return PanelWeight(self._num_outputs, *parts, may_take_tiles=self._may_take_tiles)


def _packed_run(matrix: StoredMatrix) -> tuple[torch.Tensor, int]:
    """Pack a matrix whose parts have one form, some rows at a time."""
    num_outputs, num_inputs = matrix.shape
    num_rows = max(1, PACK_ELEMENTS // num_inputs // PANEL) * PANEL
    whole, form = torch.empty(0), EIGHT
    for first in range(0, num_outputs, num_rows):
        rows = matrix.rows(first, min(num_rows, num_outputs - first))
        if matrix.is_packed:
            weight = PanelWeight.packed(rows.to_packed_groups())
        elif matrix.has_table:
            weight = PanelWeight.tabled(rows.to_table_groups())
        else:
            weight = PanelWeight.eight_bit(*quantize_groups(rows))
        ((panels, form),) = weight.parts
        if not first:
            whole = _aligned_empty(-(-num_outputs // PANEL), panels.shape[1])
        whole[first // PANEL : first // PANEL + len(panels)] = panels
    return whole, form


def _whole_panels(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows, and zeros up to the end of the last panel."""
    missing = -len(rows) % PANEL
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows


def _levels(q: torch.Tensor, bits: int) -> torch.Tensor:
    """Lay out levels (N, K) as in a panel's blocks: (panels, groups, bytes) uint8."""
    words = q.view(torch.int32).view(-1, VECTORS, LANES, q.shape[1] // GROUP, CHUNKS)
    low = words & 0x0F0F0F0F if bits > 4 else words
    lines = [low[..., 0::2] | low[..., 1::2] << 4]
    if further := bits - 4:
        fields = (words >> 4 & 0x01010101 * ((1 << further) - 1)).unflatten(4, (further, -1))
        lines.append(sum(fields.select(5, i) << further * i for i in range(fields.shape[5])))
    return torch.cat([line.permute(0, 3, 4, 1, 2).flatten(2) for line in lines], dim=2).view(torch.uint8)


def _numbers(numbers: torch.Tensor) -> torch.Tensor:
    """Lay out numbers of outputs (N, G) by panel and group: (panels, G, bytes) uint8."""
    whole = _whole_panels(numbers)
    return whole.view(-1, PANEL, whole.shape[1]).transpose(1, 2).contiguous().view(torch.uint8)


def _aligned(panels: torch.Tensor) -> torch.Tensor:
    """Return the panels at an address that the kernels take: a copy, unless they are there."""
    is_aligned = panels.is_contiguous() and panels.data_ptr() % ALIGNMENT == 0
    return panels if is_aligned else _aligned_empty(*panels.shape).copy_(panels)


def _aligned_empty(num_panels: int, num_bytes: int) -> torch.Tensor:
    buffer = torch.empty(num_panels * num_bytes + ALIGNMENT, dtype=torch.uint8)
    start = -buffer.data_ptr() % ALIGNMENT
    return buffer[start : start + num_panels * num_bytes].view(num_panels, num_bytes)
