import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.quantization.gguf_blocks import FOUR_BIT_TYPES, PACKED_TYPES, dequantize, four_bit_groups, packed_groups
from tests.engine.quantization.gguf_rows import SCALES_AT, TYPES, random_rows
from tests.examples import examples


@pytest.mark.parametrize("type_name", TYPES)
@examples(20)
@given(num_rows=st.integers(1, 5), num_superblocks=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_every_type_opens_exactly_as_in_the_reference_package(type_name, num_rows, num_superblocks, seed):
    rows = random_rows(type_name, num_rows, num_superblocks * 256, seed)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(rows, gguf.GGMLQuantizationType[type_name]).astype(np.float32)
    assert np.array_equal(dequantize(type_name, torch.from_numpy(rows)).numpy(), expected, equal_nan=True)


def test_every_type_that_holds_weights_and_has_a_reference_is_served():
    assert {kind.name for kind in gguf.quants._type_traits} | {"F32", "F16"} == set(TYPES)


@pytest.mark.parametrize("type_name", sorted(FOUR_BIT_TYPES & TYPES.keys()))
def test_a_four_bit_matrix_split_into_parts_equals_the_dequantised_one(type_name):
    rows = torch.from_numpy(random_rows(type_name, 4, 512, seed=1))
    groups = four_bit_groups(type_name, rows)
    assert groups.q.dtype == torch.uint8
    assert int(groups.q.max()) <= 15
    opened = groups.q.reshape(4, -1, 32) * groups.scale[..., None] + groups.minimum[..., None]
    assert torch.equal(opened.reshape(4, -1), dequantize(type_name, rows))


@pytest.mark.parametrize("type_name", sorted(PACKED_TYPES & TYPES.keys()))
def test_packed_groups_hold_the_numbers_of_the_file(type_name):
    rows = random_rows(type_name, 4, 512, seed=1)
    blocks = rows.reshape(-1, TYPES[type_name].block_bytes)
    for start in SCALES_AT.get(type_name, (0,)):  # 16 times the largest half is none
        blocks[:, start + 1] &= 0xBF
    packed = packed_groups(type_name, torch.from_numpy(rows))
    assert packed.q.dtype == torch.uint8
    assert int(packed.q.max()) < 1 << packed.bits
    factors = [factor.float().repeat_interleave(8, 1) for factor in packed.factors]
    scale, minimum = (number.float() for number in packed.numbers)
    if len(factors) == 1:
        scales = torch.stack((scale * factors[0], minimum * factors[0]), dim=2)
        opened = (packed.q.view(4, -1, 2, 16).float() - (1 << packed.bits - 1)) * scales[..., None]
    else:
        scale, minimum = (scale * factors[0], minimum * factors[1]) if factors else (scale, minimum)
        opened = packed.q.view(4, -1, 32) * scale[..., None] + minimum[..., None]
    assert torch.equal(opened.reshape(4, -1), dequantize(type_name, torch.from_numpy(rows)))
