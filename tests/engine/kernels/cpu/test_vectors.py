"""The softmax of attention against numpy in double precision, with any values behind the scores."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.kernels.cpu.vectors import LANES, softmax


def softened(scores, behind=np.nan):
    """Return the softmax of `scores`, with `behind` as padding up to a full vector."""
    work = np.full(-(-len(scores) // LANES) * LANES, behind, dtype=np.float32)
    work[: len(scores)] = scores
    softmax(work.ctypes.data, len(scores))
    return work[: len(scores)]


def exact(scores):
    raised = np.exp(scores.astype(np.float64) - scores.max())
    return raised / raised.sum()


@settings(deadline=None)
@given(st.integers(1, 200), st.floats(0, 60), st.integers(0, 1000))
@example(2000, 10.0, 0)
def test_probabilities_are_those_of_double_precision(length, spread, seed):
    scores = (np.random.default_rng(seed).standard_normal(length) * spread).astype(np.float32)
    found = softened(scores)
    np.testing.assert_allclose(found, exact(scores), rtol=1e-5, atol=1e-12)
    assert np.array_equal(found, softened(scores, behind=1e30)), "what stands behind the scores is nobody's"


@pytest.mark.parametrize("scores", [[3e38, -3e38, 0.0], [-3e38] * 17, [1e4, -np.inf, 1e4], [-200.0, -100.0]])
def test_scores_far_apart_neither_overflow_nor_vanish(scores):
    scores = np.array(scores, dtype=np.float32)
    np.testing.assert_allclose(softened(scores), exact(scores), atol=1e-12)


@pytest.mark.parametrize("length", [1, 16, 17, 40])
def test_nan_anywhere_in_a_row_makes_the_whole_row_nan(length):
    for place in range(length):
        scores = np.linspace(-5, 5, length, dtype=np.float32)
        scores[place] = np.nan
        assert np.isnan(softened(scores)).all()
        scores[place] = np.inf
        assert np.isnan(softened(scores)[place])
