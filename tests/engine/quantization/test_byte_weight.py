"""Eight-bit weights on CUDA: the kernel for few rows and the dequantised matrix for many give the same numbers."""

import pytest
import torch

from engine.kernels.cuda.byte_product import MOST_ROWS
from engine.quantization import byte_weight
from engine.quantization.torch_forms import quantize_weight

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MORE_ROWS = byte_weight.FEW_ROWS + 1


@pytest.fixture
def weight():
    return torch.randn(48, 64, generator=torch.Generator().manual_seed(1)).to(DEVICE)


def form_of(weight, is_invariant=False):
    return byte_weight.ByteWeight(*quantize_weight(weight), torch.float32, is_invariant)


@pytest.mark.parametrize("num_rows", [1, 20, MORE_ROWS])
def test_any_number_of_rows_gives_the_product_of_the_rounded_matrix(weight, num_rows, monkeypatch):
    monkeypatch.setattr(byte_weight, "OPEN_WEIGHTS", 20 * 64)  # the matrix is opened in three parts
    values, scale = quantize_weight(weight)
    x, bias = torch.randn(num_rows, 64, device=DEVICE), torch.randn(48, device=DEVICE)
    expected = x @ (values * scale[:, None]).T
    torch.testing.assert_close(form_of(weight)(x), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(form_of(weight).multiply_add(x, bias), expected + bias, atol=1e-4, rtol=1e-4)


def test_rounding_costs_about_a_percent(weight):
    x = torch.randn(4, 64, device=DEVICE)
    exact = x @ weight.T
    assert (form_of(weight)(x) - exact).norm() / exact.norm() < 0.015


def test_an_invariant_form_gives_a_row_the_same_in_any_crowd(weight):
    """Rows keep their place in a program, as numpy in the interpreter depends on it on some processors. tests/gpu moves
    them.
    """
    x = torch.randn(MORE_ROWS, 64, device=DEVICE)
    form = form_of(weight, is_invariant=True)
    together = form(x)
    for rows in (slice(1), slice(20), slice(MOST_ROWS, MOST_ROWS + 30), slice(4 * MOST_ROWS, MORE_ROWS)):
        assert torch.equal(form(x[rows]), together[rows])


def test_it_stores_one_byte_per_weight_and_one_scale_per_output(weight):
    form = form_of(weight)
    assert form.num_bytes == 48 * 64 + 48 * 4
    assert form.input_dtype is torch.float32
