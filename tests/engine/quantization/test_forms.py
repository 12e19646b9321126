"""Every form of a weight against the product in float32, and each row alone against the row in a batch."""

import copy

import pytest
import torch

from engine.quantization.gguf_blocks import FourBitGroups
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import DenseWeight, Int4Weight, Int8PackedWeight, Int8Weight, quantize_weight

NUM_OUTPUTS, NUM_INPUTS = 96, 160


def four_bit_groups(generator: torch.Generator) -> FourBitGroups:
    shape = (NUM_OUTPUTS, NUM_INPUTS // 32)
    q = torch.randint(0, 16, (NUM_OUTPUTS, NUM_INPUTS), generator=generator, dtype=torch.uint8)
    scale = torch.rand(shape, generator=generator) * 0.02 + 0.001
    return FourBitGroups(q, scale, scale * -8 * (1 + 0.1 * torch.randn(shape, generator=generator)))


def opened(groups: FourBitGroups) -> torch.Tensor:
    return (groups.q.reshape(*groups.scale.shape, 32) * groups.scale[..., None] + groups.minimum[..., None]).reshape(
        groups.q.shape
    )


PANELS = pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")

EXACT = (
    pytest.mark.processor,
    pytest.mark.skipif(not Int8PackedWeight.is_exact(), reason="needs a processor whose sums do not overflow"),
)
EXACT_PACKED = pytest.param("int8_packed", marks=EXACT)
PANEL_NAMES = [pytest.param(name, marks=PANELS) for name in ("int4_panels", "int8_panels")]


def forms() -> dict:
    groups = four_bit_groups(torch.Generator().manual_seed(0))
    weight = opened(groups)
    panels = {}
    if PanelWeight.fits((NUM_OUTPUTS, NUM_INPUTS)):
        panels = {
            "int4_panels": PanelWeight.four_bit(groups),
            "int8_panels": PanelWeight.of_matrix(StoredMatrix.from_float(weight)),
        }
    return panels | {
        "int4": Int4Weight(groups),
        "int8": Int8Weight(*quantize_weight(weight)),
        "int8_packed": Int8PackedWeight(*quantize_weight(weight)),
        "bf16": DenseWeight(weight.bfloat16()),
        "float32": DenseWeight(weight),
    }, weight


# Relative to the spread of the exact result. int4 and bf16 round inputs, scales and outputs to 8 bits of mantissa; int8
# rounds inputs and weights to 7 bits: about 1 % on average, and this is the largest of thousands.
TOLERANCES = {
    "int4": 0.02,
    "int4_panels": 0.03,
    "int8_panels": 0.06,
    "int8": 0.06,
    "int8_packed": 0.06,
    "bf16": 0.02,
    "float32": 1e-5,
}
NAMES = ["int4", "int8", "bf16", "float32", EXACT_PACKED, *PANEL_NAMES]


@pytest.mark.parametrize("rows", [1, 3, 32, 129])
@pytest.mark.parametrize("name", NAMES)
def test_a_form_multiplies_like_float32_within_its_precision(name, rows):
    built, weight = forms()
    x = torch.randn(rows, NUM_INPUTS, generator=torch.Generator().manual_seed(rows))
    expected = x @ weight.T
    error = (built[name](x).float() - expected).abs().max() / expected.std()
    assert error < TOLERANCES[name]


@pytest.mark.parametrize("name", ["int4", "int8", EXACT_PACKED, *PANEL_NAMES])
def test_a_row_alone_equals_the_row_in_a_batch(name):
    built, _ = forms()
    x = torch.randn(37, NUM_INPUTS, generator=torch.Generator().manual_seed(5))
    x[3] *= 1000
    together = built[name](x)
    for row in range(x.shape[0]):
        assert torch.equal(built[name](x[row : row + 1])[0], together[row])


@pytest.mark.parametrize("name", ["int8", EXACT_PACKED, *PANEL_NAMES])
def test_a_row_of_zeros_gives_zeros_and_no_nan(name):
    built, _ = forms()
    assert torch.equal(built[name](torch.zeros(2, NUM_INPUTS)), torch.zeros(2, NUM_OUTPUTS))


@pytest.mark.parametrize("name", ["int8", EXACT_PACKED, *PANEL_NAMES])
def test_a_row_that_is_not_finite_harms_no_other_row(name):
    built, _ = forms()
    x = torch.randn(4, NUM_INPUTS, generator=torch.Generator().manual_seed(6))
    clean = built[name](x)
    x[1, 7] = torch.nan
    assert torch.equal(built[name](x)[[0, 2, 3]], clean[[0, 2, 3]])


@EXACT[0]
@EXACT[1]
def test_the_two_int8_forms_agree():
    built, _ = forms()
    x = torch.randn(9, NUM_INPUTS, generator=torch.Generator().manual_seed(7))
    # One level of one input may round the other way at a half.
    torch.testing.assert_close(built["int8"](x), built["int8_packed"](x), atol=0.02, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_computes_the_same_and_reports_its_bytes(name):
    built, _ = forms()
    x = torch.randn(2, NUM_INPUTS)
    clone = copy.deepcopy(built[name])
    assert torch.equal(clone(x), built[name](x))
    assert clone.num_bytes == built[name].num_bytes > 0


@pytest.mark.parametrize(("shape", "fits"), [((96, 160), True), ((90, 160), False), ((96, 150), False)])
def test_int4_takes_only_shapes_that_its_kernel_takes(shape, fits):
    assert Int4Weight.fits(shape) is fits


@PANELS
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["int4_panels", "int8_panels"])
def test_a_broken_input_shows_in_every_output_of_its_row(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        built, _ = forms()
        x = torch.ones(3, NUM_INPUTS)
        x[1, 7], x[2, 9] = torch.nan, torch.inf
        is_finite = built[name](x).isfinite()
        assert is_finite[0].all()
        assert not is_finite[1:].any()
    finally:
        torch.set_num_threads(before)
