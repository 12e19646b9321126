"""Models are removed with their files unless another model has them, and nothing is left that leads to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from chat.catalog.further_models import model_derive, model_name_add
from chat.catalog.models import ServedModel, WeightedAlias
from chat.catalog.removal import ModelUnknown, model_remove
from chat.catalog.services import model_register, model_update
from chat.catalog.stored_models import stored_model_offer
from chat.catalog.weighted_aliases import weighted_alias_set
from chat.model_store import local
from chat.model_store.folder import ModelStore
from chat.model_store.local import model_import, models_at
from tests.chat.model_store.conftest import DESCRIPTION

pytestmark = pytest.mark.django_db
DATA = b"weights"


@pytest.fixture
def store(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    """Hold one model, `m`, which is offered."""
    monkeypatch.setattr(local, "description_of", lambda path: DESCRIPTION)
    settings.LIGHTCONE_MODEL_STORE = tmp_path / "models"
    store = ModelStore(settings.LIGHTCONE_MODEL_STORE)
    file = tmp_path / "m.gguf"
    file.write_bytes(DATA)
    [model] = models_at(file)
    stored_model_offer(store=store, manifest=model_import(store, model, "m"))
    return store


def test_files_stay_while_a_model_is_left_that_has_them(store: ModelStore) -> None:
    model_derive(source="m", name="derived", sampling_defaults={})
    assert model_remove(name="derived", store=store) == 0
    assert store.has("m")
    model_derive(source="m", name="derived", sampling_defaults={})
    assert model_remove(name="m", store=store) == 0
    assert store.has("m")
    with pytest.raises(ValidationError, match="serve the models derived"):
        model_remove(name="m", store=store)
    assert model_remove(name="derived", store=store) >= len(DATA)
    assert not store.holds("m")
    with pytest.raises(ModelUnknown):
        model_remove(name="derived", store=store)


def test_files_without_a_row_are_removed(store: ModelStore) -> None:
    ServedModel.objects.all().delete()
    assert model_remove(name="m", store=store) >= len(DATA)


def test_files_outside_the_store_stay(store: ModelStore, tmp_path: Path) -> None:
    model_register(name="beside", path=str(tmp_path / "m.gguf"))
    assert model_remove(name="beside", store=store) == 0
    assert (tmp_path / "m.gguf").exists()


def test_a_further_name_goes_before_its_model(store: ModelStore) -> None:
    model_name_add(name="m", further="short")
    with pytest.raises(ValidationError, match="further names: short"):
        model_remove(name="m", store=store)
    assert model_remove(name="short", store=store) == 0
    assert model_remove(name="m", store=store) >= len(DATA)


def test_the_model_of_the_settings_stays(store: ModelStore, settings: Any) -> None:
    settings.LIGHTCONE_MODEL, settings.LIGHTCONE_MODEL_NAME = "m", ""
    with pytest.raises(ValidationError, match="LIGHTCONE_MODEL"):
        model_remove(name="m", store=store)
    assert store.has("m")


def test_what_leads_to_a_model_follows_its_new_name_and_ends_with_it(store: ModelStore) -> None:
    other = model_register(name="other", path="/models/other.gguf")
    other.fallback = "m"
    model_update(model=other)
    weighted_alias_set(name="both", targets=[{"model": "m", "weight": 1}, {"model": "other", "weight": 2}])
    weighted_alias_set(name="one", targets=[{"model": "m", "weight": 1}])
    renamed = ServedModel.objects.get(name="m")
    renamed.name = "new"
    model_update(model=renamed)
    other.refresh_from_db()
    assert other.fallback == "new"
    assert [one["model"] for one in WeightedAlias.objects.get(name="both").targets] == ["new", "other"]
    model_remove(name="new", store=store)
    other.refresh_from_db()
    assert other.fallback == ""
    assert WeightedAlias.objects.get(name="both").targets == [{"model": "other", "weight": 2}]
    assert not WeightedAlias.objects.filter(name="one").exists()
