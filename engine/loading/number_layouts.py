"""Layouts of numbers of eight bits (FP8, INT8), of MXFP4, and of bitsandbytes.

Letters: N outputs, K inputs, E experts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, prod
from typing import NamedTuple, TypeGuard

import torch

from engine.loading.layout import FLOATS, Layout, Module
from engine.quantization.folder_blocks import (
    BLOCK,
    BLOCK_BYTES,
    FP4,
    INT8_GROUPS,
    INT8_ROWS,
    NF4,
    block_rows,
    nibble_blocks,
)
from engine.quantization.stored import StoredMatrix

SCALES = (*FLOATS, "F8_E8M0")
STATE, MAX_STATE_BYTES = "weight.quant_state.bitsandbytes__", 4096
MAX_SIZE = 1 << 31
INT8_SCALE = 127
NAN = 255
"""As an exponent of MXFP4 (OCP Microscaling Formats, version 1.0)."""


@dataclass(frozen=True, slots=True)
class EightBit(Layout):
    """FP8 (e4m3) or signed bytes in `weight` (N, K), times a scale: w = number * scale.

    block: rows and columns that share a scale, if not all do, or those of a row. The scale is called `weight_scale_inv`
    in some files, and multiplied all the same. bitsandbytes' `SCB` is 127 times the scale of each row.
    """

    block: tuple[int, int] | None = None
    main = "weight"
    others = ("weight_scale", "weight_scale_inv", "weight_zero_point", "SCB", "weight_format")

    def takes(self, module: Module) -> bool:
        return module.dtype(self.main) in ("F8_E4M3", "I8")

    def shape(self, module: Module) -> tuple[int, int]:
        shape = module.shape(self.main)
        if len(shape) != 2:
            raise module.wrong(self.main, f"must be a matrix, got the shape {shape}")
        outputs, num_inputs = shape[0], module.whole_blocks(self.main, shape[1])
        shapes: list[tuple[int, ...]] = [(), (1,), (1, 1), (outputs,), (outputs, 1)]
        if self.block is not None:
            shapes.append((-(-outputs // self.block[0]), -(-num_inputs // self.block[1])))
        scale = self._scale_name(module)
        module.check(scale, SCALES, *shapes)
        if module.has("weight_zero_point"):
            module.check("weight_zero_point", ("I8", "F8_E4M3"), module.shape(scale))
        return outputs, num_inputs

    def matrix(self, module: Module) -> StoredMatrix:
        shape, values = self.shape(module), module.read(self.main).view(torch.uint8)
        if module.has("weight_format") and module.read("weight_format").any():
            raise module.wrong("weight_format", "must be 0, rows one after another; the tiles of a GPU are not read")
        name = self._scale_name(module)
        numbers = module.numbers(name)
        scale, is_by_row = self._by_block(numbers / INT8_SCALE if name == "SCB" else numbers, shape)
        zero = module.numbers("weight_zero_point") if module.has("weight_zero_point") else torch.zeros(())
        middle = None
        if module.dtype(self.main) == "F8_E4M3":
            kind = "FP8"
            if zero.any():
                raise module.wrong("weight_zero_point", "must be 0 beside FP8 numbers")
        elif is_by_row and not zero.any():
            kind = INT8_ROWS
        else:
            kind, middle = INT8_GROUPS, 128 + self._by_block(zero, shape)[0]

        def blocks(rows: slice) -> tuple[torch.Tensor, ...]:
            some = values[rows].reshape(rows.stop - rows.start, -1, BLOCK)
            return (scale[rows], some) if middle is None else (scale[rows], middle[rows], some ^ 128)

        return StoredMatrix.from_blocks(kind, block_rows(shape, BLOCK_BYTES[kind], blocks), shape)

    def _by_block(self, numbers: torch.Tensor, shape: tuple[int, int]) -> tuple[torch.Tensor, bool]:
        """Repeat numbers for each block, (N, K / 32); say whether all of a row are one."""
        rows, num_blocks = shape[0], shape[1] // BLOCK
        if numbers.numel() == 1 or numbers.shape in ((rows,), (rows, 1)):
            return numbers.reshape(-1, 1).expand(rows, num_blocks), True
        assert self.block is not None
        height, width = self.block
        return numbers[torch.arange(rows) // height][:, torch.arange(num_blocks) * BLOCK // width], False

    @staticmethod
    def _scale_name(module: Module) -> str:
        names = ("weight_scale", "weight_scale_inv", "SCB")
        return next((name for name in names if module.has(name)), names[0])


@dataclass(frozen=True, slots=True)
class Mxfp4(Layout):
    """MXFP4 of dense matrices. weight_packed: (N, K / 2) two numbers a byte   weight_scale: (N, K / 32) exponents."""

    main = "weight_packed"
    others = ("weight_scale",)

    def takes(self, module: Module) -> bool:
        return module.dtype(self.main) == "U8"

    def shape(self, module: Module) -> tuple[int, int]:
        shape = module.shape(self.main)
        if len(shape) != 2:
            raise module.wrong(self.main, f"must be a matrix, got the shape {shape}")
        num_inputs = module.whole_blocks(self.main, shape[1] * 2)
        module.check("weight_scale", ("U8", "F8_E8M0"), (shape[0], num_inputs // BLOCK))
        return shape[0], num_inputs

    def matrix(self, module: Module) -> StoredMatrix:
        return mxfp4_matrix(module.read(self.main), read_exponents(module, "weight_scale"))


@dataclass(frozen=True, slots=True)
class Mxfp4Blocks(Layout):
    """MXFP4 as gpt-oss has it. `_blocks`: (…, N, K / 32, 16) two numbers a byte   `_scales`: (…, N, K / 32) exponents.

    With experts in front, transformers has their matrices transposed: (E, K, N).
    """

    main = "_blocks"
    others = ("_scales",)
    target = ""

    def shape(self, module: Module) -> tuple[int, ...]:
        shape = module.shape(self.main)
        if len(shape) not in (3, 4) or shape[-1] != BLOCK // 2:
            raise module.wrong(self.main, f"must have the shape (…, outputs, blocks, {BLOCK // 2}), got {shape}")
        module.check(self.main, ("U8",), shape)
        module.check("_scales", ("U8",), shape[:-1])
        outputs, num_inputs = shape[-3], shape[-2] * BLOCK
        return (outputs, num_inputs) if len(shape) == 3 else (shape[0], num_inputs, outputs)

    def matrix(self, module: Module) -> StoredMatrix:
        return mxfp4_matrix(module.read(self.main).flatten(-2), read_exponents(module, "_scales"))

    def tensor(self, module: Module) -> torch.Tensor:
        """Dequantise to bfloat16, which holds these numbers."""
        if len(self.shape(module)) == 2:
            return self.matrix(module).to_dtype(torch.bfloat16)
        experts = zip(module.read(self.main).flatten(-2), read_exponents(module, "_scales"), strict=True)
        name = module.name(self.main)
        return torch.stack([mxfp4_matrix(*expert).named(name).to_dtype(torch.bfloat16).T for expert in experts])


def read_exponents(module: Module, suffix: str) -> torch.Tensor:
    """Read the scales of MXFP4. Raises ModelLoadError for NaN."""
    exponents = module.read(suffix).view(torch.uint8)
    if exponents.numel() and int(exponents.max()) == NAN:
        raise module.wrong(suffix, "must hold finite numbers")
    return exponents


def mxfp4_matrix(packed: torch.Tensor, exponents: torch.Tensor) -> StoredMatrix:
    """Lay numbers as in GGUF files, halves of blocks in the nibbles. packed: (N, K / 2)   exponents: (N, K / 32)."""
    shape = (packed.shape[0], packed.shape[1] * 2)

    def blocks(rows: slice) -> tuple[torch.Tensor, ...]:
        levels = torch.stack((packed[rows] & 15, packed[rows] >> 4), dim=2).flatten(1)
        return exponents[rows, :, None], nibble_blocks(levels)

    return StoredMatrix.from_blocks("MXFP4", block_rows(shape, 1 + BLOCK // 2, blocks), shape)


@dataclass(frozen=True, slots=True)
class BitsAndBytes4(Layout):
    """bitsandbytes' NF4 and FP4: `weight` holds row after row, two numbers a byte, the first in the high bits.

    `weight.quant_state.…` is an object of JSON with the shape and the size of blocks; `weight.absmax` is the largest
    number of each block, in bytes with scales of their own (`nested_…`) where they are quantised too.
    """

    main = "weight"
    others = (
        "weight.absmax",
        "weight.quant_map",
        "weight.nested_absmax",
        "weight.nested_quant_map",
        f"{STATE}nf4",
        f"{STATE}fp4",
    )

    def takes(self, module: Module) -> bool:
        return module.has("weight.absmax")

    def shape(self, module: Module) -> tuple[int, int]:
        state = _read_state(module)
        outputs, num_inputs = state.shape
        packed = outputs * num_inputs // 2
        module.check(self.main, ("U8",), (packed, 1), (1, packed), (packed,))
        num_blocks = -(-outputs * num_inputs // state.block)
        if state.nested_block:
            module.check("weight.absmax", ("U8",), (num_blocks,))
            module.check("weight.nested_absmax", ("F32",), (-(-num_blocks // state.nested_block),))
            module.check("weight.nested_quant_map", ("F32",), (256,))
        else:
            module.check("weight.absmax", ("F32",), (num_blocks,))
        module.check("weight.quant_map", ("F32",), (16,))
        return state.shape

    def matrix(self, module: Module) -> StoredMatrix:
        state, shape = _read_state(module), self.shape(module)
        levels = module.numbers("weight.quant_map")
        if not torch.allclose(levels, torch.tensor(NF4 if state.kind == "NF4" else FP4), atol=1e-6):
            raise module.wrong("weight.quant_map", f"must hold the levels of {state.kind}")
        scale = self._scale(module, state)[torch.arange(prod(shape) // BLOCK) * BLOCK // state.block]
        scale = scale.view(shape[0], -1)
        packed = module.read(self.main).view(shape[0], -1)

        def blocks(rows: slice) -> tuple[torch.Tensor, ...]:
            some = torch.stack((packed[rows] >> 4, packed[rows] & 15), dim=2).flatten(1)
            return scale[rows], nibble_blocks(some)

        return StoredMatrix.from_blocks(state.kind, block_rows(shape, BLOCK_BYTES[state.kind], blocks), shape)

    @staticmethod
    def _scale(module: Module, state: _State) -> torch.Tensor:
        if not state.nested_block:
            return module.numbers("weight.absmax")
        levels = module.numbers("weight.nested_quant_map")[module.read("weight.absmax").int()]
        nested = module.numbers("weight.nested_absmax")[torch.arange(len(levels)) // state.nested_block]
        return levels * nested + state.nested_offset


class _State(NamedTuple):
    """What `weight.quant_state.…` says. kind: "NF4" or "FP4"   block, nested_block: elements, 0 if not nested."""

    kind: str
    shape: tuple[int, int]
    block: int
    nested_block: int
    nested_offset: float


def _read_state(module: Module) -> _State:
    """Raise ModelLoadError if it cannot be read or lacks a field."""
    kind = "NF4" if module.has(f"{STATE}nf4") else "FP4"
    name = f"{STATE}{kind.lower()}"
    if module.dtype(name) != "U8" or prod(module.shape(name)) > MAX_STATE_BYTES:
        raise module.wrong(name, f"must be JSON of at most {MAX_STATE_BYTES} bytes")
    try:
        values = json.loads(bytes(module.read(name).flatten().tolist()))
    except (ValueError, RecursionError) as error:
        raise module.wrong(name, f"cannot be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise module.wrong(name, "must hold a JSON object")
    shape, block = values.get("shape"), values.get("blocksize")
    if not (isinstance(shape, list) and len(shape) == 2 and all(map(_is_size, shape))):
        raise module.wrong(name, f"must have a shape of two sizes, got {str(shape)[:80]!r}")
    if not _is_size(block) or block % BLOCK:
        raise module.wrong(name, f"must have a blocksize that is a multiple of {BLOCK}, got {str(block)[:80]!r}")
    outputs, num_inputs = shape[0], module.whole_blocks(name, shape[1])
    if not module.has("weight.nested_absmax"):
        return _State(kind, (outputs, num_inputs), block, 0, 0.0)
    nested, offset = values.get("nested_blocksize"), values.get("nested_offset")
    if not _is_size(nested) or not isinstance(offset, float) or not isfinite(offset):
        raise module.wrong(name, "must have a nested_blocksize and a finite nested_offset")
    return _State(kind, (outputs, num_inputs), block, nested, offset)


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= MAX_SIZE
