"""NaN and infinite numbers stop the load, whatever type stores them and whatever form is made of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api.errors import ModelLoadError
from engine.layers.embedding import StoredEmbedding
from engine.quantization.folder_blocks import BLOCK_BYTES
from engine.quantization.panel_weight import PanelWeight
from engine.quantization.scheme import BUILDERS
from engine.quantization.stored import StoredMatrix, StoredPart
from tests.engine.quantization.gguf_rows import TYPES, random_rows
from tests.examples import examples

CPU = torch.device("cpu")
FORMS = ["bf16", "float32", "int8", *(["panels", "int8_panels"] if PanelWeight.fits((32, 256)) else [])]
ROWS, INPUTS = 32, 256
SMALL = 12
"""The high byte of a half whose multiples stay in the range of halves and of bfloat16."""


def refuses(work) -> bool:
    try:
        work()
    except ModelLoadError as refusal:
        return refusal.message.startswith("m.gguf: tensor 'x' holds numbers that are not finite")
    return False


def random_bytes(type_name: str, seed: int, share: float) -> torch.Tensor:
    """Return rows of which a share of the bytes is random, among them NaN at times, and the others are small."""
    rng = np.random.default_rng(seed)
    known = TYPES.get(type_name)
    row_bytes = INPUTS // known.block_size * known.block_bytes if known else INPUTS // 32 * BLOCK_BYTES[type_name]
    data = np.full((ROWS, row_bytes), SMALL, np.uint8)
    is_random = rng.random(data.shape) < share
    return torch.from_numpy(np.where(is_random, rng.integers(0, 256, data.shape, dtype=np.uint8), data))


@pytest.mark.parametrize("type_name", [*TYPES, *(name for name in BLOCK_BYTES if not name.startswith("INT"))])
@examples(30)
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.0, 0.001, 0.01, 1.0]))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_check_refuses_what_opens_to_numbers_that_are_not_finite_and_nothing_else(type_name, seed, share):
    part = StoredPart(type_name, random_bytes(type_name, seed, share), source="m.gguf: tensor 'x'")
    is_broken = not part.open().isfinite().all()
    assert refuses(part.check) == is_broken
    assert refuses(part.load) == is_broken
    assert refuses(lambda: StoredEmbedding(part, torch.float32)) == is_broken


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("type_name", TYPES)
@examples(4)
@given(place=st.integers(0, 2**32 - 1), broken=st.sampled_from([(0, 0x7E), (0, 0xFC), (0x80, 0x7F), (0xFF, 0xFF)]))
def test_no_form_is_made_of_a_broken_block(type_name, form, place, broken):
    """Two neighbouring bytes become those of a half or a bfloat16 that is none, or the like."""
    data = torch.from_numpy(random_rows(type_name, ROWS, INPUTS, place))
    data.view(-1)[place % (data.numel() // 2) * 2 :][:2] = torch.tensor(broken, dtype=torch.uint8)
    matrix = StoredMatrix.from_blocks(type_name, data, (ROWS, INPUTS)).named("m.gguf: tensor 'x'")
    if not matrix.parts[0].open().isfinite().all():
        assert refuses(lambda: BUILDERS[form](matrix, CPU))


@pytest.mark.parametrize("form", FORMS)
def test_the_part_of_a_stack_that_is_broken_is_named(form):
    sound = StoredMatrix.from_float(torch.ones(ROWS, INPUTS))
    broken = StoredMatrix.from_float(torch.full((ROWS, INPUTS), torch.nan)).named("m.gguf: tensor 'x'")
    assert refuses(lambda: BUILDERS[form](StoredMatrix.stack([sound, broken, sound]), CPU))


@pytest.mark.skipif("panels" not in FORMS, reason="needs a processor with AVX2")
def test_scales_that_are_infinite_in_half_precision_are_refused():
    """The minimum of a group of Q4_0 is 8 times its scale."""
    data = torch.from_numpy(random_rows("Q4_0", ROWS, INPUTS, 1))
    data[0, :2] = torch.tensor([60000.0]).half().view(torch.uint8)
    matrix = StoredMatrix.from_blocks("Q4_0", data, (ROWS, INPUTS)).named("m.gguf: tensor 'x'")
    assert refuses(lambda: PanelWeight.of_matrix(matrix))
