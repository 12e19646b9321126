"""Weighted aliases and fallbacks: what they may be, and where they lead."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from chat.access.keys import Caller
from chat.catalog.models import ServedModel
from chat.catalog.services import model_delete, model_register, model_resolve, model_update, models_cache_clear
from chat.catalog.weighted_aliases import target_choose, weighted_alias_delete, weighted_alias_set

TARGETS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9)), unique_by=lambda one: one[0], max_size=5)


@given(TARGETS, st.sets(st.sampled_from("abcdef")))
def test_each_usable_target_is_chosen_as_often_as_its_weight_says(targets, usable) -> None:
    left = [(model, weight) for model, weight in targets if model in usable]
    total = sum(weight for _, weight in left)
    steps = count()
    chosen = Counter(
        target_choose(tuple(targets), usable.__contains__, chance=lambda: next(steps) / total) for _ in range(total)
    )
    assert chosen == Counter(dict(left))
    if not left:
        assert target_choose(tuple(targets), usable.__contains__) is None


@pytest.fixture
def models(db: None) -> None:
    for name in ("small", "large"):
        model_register(name=name, path=f"/models/{name}.gguf", aliases=(f"{name}-alias",))


@pytest.mark.usefixtures("models")
class TestNames:
    def test_a_weighted_alias_leads_to_its_models_and_says_so(self) -> None:
        weighted_alias_set(name="canary", targets=[{"model": "small", "weight": 1}, {"model": "large", "weight": 1}])
        models_cache_clear()
        found = [model_resolve(name="canary") for _ in range(100)]
        assert {entry.name for entry in found if entry} == {"small", "large"}
        assert {entry.alias for entry in found if entry} == {"canary"}
        caller = Caller(key_id=1, public_id="k", org_id=1, project_id=1, tenant="1", models=frozenset({"large"}))
        assert {model_resolve(name="canary", caller=caller).name for _ in range(20)} == {"large"}
        assert weighted_alias_delete(name="canary")
        models_cache_clear()
        assert model_resolve(name="canary") is None

    @pytest.mark.parametrize(
        ("targets", "words"),
        [
            ([], "1 to 20"),
            ([{"model": "none", "weight": 1}], "no model 'none'"),
            ([{"model": "small", "weight": 0}], "from 1 to 1000"),
            ([{"model": "small", "weight": True}], "from 1 to 1000"),
            ([{"model": "small", "weight": 1}, {"model": "small", "weight": 1}], "stands twice"),
        ],
    )
    def test_bad_targets_are_refused(self, targets, words) -> None:
        with pytest.raises(ValidationError, match=words):
            weighted_alias_set(name="canary", targets=targets)

    def test_a_name_leads_to_one_thing(self) -> None:
        for name in ("small", "large-alias"):
            with pytest.raises(ValidationError, match="already leads"):
                weighted_alias_set(name=name, targets=[{"model": "small", "weight": 1}])
        weighted_alias_set(name="canary", targets=[{"model": "small", "weight": 1}])
        with pytest.raises(ValidationError, match="weighted alias"):
            model_register(name="canary", path="/models/canary.gguf")

    def test_a_transcriber_is_another_model_and_ends_with_it(self) -> None:
        small, large = (ServedModel.objects.get(name=name) for name in ("small", "large"))
        for name, words in (("none", "no model 'none'"), ("small", "its own transcriber")):
            small.transcriber = name
            with pytest.raises(ValidationError, match=words):
                model_update(model=small)
        small.transcriber = "large"
        model_update(model=small)
        model_delete(model=large)
        small.refresh_from_db()
        assert small.transcriber == ""

    def test_a_fallback_is_a_model_and_never_leads_back(self) -> None:
        small, large = (ServedModel.objects.get(name=name) for name in ("small", "large"))
        for name, words in (("none", "no model 'none'"), ("small", "leads back")):
            small.fallback = name
            with pytest.raises(ValidationError, match=words):
                model_update(model=small)
        small.fallback = "large"
        model_update(model=small)
        large.fallback = "small"
        with pytest.raises(ValidationError, match="leads back to 'large'"):
            model_update(model=large)
