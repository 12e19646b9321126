"""Products with eight-bit weights against products with the dequantised matrix, in float64."""

import pytest
import torch

HALF = torch.bfloat16 if torch.cuda.is_available() else torch.float16  # the interpreter has no products of bfloat16
SIZES = {"rows_per_program": 16, "outputs_per_program": 32}


def random_product(num_rows, num_outputs, num_inputs, dtype, device):
    """Return x, values, scales, bias and their product."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(num_rows, num_inputs, generator=generator).to(dtype)
    values = torch.randint(-127, 128, (num_outputs, num_inputs), generator=generator, dtype=torch.int8)
    scales = torch.rand(num_outputs, generator=generator) * 0.02 * num_inputs**-0.5
    bias = torch.randn(num_outputs, generator=generator).to(dtype)
    expected = x.double() @ (values.double() * scales[:, None].double()).T
    return [part.to(device) for part in (x, values, scales, bias)], expected


@pytest.mark.parametrize(
    ("num_rows", "num_outputs", "num_inputs"), [(1, 32, 128), (3, 50, 200), (17, 96, 64), (40, 33, 1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_bytes_give_the_product_of_the_opened_matrix(device, dtype, num_rows, num_outputs, num_inputs):
    from engine.kernels.cuda.byte_product import multiply

    (x, values, scales, bias), expected = random_product(num_rows, num_outputs, num_inputs, dtype, device)
    tolerance = 1e-5 if dtype is torch.float32 else 2 * torch.finfo(dtype).eps
    found = multiply(x, values, scales, None, **SIZES)
    torch.testing.assert_close(found.cpu().double(), expected, atol=tolerance, rtol=tolerance)
    found = multiply(x, values, scales, bias, **SIZES)
    torch.testing.assert_close(found.cpu().double(), expected + bias.cpu().double(), atol=tolerance, rtol=tolerance)


def test_no_rows_give_no_rows(device):
    from engine.kernels.cuda.byte_product import multiply

    (x, values, scales, _), _ = random_product(1, 32, 64, torch.float32, device)
    assert multiply(x[:0], values, scales, None, **SIZES).shape == (0, 32)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_a_row_alone_is_the_row_in_a_crowd_bit_for_bit(device, dtype):
    from engine.kernels.cuda.byte_product import multiply

    (x, values, scales, _), _ = random_product(37, 64, 300, dtype, device)
    together = multiply(x, values, scales, None, **SIZES)
    for row in (0, 16, 36):
        assert torch.equal(multiply(x[row : row + 1], values, scales, None, **SIZES)[0], together[row])


@pytest.mark.parametrize(("num_rows", "rows"), [(1, 16), (16, 16), (17, 32), (64, 64), (256, 64)])
def test_programs_take_rows_by_powers_of_two(num_rows, rows):
    from engine.kernels.cuda.byte_product import rows_for

    assert rows_for(num_rows) == rows


@pytest.mark.parametrize(("num_outputs", "outputs"), [(48, 16), (4096, 16), (6144, 16), (28672, 64), (128256, 128)])
def test_every_processor_has_a_few_programs(num_outputs, outputs):
    from engine.kernels.cuda.byte_product import outputs_for

    assert outputs_for(num_outputs, num_processors=132) == outputs
