"""Integer products against float products over the dequantised weights, over shapes, row counts and thread counts."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.kernels.cpu.integer_vectors import FRACTION_BITS, STEP_BITS
from engine.kernels.cpu.panels import FORMATS, SUPERBLOCK, EightBitPanel, PackedPanel, TablePanel
from engine.kernels.cpu.row_records import CHUNK_GROUPS, OPENED_FROM, chunk_groups
from engine.kernels.cpu.threads import KERNEL_THREADS
from engine.quantization.gguf_blocks import GROUP_SIZE, PackedGroups
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.table_blocks import TableGroups
from tests.engine.threads import WAYS, threads_of
from tests.examples import examples

pytestmark = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")

SHAPES = st.tuples(st.integers(1, 160), st.integers(1, 9))
"""Outputs, of which a panel has 32, and groups of 32 inputs: odd numbers leave threads with unequal shares."""


@pytest.fixture(params=WAYS, autouse=True)
def threads(request):
    with threads_of(request.param):
        yield request.param


class Made(NamedTuple):
    """A random matrix, the same in float64, and what its minima and middle levels leave of each group (N, G)."""

    weight: PanelWeight
    opened: torch.Tensor
    rest: torch.Tensor


def make_weight(panel: PackedPanel | EightBitPanel, num_outputs: int, groups: int, generator: torch.Generator) -> Made:
    """Make a matrix; where panels have factors, of whole superblocks."""
    if isinstance(panel, TablePanel):
        codes = torch.randint(0, 16, (num_outputs, groups * GROUP_SIZE), generator=generator, dtype=torch.uint8)
        table = torch.randint(-128, 128, (16,), generator=generator, dtype=torch.int8)
        scale = torch.randint(-1024, 1024, (num_outputs, groups), generator=generator) / 1024
        scale *= torch.randint(-20, 5, (num_outputs, 1), generator=generator).float().exp2()
        opened = table.double()[codes.int()] * scale.double().repeat_interleave(GROUP_SIZE, 1)
        return Made(PanelWeight.tabled(TableGroups(codes, scale, table)), opened, torch.zeros(1, groups).double())
    if isinstance(panel, EightBitPanel):
        values = torch.randint(-127, 128, (num_outputs, groups * GROUP_SIZE), generator=generator, dtype=torch.int8)
        largest = torch.rand(num_outputs, 1, generator=generator) * 0.02 + 0.001
        shares = torch.randint(1, 1024, (num_outputs, groups), generator=generator) / 1024
        shares[:, 0] = 1.0
        scale = shares * largest
        opened = values.double() * scale.double().repeat_interleave(GROUP_SIZE, 1)
        return Made(PanelWeight.eight_bit(values, scale), opened, torch.zeros(1, groups).double())

    def drawn(low: int, high: int, width: int) -> torch.Tensor:
        return torch.randint(low, high, (num_outputs, width), generator=generator)

    groups = -(-groups // SUPERBLOCK) * SUPERBLOCK if panel.factors else groups
    q = drawn(0, 1 << panel.bits, groups * GROUP_SIZE).byte()
    factors = tuple(drawn(-100, 100, groups // SUPERBLOCK).half() / 1000 for _ in range(panel.factors))
    spread = [factor.double().repeat_interleave(SUPERBLOCK * GROUP_SIZE, 1) for factor in factors]
    if panel.is_centred:
        numbers = (drawn(-128, 128, groups).to(torch.int8), drawn(-128, 128, groups).to(torch.int8))
        scale = torch.stack(numbers, dim=2).flatten(1).double().repeat_interleave(GROUP_SIZE // 2, 1)
        opened = (q.double() - (1 << panel.bits - 1)) * scale * spread[0]
        rest = torch.zeros(1, groups).double()
    else:
        numbers = (drawn(0, 256, groups).byte(), drawn(0, 256, groups).byte())
        if not factors:
            numbers = (numbers[0].half() / 1000, numbers[1].half() / 100 - 1)
            spread = [torch.ones(q.shape)] * 2
        scale, minimum = (number.double().repeat_interleave(GROUP_SIZE, 1) for number in numbers)
        opened = q * scale * spread[0] + minimum * spread[1]
        rest = ((1 << panel.bits - 1) * scale * spread[0] + minimum * spread[1])[:, ::GROUP_SIZE]
    return Made(PanelWeight.packed(PackedGroups(panel.bits, q, numbers, factors)), opened, rest)


def quantised(x: torch.Tensor) -> torch.Tensor:
    """Return the inputs as the product quantises them: levels of each 32, in float64."""
    groups = x.view(x.shape[0], -1, GROUP_SIZE)
    # As in quantize_two_groups: a step has STEP_BITS of its fraction, rounded up.
    further = (1 << FRACTION_BITS - STEP_BITS) - 1
    step = (groups.abs().amax(-1, keepdim=True) * torch.tensor(1 / 127)).view(torch.int32) + further & ~further
    step = step.view(torch.float32).clamp(min=2.0**-100)
    return ((groups * (1 / step)).round().double() * step).flatten(1)


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@given(shape=SHAPES, rows=st.integers(1, 45), seed=st.integers(0, 1 << 20))
@examples(25)
def test_the_product_is_that_of_quantised_inputs_and_opened_weights(panel, shape, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    weight, opened, rest = make_weight(panel, *shape, generator)
    x = torch.randn(rows, opened.shape[1], generator=generator) * torch.logspace(-3, 3, rows)[:, None]
    # Float sums over few groups: some roundings, relative to the sizes of what is added. Sums of inputs and what minima
    # leave are rounded to bfloat16, each by 2^-8 at most.
    totals = quantised(x).view(rows, -1, GROUP_SIZE).sum(2)
    tolerance = 1.2e-6 * (quantised(x).abs() @ opened.abs().T + totals.abs() @ rest.abs().T)
    tolerance += 1.01 * 2**-7 * (totals.abs() @ rest.abs().T)
    assert ((weight(x) - quantised(x) @ opened.T).abs() <= tolerance).all()


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("is_largest", [True, False], ids=["largest levels", "least levels"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_sums_hold_the_largest_levels_and_inputs(panel, is_largest, sign):
    """Of every row all products have the same sign, so sums in 16 bits would overflow if too many were added there."""
    num_outputs, groups = 64, SUPERBLOCK
    shape, signs = (num_outputs, groups * GROUP_SIZE), torch.ones(num_outputs, groups)
    if isinstance(panel, TablePanel):
        codes, table = (
            torch.zeros(shape, dtype=torch.uint8),
            torch.full((16,), 127 if is_largest else -128).to(torch.int8),
        )
        weight, level = PanelWeight.tabled(TableGroups(codes, signs, table)), 127 if is_largest else -128
    elif isinstance(panel, EightBitPanel):
        level = 127 if is_largest else -127
        weight = PanelWeight.eight_bit(torch.full(shape, level, dtype=torch.int8), signs)
    else:
        q = torch.full(shape, (1 << panel.bits) - 1 if is_largest else 0, dtype=torch.uint8)
        one = signs.to(torch.int8) if panel.is_centred else signs.byte() if panel.factors else signs.half()
        factors = (torch.ones(num_outputs, groups // SUPERBLOCK).half(),) * panel.factors
        level = int(q[0, 0]) - (1 << panel.bits - 1 if panel.is_centred else 0)
        second = one if panel.is_centred else one * 0
        weight = PanelWeight.packed(PackedGroups(panel.bits, q, (one, second), factors))
    for rows in (1, 2, 4, 8, 24):
        x = torch.full((rows, shape[1]), 127.0 * sign)
        assert torch.equal(weight(x), torch.full((rows, num_outputs), level * 127.0 * sign * shape[1]))


@pytest.mark.parametrize("panel", FORMATS, ids=str)
def test_a_row_is_the_same_in_a_block_of_any_size_and_on_any_thread(panel):
    generator = torch.Generator().manual_seed(3)
    weight, opened, _ = make_weight(panel, 96, 20, generator)
    x = torch.randn(47, opened.shape[1], generator=generator)
    together = weight(x)
    assert all(torch.equal(weight(x[:rows]), together[:rows]) for rows in (1, 2, 3, 5, 7, 8, 9, 15, 16, 22, 24, 31, 46))
    with KERNEL_THREADS.single_threaded():
        assert torch.equal(weight(x), together)


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize(("rows", "groups"), [(3, 5), (7, 5), (11, 5), (15, 5), (23, 5), (235, 64)])
def test_a_block_that_a_copy_fills_stores_nothing_behind_the_last_row(monkeypatch, panel, rows, groups):
    generator = torch.Generator().manual_seed(4)
    weight, opened, _ = make_weight(panel, 64, groups, generator)
    x = torch.randn(rows, opened.shape[1], generator=generator)
    memory = torch.full((rows + 1, opened.shape[0]), 7.0)
    monkeypatch.setattr("engine.kernels.cpu.operators.empty", lambda shape, dtype: memory[: shape[0]])
    weight(x)
    assert (memory[rows] == 7.0).all()
    assert not (memory[:rows] == 7.0).any()


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [235, 243])
@pytest.mark.parametrize("more", [SUPERBLOCK, 1])
def test_many_rows_are_multiplied_in_chunks_and_stay_the_same(panel, rows, more):
    """With an odd number of groups, too, where the format takes one: the last pair has one group."""
    generator = torch.Generator().manual_seed(6)
    weight, opened, _ = make_weight(panel, 64, 2 * CHUNK_GROUPS + more, generator)
    groups = opened.shape[1] // GROUP_SIZE
    x = torch.randn(rows, opened.shape[1], generator=generator)
    assert chunk_groups(rows, groups) < groups
    together = weight(x)
    for size in (OPENED_FROM - 2, 40):
        assert (chunk_groups(size, groups) == groups) is (size < OPENED_FROM)
        assert all(
            torch.equal(weight(x[first : first + size]), together[first : first + size])
            for first in range(0, rows, size)
        )


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [7, 40])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_input_shows_in_its_own_row_alone(panel, rows, value):
    generator = torch.Generator().manual_seed(4)
    weight, opened, _ = make_weight(panel, 64, 4, generator)
    x = torch.randn(rows, opened.shape[1], generator=generator)
    clean = weight(x)
    x[5, 70] = value
    result = weight(x)
    assert not result[5].isfinite().any()
    others = [row for row in range(rows) if row != 5]
    assert torch.equal(result[others], clean[others])


@given(shape=SHAPES, rows=st.integers(1, 45), seed=st.integers(0, 1 << 20))
@examples(15)
def test_a_stack_of_parts_of_different_widths_gives_the_products_of_its_parts(shape, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    groups = SUPERBLOCK * (1 + shape[1] % 2)
    sizes = [*zip(FORMATS, (64, 32, 32, 32, 64, 32, 32), strict=False), (FORMATS[0], shape[0])]
    weights = [make_weight(panel, num_outputs, groups, generator)[0] for panel, num_outputs in sizes]
    x = torch.randn(rows, groups * GROUP_SIZE, generator=generator)
    stacked = PanelWeight(
        sum(num_outputs for _, num_outputs in sizes), *(part for weight in weights for part in weight.parts)
    )
    assert torch.equal(stacked(x), torch.cat([weight(x) for weight in weights], dim=1))


@pytest.mark.parametrize("panel", FORMATS, ids=str)
def test_no_rows_give_no_rows(panel):
    weight, opened, _ = make_weight(panel, 64, 3, torch.Generator().manual_seed(7))
    assert weight(torch.empty(0, opened.shape[1])).shape == (0, 64)


@pytest.mark.parametrize("panel", FORMATS, ids=str)
def test_extreme_sizes_of_inputs_keep_their_precision(panel):
    generator = torch.Generator().manual_seed(5)
    weight, opened, _ = make_weight(panel, 32, 4, generator)
    x = torch.randn(9, opened.shape[1], generator=generator)
    for size in (2.0**-85, 2.0**85):
        assert torch.equal(weight(x * size) / size, weight(x))


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 40])
def test_inputs_beyond_the_steps_are_zero_or_not_finite(panel, rows):
    generator = torch.Generator().manual_seed(8)
    weight, opened, _ = make_weight(panel, 64, 4, generator)
    x = torch.zeros(rows, opened.shape[1])
    x[:, 3] = 2.0**-103
    assert torch.equal(weight(x), torch.zeros(rows, 64))
    x[:, 3] = 127 * 2.0**100
    largest = weight(x)
    assert torch.equal(largest * 2.0**-100, weight(x * 2.0**-100))
    x[-1, 3] = 129 * 2.0**100
    assert weight(x)[-1].isnan().all()
    assert torch.equal(weight(x)[:-1], largest[:-1])
