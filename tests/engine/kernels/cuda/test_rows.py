"""The kernels over rows against plain torch: norm, gate, rotation with the write into the cache."""

import pytest
import torch
from torch.nn import functional

HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float16
"""Triton's interpreter truncates to bfloat16 where a device rounds."""
HALF_STEP = torch.finfo(HALF).eps


def random(*shape, dtype, device):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(*shape, generator=generator).to(device, dtype)


def assert_close(found, expected):
    tolerance = HALF_STEP if found.dtype is HALF else 1e-5
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 96), (2, 1000)])
@pytest.mark.parametrize("has_delta", [False, True])
@pytest.mark.parametrize("kind", ["root mean square", "layer norm", "none"])
def test_the_norm_adds_and_normalises_as_torch_does(device, dtype, rows, size, has_delta, kind):
    from engine.kernels.cuda.rows import add_normalize

    hidden = random(rows, size, dtype=dtype, device=device)
    delta = random(rows, size, dtype=dtype, device=device).flip(1) if has_delta else None
    weight = None if kind == "none" else random(size, dtype=dtype, device=device)
    bias = random(size, dtype=dtype, device=device).flip(0) if kind == "layer norm" else None
    stream = hidden if delta is None else (hidden.float() + 0.5 * delta.float()).to(dtype)
    expected = stream.float()
    if bias is not None:
        expected = functional.layer_norm(expected, (size,), weight.float(), bias.float(), 1e-5)
    elif weight is not None:
        expected = functional.rms_norm(expected, (size,), weight.float(), 1e-5)
    assert_close(add_normalize(hidden, delta, weight, bias, 1e-5, 0.5, dtype), expected.to(dtype))
    assert torch.equal(hidden, stream)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("groups", [(4, 2), (1, 1)], ids=["each head", "all heads together"])
def test_queries_and_keys_are_normalised_and_values_kept(device, dtype, groups):
    from engine.kernels.cuda.rows import normalize_heads

    heads = random(3, 8, 16, dtype=dtype, device=device)
    before = heads.clone()
    parts = [before[:, :4].reshape(3, groups[0], -1), before[:, 4:6].reshape(3, groups[1], -1)]
    weights = [random(part.shape[-1], dtype=dtype, device=device) for part in parts]
    normalize_heads(heads, (groups[0], weights[0]), (groups[1], weights[1]), 1e-5)
    expected = [
        functional.rms_norm(part.float(), (len(weight),), weight.float(), 1e-5).flatten(1)
        for part, weight in zip(parts, weights, strict=True)
    ]
    assert_close(heads[:, :6].flatten(1), torch.cat(expected, 1).to(dtype))
    assert torch.equal(heads[:, 6:], before[:, 6:])


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(("rows", "size"), [(1, 48), (3, 1500)])
@pytest.mark.parametrize("is_gelu", [False, True])
@pytest.mark.parametrize("is_gated", [False, True])
def test_activations_are_those_of_torch(device, dtype, rows, size, is_gelu, is_gated):
    from engine.kernels.cuda.rows import gate

    x = random(rows, 2 * size if is_gated else size, dtype=dtype, device=device)
    first = x[:, :size].float()
    expected = functional.gelu(first, approximate="tanh") if is_gelu else functional.silu(first)
    expected = (expected * x[:, size:].float() if is_gated else expected).to(dtype)
    assert_close(gate(x, dtype, is_gelu=is_gelu, is_gated=is_gated), expected)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(("num_heads", "kv_heads", "size"), [(4, 2, 16), (3, 1, 80)])
def test_queries_and_keys_are_rotated_and_keys_and_values_stored(device, dtype, num_heads, kv_heads, size):
    from engine.kernels.cuda.rotary import rotate_and_store

    heads = random(3, num_heads + 2 * kv_heads, size, dtype=dtype, device=device)
    angles = random(3, 1, size // 2, dtype=torch.float32, device=device)
    rotations = torch.polar(torch.ones_like(angles), angles)
    slots = torch.tensor([5, 0, 9], device=device)
    keys, values = (torch.zeros(12, kv_heads, size, dtype=dtype, device=device) for _ in range(2))
    turned = torch.view_as_complex(heads[:, : num_heads + kv_heads].float().unflatten(-1, (-1, 2))) * rotations
    expected = heads.clone()
    expected[:, : num_heads + kv_heads] = torch.view_as_real(turned).flatten(-2).to(dtype)
    rotate_and_store(heads, rotations, slots, keys, values, num_heads)
    assert_close(heads, expected)
    assert torch.equal(keys[slots], heads[:, num_heads : num_heads + kv_heads])
    assert torch.equal(values[slots], expected[:, num_heads + kv_heads :])
    assert not keys[[1, 2, 3, 4, 6, 7, 8, 10, 11]].any()


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_eight_bit_keys_and_values_are_those_of_torch_and_saturate(device, dtype):
    """Bit for bit: magnitudes from below the least to beyond the largest of e4m3, and ties between neighbours."""
    from engine.kernels.cuda.rotary import rotate_and_store

    grid = torch.arange(0, 127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ties = (grid[1:] + grid[:-1]) / 2
    numbers = torch.cat(
        (grid, ties, ties * (1 + 2**-7), ties * (1 - 2**-7), torch.tensor([2.0**-14, 450.0, 470.0, 5e4]))
    )
    numbers = torch.cat((numbers, -numbers))
    numbers = torch.cat((numbers, torch.zeros(-len(numbers) % 32))).to(dtype)
    heads = numbers.view(-1, 1, 16).repeat(1, 4, 1).to(device)  # two queries, a key, a value
    rotations = torch.ones(len(heads), 1, 8, dtype=torch.complex64, device=device)
    slots = torch.arange(len(heads), device=device).flip(0)
    keys, values = (torch.zeros(len(heads), 1, 16, dtype=torch.float8_e4m3fn, device=device) for _ in range(2))
    rotate_and_store(heads, rotations, slots, keys, values, 2)
    expected = numbers.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(-1, 1, 16)
    for cache in (keys, values):
        found = cache.cpu().view(torch.uint8).flip(0).view(torch.float8_e4m3fn)
        assert torch.equal(found.float(), expected.float())
