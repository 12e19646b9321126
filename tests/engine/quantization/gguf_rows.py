"""Rows of blocks of every GGUF type: of random bytes, of scales as in models, and of given numbers."""

from __future__ import annotations

import gguf
import numpy as np

from engine.gguf_file import BLOCK_TYPES

TYPES = {block_type.name: block_type for block_type in BLOCK_TYPES.values()}
SCALES_AT = {
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **dict.fromkeys(("IQ1_M", "MXFP4", "NVFP4"), ()),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
"""Where blocks have half-precision numbers, if not at their beginning: a scale, then what minima are counted in."""
MINIMUM = {"Q4_1": -7.5, "Q5_1": -15.5, "Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}
"""The second of two halves, as a share of the first, that leaves the numbers around zero."""


def random_rows(type_name: str, num_rows: int, num_elements: int, seed: int) -> np.ndarray:
    """Return random bytes; halves that are not finite are made zero, as no file has them."""
    block_type = TYPES[type_name]
    rng = np.random.default_rng(seed)
    if block_type.block_size == 1:
        values = rng.standard_normal((num_rows, num_elements)).astype(np.float32)
        return gguf.quantize(values, gguf.GGMLQuantizationType[type_name]).view(np.uint8)
    blocks = rng.integers(
        0, 256, (num_rows, num_elements // block_type.block_size, block_type.block_bytes), dtype=np.uint8
    )
    halves = SCALES_AT.get(type_name, (0,))
    for start in halves:
        scale = blocks[..., start : start + 2].copy().view(np.float16)
        blocks[..., start : start + 2] = np.where(np.isfinite(scale), scale, np.float16(0)).view(np.uint8)
    return blocks.reshape(num_rows, -1)


def even_rows(type_name: str, num_rows: int, num_elements: int, seed: int, scale: float = 0.01) -> np.ndarray:
    """Return random blocks around zero whose scales are of one size, or of a few, as those of models are."""
    rows = random_rows(type_name, num_rows, num_elements, seed)
    if TYPES[type_name].block_size == 1:
        return rows
    blocks = rows.reshape(-1, TYPES[type_name].block_bytes)
    for start, half in zip(SCALES_AT.get(type_name, (0,)), (scale, scale * MINIMUM.get(type_name, 0)), strict=False):
        blocks[:, start : start + 2] = np.array([half], np.float16).view(np.uint8)
    if type_name == "MXFP4":
        blocks[:, 0] = 120 + blocks[:, 0] % 3
    if type_name == "NVFP4":
        blocks[:, :4] = 0x08 + blocks[:, :4] % 16
    if type_name == "IQ1_M":  # a half in the high nibbles of the last four 16-bit numbers
        blocks[:, 49:57:2] &= 15
        blocks[:, 55] |= 0x20
    return rows


def stored_rows(type_name: str, values: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a type (N, bytes per row), and the float32 numbers (N, K) that they stand for.

    They hold `values` if gguf-py quantises the type, else other random numbers of about the same size.
    """
    kind = gguf.GGMLQuantizationType[type_name]
    try:
        rows = gguf.quantize(values, kind).view(np.uint8)
    except NotImplementedError:
        spread = gguf.dequantize(even_rows(type_name, 4, values.shape[1], seed), kind).std()
        rows = even_rows(type_name, *values.shape, seed, scale=0.01 * values.std() / spread)
    return rows, gguf.dequantize(rows, kind).astype(np.float32)
