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

ALIGNMENT = 64


class VnniWeight:
    """A weight of N outputs and K inputs. panels: (N / 32, bytes) uint8, the last one filled up with zeros."""

    input_dtype = torch.float32

    def __init__(self, panels: torch.Tensor, num_outputs: int, bits: int) -> None:
        self._panels = _aligned_copy(panels)
        self._num_outputs = num_outputs
        self._bits = bits
        self.num_bytes = panels.nbytes

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Return True if this processor has the instructions and the kernels take a matrix of this shape."""
        return is_available() and shape[1] % GROUP == 0

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
        return cls(torch.cat([nibbles, halves.view(torch.uint8)], dim=-1).flatten(1), num_outputs, 4)

    @classmethod
    def eight_bit(cls, values: torch.Tensor, scale: torch.Tensor) -> VnniWeight:
        """Pack an eight-bit matrix. values: (N, K) int8   scale: (N,) float32."""
        num_outputs, num_inputs = values.shape
        unsigned = _whole_panels(values).view(torch.uint8) ^ ZERO
        lanes = unsigned.view(-1, PANEL, num_inputs // LANE_INPUTS, LANE_INPUTS).transpose(1, 2).flatten(1)
        return cls(torch.cat([lanes, _whole_panels(scale).view(-1, PANEL).view(torch.uint8)], dim=1), num_outputs, 8)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K)  ->  (R, N) float32."""
        out = operators.multiply(x.float(), self._panels, len(self._panels) * PANEL, self._bits)
        return out if out.shape[1] == self._num_outputs else out[:, : self._num_outputs].contiguous()

    def __deepcopy__(self, memo: dict) -> VnniWeight:
        return VnniWeight(self._panels, self._num_outputs, self._bits)


def _whole_panels(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows, and zeros up to the end of the last panel."""
    missing = -len(rows) % PANEL
    return torch.cat((rows, rows.new_zeros(missing, *rows.shape[1:]))) if missing else rows


def _aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty(tensor.numel() + ALIGNMENT, dtype=torch.uint8)
    start = -buffer.data_ptr() % ALIGNMENT
    return buffer[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
