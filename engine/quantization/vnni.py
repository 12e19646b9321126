"""Integer weights with eight-bit activations on our own kernels, for any number of rows, where the processor has VNNI.

Inputs are quantised per row and group of 32, an error of about half a percent of the output's spread. Four-bit weights
keep the file's numbers (scales and minima in half precision, as Q4_0 and Q4_1 store them). Layouts:
engine.kernels.cpu.panels.
"""

from __future__ import annotations

import torch

from engine.kernels.cpu import operators
from engine.kernels.cpu.integer_vectors import GROUP, LANE_INPUTS, LANES, PANEL, VECTORS, is_available
from engine.kernels.cpu.panels import ZERO
from engine.quantization.gguf_blocks import FourBitGroups
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import quantize_rows

ALIGNMENT = 64


class VnniWeight:
    """A weight of N outputs and K inputs, of parts stacked by outputs.

    parts: panels (N / 32, bytes) uint8, the last one filled up with zeros, and bits
    """

    input_dtype = torch.float32

    def __init__(self, num_outputs: int, *parts: tuple[torch.Tensor, int]) -> None:
        self._num_outputs = num_outputs
        self.parts = [(_aligned_copy(panels), bits) for panels, bits in parts]
        self.num_bytes = sum(panels.nbytes for panels, _ in parts)

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Return True if this processor has the instructions and the kernels take a matrix of this shape."""
        return is_available() and shape[1] % GROUP == 0

    @classmethod
    def of_matrix(cls, matrix: StoredMatrix) -> VnniWeight:
        """Pack a matrix in eight bits, but keep the four-bit parts of a mixed one in four."""
        runs = matrix.runs()
        if len(runs) == 1 or any(run.shape[0] % PANEL for run in runs[:-1]):
            return cls.eight_bit(*quantize_rows(matrix.open_rows()))
        weights = [cls.four_bit(run.to_four_bit_groups()) if run.is_four_bit else cls.of_matrix(run) for run in runs]
        return cls(matrix.shape[0], *(part for weight in weights for part in weight.parts))

    @classmethod
    def four_bit(cls, groups: FourBitGroups) -> VnniWeight:
        """Pack a four-bit matrix."""
        num_outputs, num_groups = groups.scale.shape
        num_panels = -(-num_outputs // PANEL)
        q = _whole_panels(groups.q).view(num_panels, VECTORS, LANES, num_groups, -1, 2, LANE_INPUTS)
        nibbles = (q[..., 0, :] | q[..., 1, :] << 4).permute(0, 3, 4, 1, 2, 5).reshape(num_panels, num_groups, -1)
        shape = (num_panels, PANEL, num_groups)
        numbers = [_whole_panels(part).view(shape) for part in (groups.scale, groups.minimum)]
        halves = torch.cat([part.transpose(1, 2).half() for part in numbers], dim=-1)
        return cls(num_outputs, (torch.cat([nibbles, halves.view(torch.uint8)], dim=-1).flatten(1), 4))

    @classmethod
    def eight_bit(cls, values: torch.Tensor, scale: torch.Tensor) -> VnniWeight:
        """Pack an eight-bit matrix. values: (N, K) int8   scale: (N,) float32."""
        num_outputs, num_inputs = values.shape
        unsigned = _whole_panels(values).view(torch.uint8) ^ ZERO
        lanes = unsigned.view(-1, PANEL, num_inputs // LANE_INPUTS, LANE_INPUTS).transpose(1, 2).flatten(1)
        return cls(num_outputs, (torch.cat([lanes, _whole_panels(scale).view(-1, PANEL).view(torch.uint8)], dim=1), 8))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) float32."""
        out = operators.multiply(x.float(), *self.parts)
        return out if out.shape[1] == self._num_outputs else out[:, : self._num_outputs].contiguous()

    def __deepcopy__(self, memo: dict) -> VnniWeight:
        return VnniWeight(self._num_outputs, *self.parts)


def _whole_panels(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows, and zeros up to the end of the last panel."""
    missing = -len(rows) % PANEL
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows


def _aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty(tensor.numel() + ALIGNMENT, dtype=torch.uint8)
    start = -buffer.data_ptr() % ALIGNMENT
    return buffer[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
