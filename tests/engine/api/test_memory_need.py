"""A model that does not fit is refused with what would fit."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from engine.api import MemoryNeed
from engine.api.model import GRAIN

MIB = 1 << 20
NEED = MemoryNeed(
    weights_bytes=1000 * MIB,
    mapped_bytes=0,
    cache_bytes=400 * MIB,
    cache_bytes_per_token=MIB // 10,
    scratch_bytes=100 * MIB,
    base_bytes=300 * MIB,
    context=4000,
    max_context=8192,
)


def test_what_fits_is_not_refused():
    assert NEED.total_bytes == 1800 * MIB
    assert NEED.refusal(1800 * MIB) == ""


def test_a_refusal_has_the_sum_and_the_largest_context_that_fits():
    assert NEED.refusal(1500 * MIB) == (
        "1,800 MiB are needed and 1,500 MiB are there: weights 1,000 MiB, cache 400 MiB for a context of 4000 tokens, "
        "steps 100 MiB, the process 300 MiB. A context of 960 tokens would fit: lower max_model_len to it."
    )


def test_a_refusal_says_what_the_largest_image_takes_and_what_lowers_it():
    seeing = dataclasses.replace(NEED, media_bytes=200 * MIB)
    assert seeing.total_bytes == 2000 * MIB
    refusal = seeing.refusal(1900 * MIB)
    assert (
        "the process 300 MiB, the largest image, video or sound 200 MiB, which LIGHTCONE_MAX_IMAGE_TOKENS and"
        in refusal
    )
    assert "A context of 2944 tokens would fit" in refusal


def test_a_cache_of_more_than_the_context_is_to_be_lowered():
    assert "A cache of 410 MiB would fit and has room for that context: set kv_cache_bytes" in dataclasses.replace(
        NEED, cache_bytes=500 * MIB
    ).refusal(1810 * MIB)


def test_weights_that_leave_no_room_for_a_context_ask_for_a_format_of_fewer_bits():
    refusal = NEED.refusal(1300 * MIB)
    assert "No context would fit: choose a format of fewer bits, whose weights take 874 MiB at most." in refusal


@given(st.integers(0, 2000), st.integers(1, 8192))
def test_what_a_refusal_recommends_fits(budget_mib, context):
    budget = budget_mib * MIB
    need = dataclasses.replace(NEED, context=context, cache_bytes=context * NEED.cache_bytes_per_token)
    refusal = need.refusal(budget)
    assert (refusal == "") == (need.total_bytes <= budget)
    if "A context of" in refusal:
        tokens = int(refusal.split("A context of ")[1].split()[0])
        assert tokens < context
        smaller = tokens * need.cache_bytes_per_token
        assert need.total_bytes - need.cache_bytes + smaller <= budget
        assert need.total_bytes - need.cache_bytes + smaller + GRAIN * need.cache_bytes_per_token > budget
