"""Kernels over the rows of a matrix; a part is a range of rows.

A kernel is a function of an array of 64-bit integers, listed in its docstring in order, the number of the thread, which
has its own scratch memory, and the part. So program.py can run many kernels in one call.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit

from engine.kernels.cpu.integer_vectors import LANES
from engine.kernels.cpu.primitives import exp, floats, halves, load_row, pointer, store_row, widen
from engine.kernels.cpu.vectors import CUBE, GELU, activate_vectors, gate_vectors


def add_normalize(a, thread, part, parts):
    """Compute hidden = stream_scale * (hidden + scale * delta); out = hidden / sqrt(mean(hidden^2) + eps) * weight.

    With a bias, out = (hidden - mean) / sqrt(variance + eps) * weight + bias. Without a weight, out = hidden.

    a: rows, size, hidden (float32), delta or 0, delta is half, weight or 0 (float32), eps, scale and stream_scale
    (float32, at an address), out, out is half, scratch (float32, size a thread), bias or 0 (float32)
    """
    rows, size = a[0], a[1]
    eps, scale, stream_scale = floats(a[6], 3)[0], floats(a[6], 3)[1], floats(a[6], 3)[2]
    work = floats(a[9] + thread * size * 4, size)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        hidden = floats(a[2] + row * size * 4, size)
        if a[3] != 0:
            load_row(a[3], a[4] != 0, row, size, work)
            for i in range(size):
                hidden[i] = (hidden[i] + scale * work[i]) * stream_scale
        if a[5] == 0:
            store_row(a[7], a[8] != 0, row, size, hidden)
            continue
        weight = floats(a[5], size)
        if a[10] != 0:
            bias = floats(a[10], size)
            mean = np.float32(0.0)
            for i in range(size):
                mean += hidden[i]
            mean = mean / np.float32(size)
            spread = np.float32(0.0)
            for i in range(size):
                work[i] = hidden[i] - mean
                spread += work[i] * work[i]
            factor = np.float32(1.0) / np.sqrt(spread / np.float32(size) + eps)
            for i in range(size):
                work[i] = work[i] * factor * weight[i] + bias[i]
            store_row(a[7], a[8] != 0, row, size, work)
            continue
        total = np.float32(0.0)
        for i in range(size):
            total += hidden[i] * hidden[i]
        factor = np.float32(1.0) / np.sqrt(total / np.float32(size) + eps)
        for i in range(size):
            work[i] = hidden[i] * factor * weight[i]
        store_row(a[7], a[8] != 0, row, size, work)


@njit(inline="always")
def activated(x, is_gelu):
    """Compute silu(x) = x * sigmoid(x), or gelu(x) in its form with tanh (vectors.py)."""
    z = x * (np.float32(GELU) + np.float32(GELU * CUBE) * x * x) if is_gelu else x
    return x / (np.float32(1.0) + exp(-z))


def gate(a, thread, part, parts):
    """Compute out = act(gate) * up for rows (gate, up), or out = act(x) * factors.

    a: rows, size of a row of out, gate_up, gate_up is half, out, out is half, scratch (float32, a row of gate_up a
    thread), act is gelu, has up, factors (float32) or 0, floats between two rows of factors
    """
    rows, size = a[0], a[1]
    is_gelu, has_up = a[7] != 0, a[8] != 0
    width = 2 * size if has_up else size
    work = floats(a[6] + thread * width * 4, width)
    whole = size // LANES * LANES
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        if a[9] != 0:
            load_row(a[2], a[3] != 0, row, width, work)
            factors = floats(a[9] + row * a[10] * 4, size)
            for i in range(size):
                work[i] = activated(work[i], is_gelu) * factors[i]
            store_row(a[4], a[5] != 0, row, size, work)
            continue
        if a[3] == 0 and a[5] == 0:
            first, target = a[2] + row * width * 4, a[4] + row * size * 4
            if has_up:
                gate_vectors(is_gelu, first, first + size * 4, target, size // LANES)
            else:
                activate_vectors(is_gelu, first, target, size // LANES)
            x, out = floats(first, width), floats(target, size)
            for i in range(whole, size):
                out[i] = activated(x[i], is_gelu) * (x[size + i] if has_up else np.float32(1.0))
            continue
        load_row(a[2], a[3] != 0, row, width, work)
        for i in range(size):
            work[i] = activated(work[i], is_gelu) * (work[size + i] if has_up else np.float32(1.0))
        store_row(a[4], a[5] != 0, row, size, work)


def quantize(a, thread, part, parts):
    """Quantise each row to eight-bit levels: round(x / scale) + zero, scale = max |x| / 127.

    a: rows, size, x, x is half, out (bytes), zero (0: signed, 128: unsigned), scales (float32), scratch (float32, size
    a thread)
    """
    rows, size = a[0], a[1]
    work = floats(a[7] + thread * size * 4, size)
    scales = floats(a[6], rows)
    zero = np.float32(a[5]) + np.float32(0.5)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        load_row(a[2], a[3] != 0, row, size, work)
        largest = np.float32(1e-18)
        broken = np.float32(0.0)
        for i in range(size):
            largest = max(largest, abs(work[i]))
            broken += work[i] * np.float32(0.0)  # NaN, which `max` passes over, if the row has any
        scales[row] = largest * np.float32(1.0 / 127.0) + broken
        factor = np.float32(127.0) / largest
        out = carray(pointer(a[4] + row * size), size, np.int8)
        for i in range(size):
            out[i] = np.int8(np.int32(np.floor(work[i] * factor + zero)))


def normalize_heads(a, thread, part, parts):
    """Normalise, in place, groups of a row: x / sqrt(mean(x^2) + eps) * weight; of queries, then keys, then values.

    a: rows, floats of a row, x (float32), three times groups, their size, their weight (float32), eps (float32, at an
    address)
    """
    eps = floats(a[12], 1)[0]
    for row in range(a[0] * part // parts, a[0] * (part + 1) // parts):
        place = a[2] + row * a[1] * 4
        for kind in range(3):
            size = a[4 + 3 * kind]
            weight = floats(a[5 + 3 * kind], size)
            for _ in range(a[3 + 3 * kind]):
                x = floats(place, size)
                total = np.float32(0.0)
                for i in range(size):
                    total += x[i] * x[i]
                factor = np.float32(1.0) / np.sqrt(total / np.float32(size) + eps)
                for i in range(size):
                    x[i] = x[i] * factor * weight[i]
                place += size * 4


def rotate(a, thread, part, parts):
    """Rotate adjacent pairs of some adjacent heads of each row and keep the others; in place if x is float32.

    a: rows, heads to rotate, heads, head size, x, x is half, rotations (float32: cos, sin of each pair), out (float32),
    floats between two rows of rotations, first head to rotate
    """
    rows, rotated, heads, head_size = a[0], a[1], a[2], a[3]
    size = heads * head_size
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        out = floats(a[7] + row * size * 4, size)
        if a[5] != 0:
            source = halves(a[4] + row * size * 2, size)
            for i in range(size):
                out[i] = widen(source[i])
        turns = floats(a[6] + row * a[8] * 4, head_size)
        for head in range(rotated):
            first = (a[9] + head) * head_size
            for pair in range(head_size // 2):
                i = first + 2 * pair
                cosine, sine = turns[2 * pair], turns[2 * pair + 1]
                x, y = out[i], out[i + 1]
                out[i] = x * cosine - y * sine
                out[i + 1] = x * sine + y * cosine


def add_bias(a, thread, part, parts):
    """Add the bias to each row, in place. a: rows, size, x (float32), bias (float32)."""
    rows, size = a[0], a[1]
    bias = floats(a[3], size)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        x = floats(a[2] + row * size * 4, size)
        for i in range(size):
            x[i] = x[i] + bias[i]
