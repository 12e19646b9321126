import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.ranking import block_maxima, first_largest, pad_to_blocks, rank, rank_without_sync
from tests.examples import examples


def coarse(num_rows: int, width: int, levels: int, seed: int) -> torch.Tensor:
    return (torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed)) * levels).round()


@given(st.integers(1, 3), st.integers(1, 3000), st.sampled_from([1, 3, 100]), st.integers(1, 600), st.integers(0, 1000))
@examples(150)
def test_ranks_equal_a_stable_sort(num_rows, width, levels, count, seed):
    logits = pad_to_blocks(coarse(num_rows, width, levels, seed))
    values, ids = rank(logits, block_maxima(logits), count)
    expected = logits.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :count])
    assert torch.equal(ids, expected.indices[:, :count])
    values, ids = rank_without_sync(logits, count)
    assert torch.equal(values, expected.values[:, :count])
    assert torch.equal(ids, expected.indices[:, :count])


@given(st.integers(1, 3), st.integers(1, 1000), st.sampled_from([1, 3, 100]), st.integers(0, 1000))
@examples(100)
def test_the_first_largest_is_the_lowest_id_of_the_maximum(num_rows, width, levels, seed):
    logits = pad_to_blocks(coarse(num_rows, width, levels, seed))
    ids, values = first_largest(logits, block_maxima(logits))
    for row in range(num_rows):
        ranked = sorted(range(width), key=lambda i, row=row: (-logits[row, i].item(), i))
        assert (ids[row].item(), values[row].item()) == (ranked[0], logits[row, ranked[0]].item())


@pytest.mark.parametrize("place", [0, 70, 639])
def test_nan_is_found_wherever_it_stands(place):
    logits = torch.randn(1, 640)
    logits[0, place] = torch.nan
    assert first_largest(logits, block_maxima(logits))[1].isnan().all()


def test_padding_is_never_ranked_before_a_real_token():
    logits = pad_to_blocks(torch.full((1, 65), -1e30))
    assert logits.shape == (1, 128)
    assert rank(logits, block_maxima(logits), 65)[1].tolist() == [list(range(65))]
