"""LoRA adapters in the catalogue: names, folders, permissions, and what workers are offered."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from chat.access.keys import Caller
from chat.catalog.adapters import adapter_delete, adapter_set
from chat.catalog.models import ServedModel
from chat.catalog.services import model_register, model_resolve, models_cache_clear, models_offered

pytestmark = pytest.mark.django_db


@pytest.fixture
def model() -> ServedModel:
    return model_register(name="org/base:Q4", path="/models/base.gguf", aliases=("base",))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).touch()
    return str(tmp_path)


def caller(*models: str) -> Caller:
    return Caller(key_id=1, public_id="k", org_id=1, project_id=1, tenant="1", models=frozenset(models))


def test_an_adapter_is_named_behind_its_model_or_an_alias(model: ServedModel, folder: str) -> None:
    adapter = adapter_set(model=model, name="support", path=folder)
    models_cache_clear()
    for name in ("org/base:Q4:support", "base:support"):
        entry = model_resolve(name=name)
        assert entry is not None
        assert (entry.name, entry.adapter, entry.full_name) == ("org/base:Q4", "support", "org/base:Q4:support")
    assert model_resolve(name="base:other") is None
    assert [offer.adapters for offer in models_offered()] == [(("support", folder),)]
    adapter_delete(adapter=adapter)
    models_cache_clear()
    assert model_resolve(name="base:support") is None


def test_keys_are_given_adapters_by_their_full_names(model: ServedModel, folder: str) -> None:
    adapter_set(model=model, name="support", path=folder)
    models_cache_clear()
    of_model, of_adapter = caller("org/base:Q4"), caller("org/base:Q4:support")
    assert model_resolve(name="base", caller=of_model)
    assert model_resolve(name="base:support", caller=of_model) is None
    assert model_resolve(name="base:support", caller=of_adapter)
    assert model_resolve(name="base", caller=of_adapter) is None


def test_a_disabled_adapter_is_neither_found_nor_offered(model: ServedModel, folder: str) -> None:
    adapter = adapter_set(model=model, name="support", path=folder)
    adapter.enabled = False
    adapter.save()
    models_cache_clear()
    assert model_resolve(name="base:support") is None
    assert [offer.adapters for offer in models_offered()] == [()]


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "../x", "x" * 101])
def test_names_that_cannot_be_are_refused(model: ServedModel, folder: str, name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be an adapter's name"):
        adapter_set(model=model, name=name, path=folder)


def test_a_full_name_leads_to_one_thing(model: ServedModel, folder: str) -> None:
    model_register(name="org/base:Q4:support", path="/models/other.gguf")
    with pytest.raises(ValidationError, match="already leads"):
        adapter_set(model=model, name="support", path=folder)


def test_a_folder_without_an_adapter_is_refused(model: ServedModel, folder: str) -> None:
    with pytest.raises(ValidationError, match="must begin with /"):
        adapter_set(model=model, name="support", path="relative")
    (Path(folder) / "adapter_model.safetensors").unlink()
    with pytest.raises(ValidationError, match=r"no adapter_model\.safetensors"):
        adapter_set(model=model, name="support", path=folder)
    assert adapter_set(model=model, name="support", path="/elsewhere", is_elsewhere=True)
