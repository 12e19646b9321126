"""Products in tiles against float products, over formats, shapes and row counts; emulated where there are none."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from numba import njit

from engine.kernels.cpu import integer_product, integer_vectors, operators, tile_product
from engine.kernels.cpu.integer_vectors import GROUP, PANEL, has_tiles
from engine.kernels.cpu.panels import FORMATS
from engine.kernels.cpu.primitives import OPTIONS
from engine.kernels.cpu.row_records import quantize_groups
from engine.kernels.cpu.tile_product import TILE_GROUPS, TILE_PANELS, TILE_ROWS, TILES_FROM
from engine.quantization.panel_weight import PanelWeight
from tests.engine.kernels.cpu.emulated_tiles import EmulatedTiles
from tests.engine.kernels.cpu.test_integer_product import make_weight

pytestmark = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
UNCACHED = OPTIONS | {"cache": False}
NUM_PARTS = 3


@njit(**UNCACHED)
def _never_called(*arguments):
    """Stand in for the products without tiles, which take long to compile."""


@pytest.fixture(scope="module")
def emulated():
    """Compile the kernel of products with emulated tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_product, "Tiles", EmulatedTiles)
        patch.setattr(integer_product, "_multiply_tiles", njit(**UNCACHED)(tile_product.multiply_tiles.py_func))
        patch.setattr(integer_product, "_multiply_block", _never_called)
        yield njit(**UNCACHED)(integer_product.multiply.py_func)


@pytest.fixture(params=["records of each thread", "shared records"])
def multiply(request):
    """Return a function that multiplies rows by weights, stacked by outputs, in tiles."""
    if has_tiles():
        return lambda x, *weights: in_tiles(x, weights)
    kernel = request.getfixturevalue("emulated")
    return lambda x, *weights: run(kernel, x, weights, request.param == "shared records")


def stacked(weights):
    """Return the parts of all weights, whole panels each."""
    return [part for weight in weights for part in weight.parts]


def in_tiles(x, weights):
    return operators.multiply(x, *stacked(weights), may_take_tiles=True)


def run(kernel, x, weights, shares_records):
    """Run the kernel as operators.multiply does, part by part, with two threads in turn."""
    rows, inputs = x.shape
    width = sum(len(panels) * PANEL for panels, _ in stacked(weights))
    out = torch.full((rows, width), torch.nan)
    near = -(-integer_product.scratch_bytes(rows, inputs, True) // 64) * 64
    memory = torch.full((2 * near + 64,), 255, dtype=torch.uint8)
    scratch = -(-memory.data_ptr() // 64) * 64
    records = 0
    if shares_records:
        records = scratch + integer_product.records_offset(inputs // GROUP)
        for part in range(NUM_PARTS):
            quantize_groups.py_func(np.array([rows, inputs, x.data_ptr(), records, 1]), 0, part, NUM_PARTS)
    first = 0
    for panels, form in stacked(weights):
        outputs = len(panels) * PANEL
        target = out[:, first:].data_ptr()
        sizes = (rows, outputs, inputs, x.data_ptr(), panels.data_ptr(), target, scratch, near, form, records, width, 1)
        for part in range(NUM_PARTS):
            kernel(np.array(sizes), part % 2, part, NUM_PARTS, part < 2)
        first += outputs
    return out


def rounded(x):
    return x.bfloat16().double()


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("num_rows", [TILES_FROM, 3 * TILE_ROWS, 4 * TILE_ROWS, 7 * TILE_ROWS - 1])
@pytest.mark.parametrize("groups", [8, TILE_GROUPS, 2 * TILE_GROUPS + 8])
def test_results_are_those_of_rounded_inputs_and_weights(multiply, panel, num_rows, groups):
    generator = torch.Generator().manual_seed(num_rows)
    num_outputs = NUM_PARTS * TILE_PANELS * PANEL + 75
    weight, opened, _ = make_weight(panel, num_outputs, groups, generator)
    x = torch.randn(num_rows, groups * GROUP, generator=generator)
    expected = rounded(x) @ rounded(opened).T
    magnitude = rounded(x).abs() @ rounded(opened).abs().T
    # Ties and the sum of a level and its minimum may round to the other neighbour.
    found = multiply(x, weight)[:, :num_outputs].double()
    assert ((found - expected).abs() <= 2e-3 * magnitude).all()
    exact = x.double() @ opened.T
    assert (found - exact).norm() / exact.norm() < 4e-3


def test_weights_of_several_formats_are_stacked(multiply):
    generator = torch.Generator().manual_seed(3)
    made = [make_weight(panel, 2 * PANEL, 8, generator) for panel in FORMATS]
    x = torch.randn(2 * TILES_FROM, 8 * GROUP, generator=generator)
    found = multiply(x, *(one.weight for one in made)).double()
    exact = x.double() @ torch.cat([one.opened for one in made]).T
    assert (found - exact).norm() / exact.norm() < 4e-3


def test_a_row_has_the_same_result_in_any_batch(multiply):
    generator = torch.Generator().manual_seed(1)
    weight = make_weight(FORMATS[0], 64, 20, generator).weight
    x = torch.randn(3 * TILES_FROM, 20 * GROUP, generator=generator)
    together = multiply(x, weight)
    for first, last in ((0, TILES_FROM), (5, TILES_FROM + 12), (7, 3 * TILES_FROM)):
        assert torch.equal(multiply(x[first:last].contiguous(), weight), together[first:last])


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_an_input_that_is_not_finite_spoils_its_row_alone(multiply, number):
    generator = torch.Generator().manual_seed(2)
    weight = make_weight(FORMATS[0], 64, 8, generator).weight
    x = torch.randn(TILES_FROM, 8 * GROUP, generator=generator)
    clean = multiply(x, weight)
    x[3, 40] = number
    found = multiply(x, weight)
    assert not found[3].isfinite().any()
    others = [row for row in range(TILES_FROM) if row != 3]
    assert torch.equal(found[others], clean[others])


def test_a_copy_takes_tiles_if_the_weight_does(monkeypatch):
    monkeypatch.setattr("engine.quantization.panel_weight.has_tiles", lambda: True)
    taken = []
    monkeypatch.setattr(operators, "multiply", lambda x, *parts, may_take_tiles: taken.append(may_take_tiles) or x)
    weight = make_weight(FORMATS[0], GROUP, 1, torch.Generator().manual_seed(0)).weight
    weight = PanelWeight(GROUP, *weight.parts, may_take_tiles=True)
    for one in (weight, weight.__deepcopy__({})):
        one(torch.zeros(TILES_FROM, GROUP))
    assert taken == [True, True]


@pytest.mark.parametrize(("answer", "is_granted"), [(0, True), (-1, False)])
def test_tiles_are_used_only_if_the_system_grants_them(answer, is_granted, monkeypatch):
    class Library:
        def syscall(self, *arguments):
            return answer

    monkeypatch.setattr(integer_vectors, "compiles_tiles", lambda: True)
    monkeypatch.setattr(integer_vectors.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert has_tiles.__wrapped__() is is_granted
