import pytest
import torch
from torch.nn import functional

from engine.layers.activation import silu_and_multiply
from engine.layers.norm import RmsNorm


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_norm_equals_the_reference_at_every_magnitude(scale):
    x, weight = torch.randn(7, 48) * scale, torch.randn(48)
    torch.testing.assert_close(
        RmsNorm(weight, 1e-5)(x, None, torch.float32), functional.rms_norm(x, (48,), weight, 1e-5), atol=1e-6, rtol=1e-5
    )


def test_a_row_of_zeros_stays_zeros():
    assert torch.equal(RmsNorm(torch.ones(8), 1e-5)(torch.zeros(2, 8), None, torch.float32), torch.zeros(2, 8))


def test_a_row_alone_is_normalised_as_in_a_batch():
    x, norm = torch.randn(65, 576), RmsNorm(torch.randn(576), 1e-5)
    together = norm(x, None, torch.float32)
    assert all(torch.equal(norm(x[row : row + 1], None, torch.float32)[0], together[row]) for row in range(65))


def test_the_gate_is_the_first_half():
    gate, up = torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(silu_and_multiply(torch.cat((gate, up), 1), torch.float32), functional.silu(gate) * up)
