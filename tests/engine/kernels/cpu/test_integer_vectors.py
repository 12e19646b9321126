"""The vector operations that have a second form, for processors without vectors of bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit, types
from numba.extending import intrinsic

from engine.kernels.cpu import integer_vectors
from engine.kernels.cpu.integer_vectors import FLOATS, LANES, WORDS, VectorBuilder, has_pairs, is_available

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
