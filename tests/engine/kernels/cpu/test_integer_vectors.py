"""The vector operations that have a second form, for processors without vectors of bfloat16 or without VNNI."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit, types
from numba.extending import intrinsic

from engine.kernels.cpu import integer_vectors
from engine.kernels.cpu.integer_vectors import (
    BYTES64,
    FLOATS,
    LANES,
    WORDS,
    DotSum,
    VectorBuilder,
    has_pairs,
    is_available,
)

FORMS = [pytest.param(False, id="float32"), pytest.param(True, id="bfloat16", marks=pytest.mark.processor)]

pytestmark = pytest.mark.skipif(not is_available(), reason="needs a processor with AVX2")


def compiled(build, num_addresses):
    """Compile a function of addresses that calls `build` with a builder."""

    @intrinsic
    def call(typingctx, addresses):
        def generate(context, builder, signature, arguments):
            b = VectorBuilder(builder)
            build(b, *[builder.extract_value(arguments[0], number) for number in range(num_addresses)])
            return context.get_dummy_value()

        return types.none(addresses), generate

    return njit(lambda addresses: call(addresses))


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    if request.param and not has_pairs():
        pytest.skip("needs a processor with AVX512-BF16")
    monkeypatch.setattr(integer_vectors, "has_pairs", lambda: request.param)


def run(build, *arrays):
    compiled(build, len(arrays))(tuple(array.ctypes.data for array in arrays))


def random_floats(seed):
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(LANES) * np.exp2(generator.integers(-60, 60, LANES))).astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
def test_floats_are_rounded_to_the_nearest_bfloat16(form, seed):
    values, narrow = random_floats(seed), np.zeros(LANES, np.uint32)
    run(lambda b, source, target: b.store(b.narrowed(b.load(FLOATS, source, 4)), target, 4), values, narrow)
    expected = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert (narrow == expected).all()


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_multiplied_and_added(form, seed):
    generator = np.random.default_rng(seed)
    x, y = (torch.from_numpy(generator.standard_normal((LANES, 2)).astype(np.float32)).bfloat16() for _ in range(2))
    sums = generator.standard_normal(LANES).astype(np.float32)
    expected = sums + (x.double() * y.double()).sum(1).numpy()

    def build(b, total, first, second):
        pairs = (b.load(WORDS, first, 4), b.load(WORDS, second, 4))
        b.store(b.dot_pairs(b.load(FLOATS, total, 4), *pairs), total, 4)

    run(build, sums, x.view(torch.int16).numpy(), y.view(torch.int16).numpy())
    np.testing.assert_allclose(sums, expected, rtol=1e-6, atol=1e-6)


@pytest.fixture(params=[pytest.param(False, id="AVX2"), pytest.param(True, id="VNNI", marks=pytest.mark.processor)])
def dots(request, monkeypatch):
    if request.param and not integer_vectors.has_dots():
        pytest.skip("needs a processor with AVX512-VNNI")
    monkeypatch.setattr(integer_vectors, "has_dots", lambda: request.param)


@pytest.mark.parametrize("most", [15, 31, 63, 127, 255])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_dot_products_of_bytes_are_exact(dots, most, count):
    generator = np.random.default_rng(most)
    weights = generator.integers(0, most, (count, 64), np.uint8, endpoint=True)
    inputs = generator.integers(-127, 127, (count, 64), np.int8, endpoint=True)
    weights[:, :8], inputs[:, :4], inputs[:, 4:8] = most, 127, -127
    sums = generator.integers(-(1 << 20), 1 << 20, LANES, np.int32)
    products = (weights.astype(np.int64) * inputs).reshape(count, LANES, 4).sum((0, 2))
    expected = sums + products

    def build(b, total, first, second):
        dot = DotSum(b, b.load(WORDS, total, 4), most)
        for at in range(0, 64 * count, 64):
            dot.add(b.load(BYTES64, b.at(first, at), 1), b.load(BYTES64, b.at(second, at), 1))
        b.store(dot.total(), total, 4)

    run(build, sums, weights, inputs)
    assert (sums == expected).all()


def test_bytes_are_looked_up(dots):
    table, codes = np.random.default_rng(0).integers(0, 256, 16, np.uint8), np.arange(64, dtype=np.uint8) * 7 % 16
    out = np.zeros(64, np.uint8)

    def build(b, tables, places, target):
        b.store(b.look_up(b.load(BYTES64, tables, 1), b.load(BYTES64, places, 1)), target, 1)

    run(build, np.tile(table, 4), codes, out)
    assert (out == table[codes]).all()


def test_levels_become_bytes_in_their_order(dots):
    words, out = (np.arange(64, dtype=np.int32) * 37 % 255 - 127), np.zeros(64, np.int8)

    def build(b, source, target):
        b.store(b.levels([b.load(WORDS, b.at(source, 64 * part), 4) for part in range(4)]), target, 1)

    run(build, words, out)
    assert (out == words).all()
