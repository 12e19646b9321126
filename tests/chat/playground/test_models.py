"""The models that the page offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat.catalog.adapters import adapter_set
from chat.catalog.model_facts import ModelFacts
from chat.catalog.services import model_register, models_cache_clear
from chat.playground import views

pytestmark = pytest.mark.django_db


def test_models_that_chat_are_offered_each_with_its_adapters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = {"/m/vectors": ModelFacts(kind="embedding"), "/m/ranks": ModelFacts(kind="reranker")}
    monkeypatch.setattr(views, "model_facts", lambda path: facts.get(path, ModelFacts()))
    for name in ("chats", "vectors", "ranks", "another"):
        model = model_register(name=name, path=f"/m/{name}")
        if name == "chats":
            adapter_set(model=model, name="support", path="/elsewhere", is_elsewhere=True)
    models_cache_clear()
    assert [model.full_name for model in views.chat_models()] == ["chats", "chats:support", "another"]
    assert set(views.page_data(views.chat_models(), user_id=1)["models"]) == {"chats", "chats:support", "another"}
