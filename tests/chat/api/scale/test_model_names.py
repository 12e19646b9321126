"""The served names for a Scale model name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.scale.names import model_candidates, model_vendor_name

SEGMENT = st.text(st.characters(exclude_characters="/"), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("a", ("a",)),
        ("a/b", ("a/b", "b")),
        ("a/b/c", ("a/b/c", "b/c", "a/b", "b")),
        ("a/b/c/d", ("a/b/c/d",)),
        ("/a", ("/a",)),
        ("a/", ("a/",)),
        ("a//b", ("a//b",)),
        ("/", ("/",)),
    ],
)
def test_the_candidates_come_in_the_documented_order(name, candidates):
    assert model_candidates(name) == candidates


@given(st.text(max_size=20))
def test_the_exact_name_is_always_first_and_no_candidate_is_empty(name):
    candidates = model_candidates(name)
    assert candidates[0] == name
    assert all(candidates[1:])
    assert len(candidates) <= 4


@given(vendor=SEGMENT, name=SEGMENT, deployment=SEGMENT)
def test_vendor_and_deployment_are_labels(vendor, name, deployment):
    assert name in model_candidates(f"{vendor}/{name}")
    assert name in model_candidates(f"{vendor}/{name}/{deployment}")
    assert f"{vendor}/{name}" in model_candidates(f"{vendor}/{name}/{deployment}")


@given(st.lists(SEGMENT, min_size=1, max_size=2).map("/".join))
def test_the_name_in_a_list_leads_back_to_its_model(served):
    assert served in model_candidates(model_vendor_name(served))
    assert "/" in model_vendor_name(served)
