"""Four-bit weights in groups of 32 with eight-bit activations, on our own kernel: about half the time of torch's where VNNI is there.

Weights keep the file's numbers (scales and minima in half precision, as Q4_0 and Q4_1 store them); inputs are quantised per row and
group, an error of about half a percent of the output's spread. The layout and the method: engine.kernels.four_bit.
"""

from __future__ import annotations

import torch

from engine.kernels import four_bit, operators
from engine.quantization.gguf_blocks import FourBitGroups

CHUNKS, LANE_INPUTS = 4, 4
ALIGNMENT = 64


class Int4VnniWeight:
    """N outputs of K inputs. tiles: (N / 16, G, 320) uint8, at an address that is a multiple of 64."""

    input_dtype = torch.float32

    def __init__(self, groups: FourBitGroups) -> None:
        num_outputs, num_groups = groups.scale.shape
        shape = (num_outputs // four_bit.TILE, four_bit.TILE, num_groups)
        q = groups.q.view(*shape, CHUNKS, 2, LANE_INPUTS)
        nibbles = (q[..., 0, :] | q[..., 1, :] << 4).permute(0, 2, 3, 1, 4).reshape(shape[0], num_groups, -1)
        halves = torch.cat([part.view(shape).transpose(1, 2).half() for part in (groups.scale, groups.minimum)], dim=-1)
        self._tiles = _aligned_copy(torch.cat([nibbles, halves.view(torch.uint8)], dim=-1))
        self._num_outputs = num_outputs

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Whether this processor has the instructions and the kernel takes a matrix of this shape."""
        return four_bit.is_available() and shape[0] % four_bit.TILE == 0 and shape[1] % four_bit.GROUP == 0

    @property
    def num_bytes(self) -> int:
        return self._tiles.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: (R, K)  ->  (R, N) float32."""
        return operators.multiply_four_bit(x.float(), self._tiles, self._num_outputs)

    def clone(self) -> Int4VnniWeight:
        """Return a copy at other addresses, for measuring with cold caches."""
        other = Int4VnniWeight.__new__(Int4VnniWeight)
        other._tiles, other._num_outputs = _aligned_copy(self._tiles), self._num_outputs
        return other


def _aligned_copy(tensor: torch.Tensor) -> torch.Tensor:
    buffer = torch.empty(tensor.numel() + ALIGNMENT, dtype=torch.uint8)
    start = -buffer.data_ptr() % ALIGNMENT
    return buffer[start : start + tensor.numel()].view(tensor.shape).copy_(tensor)
