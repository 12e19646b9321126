"""Products of every storage type as they are computed, against float32 on the dequantised weights."""

import pytest
import torch
from torch.nn import functional

from engine.quantization.gguf_blocks import FOUR_BIT_TYPES
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.scheme import WeightForm
from engine.quantization.stored import StoredMatrix
from engine.quantization.torch_forms import Int4Weight
from tests.engine.quantization.gguf_rows import TYPES, even_rows, stored_rows

NUM_OUTPUTS, NUM_INPUTS = 128, 512
SPREAD = 2.5
"""Standard deviation of the logits."""


def divergence(matrix: StoredMatrix, form: WeightForm) -> float:
    """Return the mean KL divergence of logits that a form computes from those in float32."""
    x = torch.randn(32, NUM_INPUTS, generator=torch.Generator().manual_seed(0))
    exact = x @ matrix.to_dtype(torch.float32).T
    computed, expected = ((SPREAD / exact.std() * logits.float()).log_softmax(-1) for logits in (form(x), exact))
    return functional.kl_div(computed, expected, log_target=True, reduction="batchmean")


def matrix_of(type_name: str) -> StoredMatrix:
    rows = torch.from_numpy(even_rows(type_name, NUM_OUTPUTS, NUM_INPUTS, seed=1))
    return StoredMatrix.from_blocks(type_name, rows, (NUM_OUTPUTS, NUM_INPUTS))


@pytest.mark.skipif(not PanelWeight.fits((32, 32)), reason="needs a processor with AVX2")
@pytest.mark.parametrize("type_name", TYPES)
def test_logits_of_every_type_are_close_to_those_in_float32(type_name):
    """The mean KL divergence must stay below 0.005; one product of the largest error here has 0.0003."""
    matrix = matrix_of(type_name)
    assert divergence(matrix, PanelWeight.of_matrix(matrix)) < 0.0005


@pytest.mark.parametrize("type_name", sorted(FOUR_BIT_TYPES & TYPES.keys()))
def test_logits_of_torchs_four_bit_products_are_close_to_those_in_float32(type_name):
    """Zero points of torch are bfloat16, which held those of ternary weights badly."""
    values = torch.randn(NUM_OUTPUTS, NUM_INPUTS, generator=torch.Generator().manual_seed(1)).numpy()
    rows = torch.from_numpy(stored_rows(type_name, values, seed=1)[0])
    matrix = StoredMatrix.from_blocks(type_name, rows, (NUM_OUTPUTS, NUM_INPUTS))
    assert divergence(matrix, Int4Weight(matrix.to_four_bit_groups())) < 0.0005
