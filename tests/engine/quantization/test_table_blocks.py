"""Weights of four bits from a table: the numbers of files as products take them, and their range."""

import pytest
import torch

from engine.quantization.folder_blocks import BLOCK_BYTES
from engine.quantization.gguf_blocks import dequantize
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.stored import StoredMatrix
from engine.quantization.table_blocks import TABLE_TYPES, table_groups
from tests.engine.quantization.gguf_rows import TYPES, random_rows

NUM_OUTPUTS, NUM_INPUTS = 64, 512
ROUNDED = {"NF4", "FP4"}
needs_panels = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")


def rows_of(type_name: str) -> torch.Tensor:
    """Return random rows of a type. Scales are of any sign where a type has one."""
    if type_name in TYPES:
        rows = torch.from_numpy(random_rows(type_name, NUM_OUTPUTS, NUM_INPUTS, seed=1))
        if type_name == "MXFP4":
            rows.view(-1, 17)[:, 0] = rows.view(-1, 17)[:, 0] % 16 + 110
        return rows
    draw = torch.Generator().manual_seed(1)
    scale = torch.rand(NUM_OUTPUTS * NUM_INPUTS // 32, 1, generator=draw) + 0.01
    codes = torch.randint(0, 256, (len(scale), BLOCK_BYTES[type_name] - 4), generator=draw, dtype=torch.uint8)
    return torch.cat((scale.view(torch.uint8), codes), dim=1).view(NUM_OUTPUTS, -1)


@pytest.mark.parametrize("type_name", sorted(TABLE_TYPES))
def test_scales_and_tables_give_the_dequantised_numbers(type_name):
    rows = rows_of(type_name)
    groups = table_groups(type_name, rows)
    assert groups.codes.dtype == torch.uint8
    opened = groups.table[groups.codes.int()].view(NUM_OUTPUTS, -1, 32) * groups.scale[..., None]
    exact = dequantize(type_name, rows).view(opened.shape)
    if type_name in ROUNDED:
        largest = rows.view(-1, 20)[:, :4].contiguous().view(torch.float32).view(NUM_OUTPUTS, -1, 1)
        assert ((opened - exact).abs() <= largest / 256).all()
    else:
        assert torch.equal(opened, exact)


@needs_panels
@pytest.mark.parametrize("type_name", sorted(TABLE_TYPES))
def test_products_read_four_bits_and_half_a_bit_of_scale(type_name):
    parts = [StoredMatrix.from_blocks(type_name, rows_of(type_name), (NUM_OUTPUTS, NUM_INPUTS))] * 2
    form = PanelWeight.of_matrix(StoredMatrix.stack(parts))
    num_panels = 2 * NUM_OUTPUTS // 32
    assert form.num_bytes == 2 * NUM_OUTPUTS * NUM_INPUTS * 4.5 / 8 + num_panels * (64 + 32 * 4)


@needs_panels
def test_an_output_keeps_its_precision_whatever_the_size_of_its_scales():
    """Exponents of MXFP4 reach far beyond half precision."""
    rows = rows_of("MXFP4")
    exponents = torch.linspace(12, 240, NUM_OUTPUTS).byte()
    rows.view(NUM_OUTPUTS, -1, 17)[:, :, 0] = exponents[:, None]
    matrix = StoredMatrix.from_blocks("MXFP4", rows, (NUM_OUTPUTS, NUM_INPUTS))
    x = torch.randn(9, NUM_INPUTS, generator=torch.Generator().manual_seed(2))
    exact = x.double() @ matrix.to_dtype(torch.float32).double().T
    error = (PanelWeight.of_matrix(matrix)(x) - exact) / exact.std(0)
    assert error.abs().max() < 0.034  # a group's step is up to an eighth larger than its inputs need


@needs_panels
def test_scales_that_are_small_beside_others_of_their_output_add_what_they_are():
    rows = rows_of("MXFP4")
    exponents = torch.arange(NUM_INPUTS // 32) + 112
    rows.view(NUM_OUTPUTS, -1, 17)[:, :, 0] = exponents.byte()
    matrix = StoredMatrix.from_blocks("MXFP4", rows, (NUM_OUTPUTS, NUM_INPUTS))
    for group in range(len(exponents)):
        x = torch.zeros(1, NUM_INPUTS)
        x[:, 32 * group : 32 * group + 32] = torch.arange(-127, 128, 8)
        exact = x @ matrix.to_dtype(torch.float32).T
        torch.testing.assert_close(PanelWeight.of_matrix(matrix)(x), exact, rtol=1e-5, atol=0)
