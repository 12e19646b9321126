"""Four-bit weights in groups of 32 for torch's CPU kernel: y = x @ ((q - 8) * scale + zero).T, in bfloat16.

Q4_0, Q4_1 and Q4_K map onto it: scale is theirs, zero is minimum + 8 * scale. Scales and zeros round to bfloat16, an
error of up to 1/64 of a quantisation step on the zero. The kernel takes bfloat16 activations; with float32 ones it is
30 times slower.
"""

from __future__ import annotations

import torch

from engine.quantization.gguf_blocks import GROUP_SIZE, FourBitGroups

ROW_MULTIPLE = 16


class Int4Weight:
    """A weight of N outputs and K inputs. packed: in the kernel's own order   scales_and_zeros: (G, N, 2) bfloat16."""

    input_dtype = torch.bfloat16

    def __init__(self, groups: FourBitGroups) -> None:
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(groups.q.int(), 1)
        zeros = groups.minimum + 8 * groups.scale
        self._scales_and_zeros = torch.stack((groups.scale.T, zeros.T), dim=-1).to(torch.bfloat16)
        self._matmul = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Return True if the kernel takes a matrix of this shape."""
        return shape[0] % ROW_MULTIPLE == 0 and shape[1] % GROUP_SIZE == 0

    @property
    def num_bytes(self) -> int:
        return self._packed.nbytes + self._scales_and_zeros.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply. x: (R, K) float32 or bfloat16  ->  (R, N) bfloat16."""
        return self._matmul(x.to(torch.bfloat16), self._packed, GROUP_SIZE, self._scales_and_zeros)

    def clone(self) -> Int4Weight:
        """Return a copy at other addresses, for measuring with cold caches."""
        other = Int4Weight.__new__(Int4Weight)
        other._packed, other._scales_and_zeros, other._matmul = (
            self._packed.clone(),
            self._scales_and_zeros.clone(),
            self._matmul,
        )
        return other
