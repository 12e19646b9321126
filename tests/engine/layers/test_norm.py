import pytest
import torch
from torch.nn import functional

from engine.layers.feed_forward import activate
from engine.layers.norm import HeadsNorm, Norm


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_norm_equals_the_reference_at_every_magnitude(scale):
    x, weight = torch.randn(7, 48) * scale, torch.randn(48)
    torch.testing.assert_close(
        Norm(weight, None, 1e-5)(x, None, torch.float32),
        functional.rms_norm(x, (48,), weight, 1e-5),
        atol=1e-6,
        rtol=1e-5,
    )


def test_a_row_of_zeros_stays_zeros():
    assert torch.equal(Norm(torch.ones(8), None, 1e-5)(torch.zeros(2, 8), None, torch.float32), torch.zeros(2, 8))


def test_a_row_alone_is_normalised_as_in_a_batch():
    x, norm = torch.randn(65, 576), Norm(torch.randn(576), None, 1e-5)
    together = norm(x, None, torch.float32)
    assert all(torch.equal(norm(x[row : row + 1], None, torch.float32)[0], together[row]) for row in range(65))


def test_the_gate_is_the_first_half():
    gate, up = torch.randn(3, 8), torch.randn(3, 8)
    torch.testing.assert_close(activate(torch.cat((gate, up), 1), torch.float32), functional.silu(gate) * up)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_a_norm_adds_what_is_scaled_to_the_stream(scale):
    hidden, delta, weight = torch.randn(5, 48), torch.randn(5, 48), torch.randn(48)
    stream = hidden + scale * delta
    normed = Norm(weight, None, 1e-5, scale)(hidden, delta, torch.float32)
    torch.testing.assert_close(hidden, stream)
    torch.testing.assert_close(normed, functional.rms_norm(stream, (48,), weight, 1e-5), atol=1e-5, rtol=1e-5)


def test_a_norm_with_a_bias_is_a_layer_norm():
    x, weight, bias = torch.randn(5, 48) * 3 + 2, torch.randn(48), torch.randn(48)
    expected = functional.layer_norm(x, (48,), weight, bias, 1e-5)
    torch.testing.assert_close(Norm(weight, bias, 1e-5)(x, None, torch.float32), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_without_a_weight_adds_alone(dtype):
    hidden, delta = torch.randn(5, 48), torch.randn(5, 48)
    stream = hidden + delta
    assert torch.equal(Norm(None, None, 1e-5)(hidden, delta, dtype), stream.to(dtype))
    assert torch.equal(hidden, stream)


@pytest.mark.parametrize("is_gelu", [False, True])
@pytest.mark.parametrize("size", [8, 16, 50])
def test_an_activation_without_a_gate_equals_the_reference(is_gelu, size):
    x = torch.randn(3, size) * 4
    expected = functional.gelu(x.double(), approximate="tanh").float() if is_gelu else functional.silu(x)
    torch.testing.assert_close(
        activate(x, torch.float32, is_gelu=is_gelu, is_gated=False), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("groups", [(4, 2), (1, 1)], ids=["each head", "all heads together"])
def test_queries_and_keys_are_normalised_in_place_and_values_kept(groups):
    heads, eps = torch.randn(5, 8, 16), 1e-5
    before = heads.clone()
    parts = [before[:, :4].reshape(5, groups[0], -1), before[:, 4:6].reshape(5, groups[1], -1)]
    weights = [torch.randn(part.shape[-1]) for part in parts]
    HeadsNorm(weights[0], groups[0], weights[1], groups[1], eps)(heads)
    expected = [
        functional.rms_norm(part, (len(weight),), weight, eps).flatten(1)
        for part, weight in zip(parts, weights, strict=True)
    ]
    torch.testing.assert_close(heads[:, :6].flatten(1), torch.cat(expected, 1), atol=1e-5, rtol=1e-5)
    assert torch.equal(heads[:, 6:], before[:, 6:])
