"""The sampler's kernels against the same in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.cpu import operators
from engine.sampling.draw import draw_in_torch
from engine.sampling.masks import forbid_in_torch

FORBIDDING = pytest.mark.parametrize("forbid", [operators.forbid, forbid_in_torch])
WIDTHS = st.sampled_from([1, 31, 32, 33, 64, 1000, 2500])


@FORBIDDING
@given(WIDTHS, st.integers(0, 3), st.data())
def test_masks_set_only_disallowed_logits_to_minus_infinity(forbid, width, spare_rows, data):
    num_words = data.draw(st.integers(0, -(-width // 32)))
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    masks = generator.integers(0, 2, (2, num_words * 32), dtype=np.uint8)
    masks[1] = generator.integers(0, 2)
    words = torch.tensor(np.packbits(masks, axis=1, bitorder="little").view(np.int32))
    rows = torch.tensor([spare_rows, 1 + 2 * spare_rows])
    logits = torch.randn(2 + 2 * spare_rows, width)
    allowed = torch.zeros(2, max(width, num_words * 32), dtype=torch.bool)
    allowed[:, : num_words * 32] = torch.from_numpy(masks).bool()
    expected = logits.clone()
    expected[rows] = expected[rows].masked_fill(~allowed[:, :width], -torch.inf)
    forbid(logits, rows, words)
    assert torch.equal(logits, expected)


@FORBIDDING
def test_a_broken_logit_is_still_seen_under_a_mask(forbid):
    logits = torch.zeros(1, 64)
    logits[0, 3] = torch.nan
    forbid(logits, torch.tensor([0]), torch.tensor([[1, 0]], dtype=torch.int32))
    assert logits[0].isnan().tolist() == [index == 3 for index in range(64)]


def rows_to_draw(seed, num_blocks, share):
    """Return logits with a `share` of tokens forbidden, but never all."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, num_blocks * operators.BLOCK, generator=generator) * 4
    forbidden = torch.rand(logits.shape, generator=generator) < share
    forbidden[:, seed % logits.shape[1]] = False
    logits[forbidden] = -torch.inf
    return logits, logits.amax(1), torch.tensor([0.01, 0.5, 1.0, 2.0])


@given(st.integers(0, 1000), st.sampled_from([1, 7, 100]), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_draw_equals_the_draw_in_torch(seed, num_blocks, share):
    logits, best, temperature = rows_to_draw(seed, num_blocks, share)
    uniforms = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(
        operators.draw(logits, best, temperature, uniforms), draw_in_torch(logits, best, temperature, uniforms)
    )


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-53])
@given(st.integers(0, 1000), st.sampled_from([1, 7]))
def test_the_least_and_the_largest_number_draw_tokens_that_are_allowed(uniform, seed, num_blocks):
    logits, best, temperature = rows_to_draw(seed, num_blocks, 0.9)
    drawn = operators.draw(logits, best, temperature, torch.full((4,), uniform, dtype=torch.float64))
    assert logits.gather(1, drawn[:, None]).isfinite().all()


@settings(deadline=None)  # the first comparison imports modules of torch
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.9]))
def test_the_mass_of_blocks_is_the_sum_of_their_weights(seed, share):
    logits, best, temperature = rows_to_draw(seed, 5, share)
    weights = ((logits - best[:, None]).double() / temperature[:, None]).exp()
    expected = weights.view(4, 5, operators.BLOCK).sum(2)
    torch.testing.assert_close(operators.weigh_blocks(logits, best, temperature), expected, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_row_draws_no_id_of_the_padding(broken):
    logits = torch.full((2, 3 * operators.BLOCK), -torch.inf)
    logits[0, :130] = broken
    logits[1, 7] = 1.0
    drawn = operators.draw(logits, logits.amax(1), torch.ones(2), torch.full((2,), 0.5, dtype=torch.float64))
    assert drawn[0] < 130
    assert drawn[1] == 7
