"""Weight forms on operators of torch: floating point, eight bits, four bits.

A form is called with inputs (R, K) and returns their products (R, N).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from engine.kernels.cpu import operators
from engine.kernels.cpu.integer_vectors import sums_of_two_overflow
from engine.quantization.folder_blocks import INT8_ROWS, byte_rows
from engine.quantization.gguf_blocks import GROUP_SIZE, FourBitGroups
from engine.quantization.stored import StoredMatrix

MAX_LEVEL = 127
ROW_MULTIPLE = 16


class DenseWeight:
    """A weight in floating point, (N, K), in the dtype of the product."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.input_dtype = weight.dtype
        self.num_bytes = weight.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.to(self.input_dtype), self.weight)

    def multiply_add(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Multiply, and add a bias (N,) in the weight's dtype; on CUDA in the same kernel."""
        return functional.linear(x.to(self.input_dtype), self.weight, bias)


def quantize_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each output's weights. weight: (N, K) float32  ->  (N, K) int8 and the scales (N,) float32."""
    scale = weight.abs().amax(dim=1, keepdim=True).div_(MAX_LEVEL).clamp_(min=1e-20)
    return (weight / scale).round_().to(torch.int8), scale.flatten()


def quantize_rows(matrix: StoredMatrix) -> tuple[torch.Tensor, torch.Tensor]:
    """Do as `quantize_weight`, some rows at a time; rows that are stored in such numbers keep them."""
    quantized = (
        byte_rows(piece.data) if piece.type == INT8_ROWS else quantize_weight(piece.load()) for piece in matrix.pieces()
    )
    values, scales = zip(*quantized, strict=True)
    return torch.cat(values), torch.cat(scales)


def quantize_groups(matrix: StoredMatrix) -> tuple[torch.Tensor, torch.Tensor]:
    """Do as `quantize_rows` with a scale for each GROUP_SIZE weights: (N, K) int8 and scales (N, G) float32."""
    num_groups = matrix.shape[1] // GROUP_SIZE
    quantized = []
    for piece in matrix.pieces():
        if piece.type == INT8_ROWS:
            values, scale = byte_rows(piece.data)
            quantized.append((values, scale[:, None].expand(-1, num_groups)))
        else:
            values, scale = quantize_weight(piece.load().view(-1, GROUP_SIZE))
            quantized.append((values.view(-1, matrix.shape[1]), scale.view(-1, num_groups)))
    values, scales = zip(*quantized, strict=True)
    return torch.cat(values), torch.cat(scales)


class Int8Weight:
    """A weight for torch's integer matmul: a scale per output and per row of the input, integer sums.

    A row is quantised by itself and integer sums are exact, so its result is the same alone and in any batch. Error on
    random data: about 1 % of the output's spread. values: (N, K) int8   scale: (N,) float32.
    """

    input_dtype = torch.float32

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self._transposed = values.t()
        self._scale = scale
        self._matmul = torch.ops.aten._int_mm.default
        self.num_bytes = values.nbytes + scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        quantized, scales = operators.quantize(x, torch.int8)
        return torch.mul(self._matmul(quantized, self._transposed), self._scale).mul_(scales)


class Int8PackedWeight:
    """The numbers of `Int8Weight` for oneDNN's quantised linear, which is faster on some machines.

    It also applies the weight scales, and needs unsigned activations, centred at 128. Its sums may overflow on x86
    processors without VNNI (`is_exact`).
    """

    input_dtype = torch.float32

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self._packed = torch.ops.onednn.qlinear_prepack(values, None)
        self._scale = scale
        self._zero_points = torch.zeros(scale.shape[0], dtype=torch.int64)
        self._matmul = torch.ops.onednn.qlinear_pointwise.default
        self.num_bytes = self._packed.nbytes + scale.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        quantized, scales = operators.quantize(x, torch.uint8)
        options = (None, 1.0, 0, torch.float32, "none", [], "")
        product = self._matmul(quantized, 1.0, 128, self._packed, self._scale, self._zero_points, *options)
        return product.mul_(scales)

    @staticmethod
    def is_exact() -> bool:
        """Return True if products on this processor are those of the numbers."""
        return not sums_of_two_overflow()

    def __deepcopy__(self, memo: dict) -> Int8PackedWeight:
        """Copy the packed weights, whose memory torch's own deep copy cannot read."""
        other = Int8PackedWeight.__new__(Int8PackedWeight)
        vars(other).update(vars(self), _packed=self._packed.clone())
        return other


class Int4Weight:
    """Four-bit weights in groups of 32 for torch's CPU kernel: y = x @ ((q - 8) * scale + zero).T, in bfloat16.

    Q4_0, Q4_1 and Q4_K map onto it: scale is theirs, zero is minimum + 8 * scale. Scales and zeros round to bfloat16,
    an error of up to 1/64 of a quantisation step on the zero. With float32 activations the kernel is 30 times slower.
    """

    input_dtype = torch.bfloat16

    def __init__(self, groups: FourBitGroups) -> None:
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(groups.q.int(), 1)
        zeros = groups.minimum + 8 * groups.scale
        self._scales_and_zeros = torch.stack((groups.scale.T, zeros.T), dim=-1).to(torch.bfloat16)  # (G, N, 2)
        self._matmul = torch.ops.aten._weight_int4pack_mm_for_cpu.default
        self.num_bytes = self._packed.nbytes + self._scales_and_zeros.nbytes

    @staticmethod
    def fits(shape: tuple[int, int]) -> bool:
        """Return True if the kernel takes a matrix of this shape."""
        return shape[0] % ROW_MULTIPLE == 0 and shape[1] % GROUP_SIZE == 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._matmul(x.to(torch.bfloat16), self._packed, GROUP_SIZE, self._scales_and_zeros)
