"""Models are found by name, alias or default; changes apply to the next request."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError

from chat.access.keys import Caller
from chat.catalog.services import (
    model_delete,
    model_register,
    model_resolve,
    model_resolve_async,
    model_state_report,
    model_update,
    models_cache_clear,
    models_for_caller,
    models_for_caller_async,
)
from chat.models import ServedModel

pytestmark = pytest.mark.django_db


@pytest.fixture
def small() -> ServedModel:
    return model_register(name="acme/Small 1B", path="/models/small.gguf", aliases=("small",))


def name_of(name: str | None) -> str | None:
    models_cache_clear()
    entry = model_resolve(name=name)
    return entry and entry.name


def caller(*models: str) -> Caller:
    return Caller(key_id=1, public_id="accept0001", org_id=1, project_id=1, tenant="1", models=frozenset(models))


def test_a_model_is_found_by_name_alias_or_as_the_default(small: ServedModel) -> None:
    model_register(name="large", path="/models/large.gguf")
    assert [name_of(name) for name in ("acme/Small 1B", "small", None, "", "large")] == ["acme/Small 1B"] * 4 + [
        "large"
    ]
    assert name_of("Small") is None
    assert name_of("small ") is None


def test_a_model_forbidden_to_the_key_is_reported_as_unknown(small: ServedModel) -> None:
    assert model_resolve(name="small", caller=caller("large")) is None
    assert model_resolve(name=None, caller=caller("large")) is None
    assert model_resolve(name="small", caller=caller("acme/Small 1B")) is not None
    assert models_for_caller(caller=caller("large")) == []
    assert [entry.name for entry in models_for_caller()] == ["acme/Small 1B"]


def test_disabled_and_deleted_models_are_unknown(small: ServedModel) -> None:
    small.enabled = False
    model_update(model=small)
    assert name_of("small") is None
    model_delete(model=small)
    assert name_of("small") is None


def test_the_catalogue_is_read_once_for_many_requests(small: ServedModel, django_assert_num_queries: Any) -> None:
    models_cache_clear()
    with django_assert_num_queries(3):  # models, their adapters, weighted aliases
        for _ in range(5):
            model_resolve(name="small")
            models_for_caller()


@pytest.mark.django_db(transaction=True)
async def test_async_functions_return_the_same_models(django_assert_num_queries: Any) -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(model_register)(name="small", path="/models/small.gguf")
    entry = await model_resolve_async(name="small")
    assert entry is not None
    assert [entry] == await models_for_caller_async(caller=caller("small"))


def test_registering_again_updates_the_path_and_keeps_other_fields(small: ServedModel) -> None:
    again = model_register(name="acme/Small 1B", path="/models/new.gguf")
    assert (again.pk, again.path, again.aliases, again.is_default) == (small.pk, "/models/new.gguf", ["small"], True)


def test_a_name_or_alias_can_belong_to_one_model_only(small: ServedModel) -> None:
    for fields in (
        {"name": "small"},
        {"name": "large", "aliases": ("acme/Small 1B",)},
        {"name": "large", "aliases": ("small",)},
    ):
        with pytest.raises(ValidationError, match="already leads to"):
            model_register(path="/models/large.gguf", **fields)
    assert ServedModel.objects.count() == 1


def test_the_fingerprint_changes_with_the_model_path(small: ServedModel) -> None:
    def fingerprint() -> str:
        models_cache_clear()
        entry = model_resolve(name="small")
        assert entry is not None
        return entry.fingerprint

    before = fingerprint()
    assert before == fingerprint()
    model_register(name=small.name, path="/models/other.gguf")
    assert fingerprint() != before


def test_one_model_is_the_default(small: ServedModel) -> None:
    model_register(name="large", path="/models/large.gguf", make_default=True)
    assert name_of(None) == "large"
    assert ServedModel.objects.filter(is_default=True).count() == 1


def test_workers_report_state_and_length(small: ServedModel) -> None:
    model_state_report(name=small.name, state="failed", reason="x" * 900)
    model_state_report(name="unknown", state="ready")
    small.refresh_from_db()
    assert small.state == "failed"
    assert len(small.state_reason) == 500
    model_state_report(name=small.name, state="ready", max_model_len=8192)
    small.refresh_from_db()
    assert (small.state, small.state_reason, small.loaded_context) == ("ready", "", 8192)


def test_sampling_values_of_the_model_files_apply_without_operator_defaults(small: ServedModel) -> None:
    model_state_report(name=small.name, state="ready", maker_defaults={"temperature": 0.6, "top_k": 20})
    small.refresh_from_db()
    small.sampling_defaults = {"top_k": 5, "min_p": 0.1}
    model_update(model=small)
    models_cache_clear()
    entry = model_resolve(name="small")
    assert entry is not None
    assert entry.sampling_defaults == {"temperature": 0.6, "top_k": 5, "min_p": 0.1}
