"""Products of every storage type as they are computed, against float32 on the dequantised weights."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from engine.quantization.stored import StoredMatrix
from engine.quantization.vnni import VnniWeight
from tests.engine.quantization.test_gguf_blocks import SCALES_AT, TYPES, random_rows

NUM_OUTPUTS, NUM_INPUTS = 128, 512
SPREAD = 2.5
"""Standard deviation of the logits."""


def even_rows(type_name: str) -> np.ndarray:
    """Return random blocks whose scales are of one size, or of a few, as those of models are."""
    rows = random_rows(type_name, NUM_OUTPUTS, NUM_INPUTS, seed=1)
    if TYPES[type_name].block_size == 1:
        return rows
    blocks = rows.reshape(-1, TYPES[type_name].block_bytes)
    for start in SCALES_AT.get(type_name, (0,)):
        blocks[:, start : start + 2] = np.array([0.01], np.float16).view(np.uint8)
    if type_name == "MXFP4":
        blocks[:, 0] = 120 + blocks[:, 0] % 3
    if type_name == "NVFP4":
        blocks[:, :4] = 0x30 + blocks[:, :4] % 16
    if type_name == "IQ1_M":  # a half in the high nibbles of the last four 16-bit numbers
        blocks[:, 49:57:2] &= 15
        blocks[:, 55] |= 0x20
    return rows


@pytest.mark.skipif(not VnniWeight.fits((32, 32)), reason="needs a processor with AVX512-VNNI")
@pytest.mark.parametrize("type_name", TYPES)
def test_logits_of_every_type_are_close_to_those_in_float32(type_name):
    """The mean KL divergence must stay below 0.005; one product of the largest error here has 0.0003."""
    matrix = StoredMatrix.from_blocks(type_name, torch.from_numpy(even_rows(type_name)), (NUM_OUTPUTS, NUM_INPUTS))
    x = torch.randn(32, NUM_INPUTS, generator=torch.Generator().manual_seed(0))
    form = VnniWeight.of_matrix(matrix)
    exact = x @ matrix.to_dtype(torch.float32).T
    computed, expected = ((SPREAD / exact.std() * logits).log_softmax(-1) for logits in (form(x), exact))
    assert functional.kl_div(computed, expected, log_target=True, reduction="batchmean") < 0.0005
