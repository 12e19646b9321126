"""Kernels of the sampler over rows of logits, of the form of rows.py."""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from engine.kernels.cpu.primitives import doubles, exp, floats, integers, pointer

BLOCK = 64
"""Tokens whose mass is summed before a token is drawn among them."""
MASK_BITS = 32
"""Tokens in an integer of a mask."""
LEAST_EXPONENT = np.float32(-87.0)
"""Below it a weight is zero; the weight of a forbidden token must be."""


def forbid(a, thread, part, parts):
    """Add -inf where the bit of a token is not set; tokens beyond the mask are forbidden.

    a: masks, width of the logits, integers a mask, row of each mask (int64), masks (int32), logits (float32)
    """
    masks, width, mask_size = a[0], a[1], a[2]
    rows = integers(a[3], masks)
    covered = min(width, mask_size * MASK_BITS)
    forbidden = np.float32(-np.inf)
    for mask in range(masks * part // parts, masks * (part + 1) // parts):
        bits = carray(pointer(a[4] + mask * mask_size * 4), mask_size, np.int32)
        logits = floats(a[5] + rows[mask] * width * 4, width)
        whole = covered // MASK_BITS
        for index in range(whole):
            chunk = bits[index]
            start = index * MASK_BITS
            if chunk == 0:
                for i in range(MASK_BITS):
                    logits[start + i] += forbidden
            elif chunk != -1:
                for i in range(MASK_BITS):
                    logits[start + i] += np.float32(0.0) if (chunk >> np.int32(i)) & np.int32(1) else forbidden
        for i in range(whole * MASK_BITS, width):
            if i >= covered or not (bits[i // MASK_BITS] >> np.int32(i % MASK_BITS)) & np.int32(1):
                logits[i] += forbidden


@njit(inline="always")
def _weigh(logits, start, best, temperature):
    """Sum exp((logit - best) / temperature) over a block."""
    total = np.float32(0.0)
    for i in range(BLOCK):
        exponent = (logits[start + i] - best) / temperature
        total += np.float32(0.0) if exponent < LEAST_EXPONENT else exp(exponent)
    return total


def weigh_blocks(a, thread, part, parts):
    """Compute the mass of each block of BLOCK tokens, relative to the most likely token.

    a: rows, width (a multiple of BLOCK), logits (float32), best logits (float32), temperatures (float32), out (float64)
    """
    rows, width = a[0], a[1]
    blocks = width // BLOCK
    best, temperatures = floats(a[3], rows), floats(a[4], rows)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        logits, masses = floats(a[2] + row * width * 4, width), doubles(a[5] + row * blocks * 8, blocks)
        for block in range(blocks):
            masses[block] = _weigh(logits, block * BLOCK, best[row], temperatures[row])


@njit(inline="always")
def _first_above(sums, size, target):
    """Return the index of the first of ascending sums above `target`, or equal to the last sum if `target` was rounded
    to it.

    Returns 0 for a broken row, whose sums are NaN: a later index may be padding instead of a token.
    """
    total = sums[size - 1]
    for index in range(size):
        if sums[index] > target or sums[index] >= total:
            return index
    return 0


def draw(a, thread, part, parts):
    """Draw a token for each row: first a block, then a token in it by what is left of the row's uniform number.

    a: rows, width (a multiple of BLOCK), logits (float32), best logits (float32), temperatures (float32), uniforms
    (float64), out (int64), scratch (float64), its bytes a thread (width / BLOCK + BLOCK numbers)
    """
    rows, width = a[0], a[1]
    blocks = width // BLOCK
    best, temperatures = floats(a[3], rows), floats(a[4], rows)
    uniforms, out = doubles(a[5], rows), integers(a[6], rows)
    sums, inside = doubles(a[7] + thread * a[8], blocks), doubles(a[7] + thread * a[8] + blocks * 8, BLOCK)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        logits = floats(a[2] + row * width * 4, width)
        total = 0.0
        for block in range(blocks):
            total += _weigh(logits, block * BLOCK, best[row], temperatures[row])
            sums[block] = total
        target = uniforms[row] * total
        block = _first_above(sums, blocks, target)
        lower = sums[block - 1] if block > 0 else 0.0
        rest = min(max((target - lower) / (sums[block] - lower), 0.0), 1.0)
        total = 0.0
        for i in range(BLOCK):
            exponent = (logits[block * BLOCK + i] - best[row]) / temperatures[row]
            total += 0.0 if exponent < LEAST_EXPONENT else exp(exponent)
            inside[i] = total
        out[row] = block * BLOCK + _first_above(inside, BLOCK, rest * total)
