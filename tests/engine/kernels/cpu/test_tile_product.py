"""Products in tiles against float products, over formats, shapes and row counts; emulated where there are no tiles."""

from __future__ import annotations

import pytest
import torch
from numba import njit

from engine.kernels.cpu import tile_product
from engine.kernels.cpu.integer_product import scratch_bytes
from engine.kernels.cpu.integer_vectors import GROUP, PANEL, has_tiles
from engine.kernels.cpu.panels import FORMATS
from engine.kernels.cpu.primitives import OPTIONS
from engine.kernels.cpu.tile_product import TILE_GROUPS, TILE_ROWS, TILES_FROM
from engine.quantization.vnni import VnniWeight
from tests.engine.kernels.cpu.emulated_tiles import EmulatedTiles
from tests.engine.kernels.cpu.test_integer_product import make_weight

pytestmark = pytest.mark.skipif(not VnniWeight.fits((32, 32)), reason="needs a processor with AVX512-VNNI")
UNCACHED = OPTIONS | {"cache": False}


@pytest.fixture(scope="module")
def multiply():
    """Return a function that multiplies rows by a weight in tiles."""
    if has_tiles():
        yield lambda weight, x: weight.in_tiles()(x)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_product, "Tiles", EmulatedTiles)
        multiply_tiles = njit(**UNCACHED)(tile_product.multiply_tiles.py_func)
        round_rows = njit(**UNCACHED)(tile_product.round_rows.py_func)

        def multiplied(weight, x):
            rows, inputs = x.shape
            ((panels, form),) = weight.parts
            out = torch.full((rows, len(panels) * PANEL), torch.nan)
            scratch = torch.empty(scratch_bytes(rows, inputs) + 64, dtype=torch.uint8)
            near = -(-scratch.data_ptr() // 64) * 64
            tiles = torch.empty(tile_product.tile_input_bytes(rows, inputs) + 64, dtype=torch.uint8)
            at = -(-tiles.data_ptr() // 64) * 64
            groups = inputs // GROUP
            for part in range(3):
                round_rows(x.data_ptr(), rows, groups, at, part, 3)
            first = len(panels) // 2
            for begin, end in ((0, first), (first, len(panels))):
                multiply_tiles(
                    panels.data_ptr(),
                    panels.shape[1],
                    form,
                    begin,
                    end,
                    groups,
                    at,
                    rows,
                    near,
                    out.data_ptr(),
                    out.shape[1],
                )
            return out[:, : weight._num_outputs]

        yield multiplied


def rounded(x):
    return x.bfloat16().double()


@pytest.mark.parametrize("panel", FORMATS, ids=str)
@pytest.mark.parametrize("num_rows", [TILES_FROM, TILES_FROM + 1, 2 * TILES_FROM + TILE_ROWS - 1])
@pytest.mark.parametrize("groups", [8, TILE_GROUPS, 2 * TILE_GROUPS + 8])
def test_results_are_those_of_rounded_inputs_and_weights(multiply, panel, num_rows, groups):
    generator = torch.Generator().manual_seed(num_rows)
    weight, opened, _ = make_weight(panel, 75, groups, generator)
    x = torch.randn(num_rows, groups * GROUP, generator=generator)
    expected = rounded(x) @ rounded(opened).T
    magnitude = rounded(x).abs() @ rounded(opened).abs().T
    # Ties and the sum of a level and its minimum may round to the other neighbour.
    found = multiply(weight, x).double()
    assert ((found - expected).abs() <= 2e-3 * magnitude).all()
    exact = x.double() @ opened.T
    assert (found - exact).norm() / exact.norm() < 4e-3


def test_a_row_has_the_same_result_in_any_batch(multiply):
    generator = torch.Generator().manual_seed(1)
    weight = make_weight(FORMATS[0], 64, 20, generator).weight
    x = torch.randn(3 * TILES_FROM, 20 * GROUP, generator=generator)
    together = multiply(weight, x)
    for first, last in ((0, TILES_FROM), (5, TILES_FROM + 12), (7, 3 * TILES_FROM)):
        assert torch.equal(multiply(weight, x[first:last].contiguous()), together[first:last])


def test_an_input_that_is_not_finite_spoils_its_row_alone(multiply):
    generator = torch.Generator().manual_seed(2)
    weight = make_weight(FORMATS[0], 64, 8, generator).weight
    x = torch.randn(TILES_FROM, 8 * GROUP, generator=generator)
    clean = multiply(weight, x)
    x[3, 40] = torch.nan
    found = multiply(weight, x)
    assert found[3].isnan().all()
    others = [row for row in range(TILES_FROM) if row != 3]
    assert torch.equal(found[others], clean[others])
