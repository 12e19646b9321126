"""The compiled operators against plain torch, alone and in crowds, on one thread and on two."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.kernels.cpu import operators
from tests.engine.threads import WAYS, threads_of

ROWS = [1, 3, 40, 200]
DTYPES = [torch.float32, torch.bfloat16]
ROUNDING = {torch.float32: {"atol": 3e-6, "rtol": 3e-6}, torch.bfloat16: {"atol": 1e-6, "rtol": 2**-7}}
"""Tolerances: float32 has another order of additions and an exp good to 2e-7; bfloat16 one rounding of the result."""

CONSTANTS = torch.tensor([1e-5, 1.0, 1.0])
"""The eps of a norm, and the scale of what is added before it."""
SILU = {"is_gelu": False, "is_gated": True}


@pytest.fixture(params=WAYS, autouse=True)
def threads(request):
    with threads_of(request.param):
        yield request.param


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("given", [None, *DTYPES])
@pytest.mark.parametrize("dtype", DTYPES)
def test_adding_and_normalising_equal_two_operators(rows, given, dtype):
    hidden, weight = torch.randn(rows, 100), torch.rand(100)
    delta = None if given is None else torch.randn(rows, 100).to(given)
    expected = hidden if delta is None else hidden + delta.float()
    result = operators.add_normalize(hidden_now := hidden.clone(), delta, weight, None, CONSTANTS, dtype)
    torch.testing.assert_close(hidden_now, expected)
    torch.testing.assert_close(result, functional.rms_norm(expected, (100,), weight, 1e-5).to(dtype), **ROUNDING[dtype])


def test_the_stream_is_scaled_after_the_addition():
    hidden, delta, weight = torch.randn(3, 100), torch.randn(3, 100), torch.rand(100)
    constants = torch.tensor([1e-5, 0.5, 0.25])
    expected = 0.25 * (hidden + 0.5 * delta)
    result = operators.add_normalize(hidden, delta, weight, None, constants, torch.float32)
    torch.testing.assert_close(hidden, expected)
    torch.testing.assert_close(result, functional.rms_norm(expected, (100,), weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_of_an_activation_may_lie_apart(dtype):
    x, factors = torch.randn(3, 40), torch.randn(3, 100)[:, 20:60]
    result = operators.gate(x, dtype, is_gelu=True, is_gated=False, factors=factors)
    expected = functional.gelu(x, approximate="tanh") * factors
    torch.testing.assert_close(result, expected.to(dtype), **ROUNDING[dtype])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("given", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_gelu", [False, True])
@pytest.mark.parametrize("is_gated", [False, True])
def test_activations_equal_those_of_torch(rows, given, dtype, is_gelu, is_gated):
    x = (torch.randn(rows, 130) * 20).to(given)
    gate, up = x.double().chunk(2, -1) if is_gated else (x.double(), 1.0)
    activated = functional.gelu(gate, approximate="tanh") if is_gelu else functional.silu(gate)
    found = operators.gate(x, dtype, is_gelu=is_gelu, is_gated=is_gated)
    torch.testing.assert_close(found, (activated * up).to(dtype), **ROUNDING[dtype])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("levels", [torch.int8, torch.uint8])
def test_quantised_rows_come_back_within_half_a_level(rows, levels):
    x = torch.randn(rows, 90) * torch.logspace(-3, 3, rows)[:, None]
    x[0, :] = 0
    quantized, scales = operators.quantize(x, levels)
    back = (quantized.float() - (128 if levels is torch.uint8 else 0)) * scales
    assert ((back - x).abs() <= scales * 0.501).all()


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("levels", [torch.int8, torch.uint8])
def test_a_broken_value_makes_the_scale_of_its_row_and_no_other_broken(broken, levels):
    """NaN was passed over, and the row multiplied as if it were sound."""
    x = torch.randn(3, 90)
    x[1, 5] = broken
    _, scales = operators.quantize(x, levels)
    assert scales.flatten().isfinite().tolist() == [True, False, True]


def test_an_infinite_or_broken_value_stays_in_its_row():
    x = torch.randn(3, 64)
    x[1, 5] = float("nan")
    clean = operators.add_normalize(x[[0, 2]].clone(), None, torch.ones(64), None, CONSTANTS, torch.float32)
    result = operators.add_normalize(x, None, torch.ones(64), None, CONSTANTS, torch.float32)
    assert torch.isnan(result[1]).all()
    assert torch.equal(result[[0, 2]], clean)
    assert torch.isnan(operators.gate(torch.full((1, 8), float("nan")), torch.bfloat16, **SILU)).all()


@pytest.mark.parametrize("operator", ["add_normalize", "gate", "quantize"])
def test_a_row_alone_equals_the_row_in_a_crowd(operator):
    x = torch.randn(300, 128)

    def run(rows):
        if operator == "add_normalize":
            return operators.add_normalize(rows.clone(), None, torch.ones(128), None, CONSTANTS, torch.float32)
        return (
            operators.gate(rows, torch.float32, **SILU)
            if operator == "gate"
            else operators.quantize(rows, torch.int8)[0]
        )

    together = run(x)
    assert all(torch.equal(run(x[row : row + 1].clone())[0], together[row]) for row in range(0, 300, 17))


def test_exp_holds_its_precision_over_the_whole_range():
    """gate(x, 1) is x / (1 + exp(-x)): undo it."""
    x = torch.linspace(-80, 80, 4001)[:, None]
    x = x[x.abs() > 1e-3][:, None]
    result = operators.gate(torch.cat((x, torch.ones_like(x)), 1).contiguous(), torch.float32, **SILU)
    torch.testing.assert_close(result.double(), x.double() / (1 + torch.exp(-x.double())), atol=1e-30, rtol=1e-6)
