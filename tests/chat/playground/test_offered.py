"""The list of models of the page, and loading one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from chat.catalog import acts
from chat.catalog.adapters import adapter_set
from chat.catalog.model_facts import ModelFacts
from chat.catalog.models import ServedModel
from chat.catalog.prices import price_add
from chat.catalog.services import model_register, model_update, models_cache_clear
from chat.playground import api_views, offered
from chat.relay.state.workers import ModelCondition
from tests.chat.conversations.conftest import Page


@pytest.fixture
def live() -> dict[str, ModelCondition]:
    return {"chats": ModelCondition("ready", max_model_len=4096)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(acts, "model_load", lambda *, name: names.append(name))
    return names


@pytest.fixture(autouse=True)
def _models(db: None, monkeypatch: pytest.MonkeyPatch, live: dict[str, ModelCondition]) -> None:
    facts = {"/m/vectors": ModelFacts(kind="embedding"), "/m/ranks": ModelFacts(kind="reranker")}
    monkeypatch.setattr(offered, "model_facts", lambda path: facts.get(path, ModelFacts(context=900, has_tools=True)))

    async def conditions() -> dict[str, ModelCondition]:
        return live

    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(offered, "models_live", conditions)
    monkeypatch.setattr(api_views, "configuration_refresh", refresh)
    for name in ("chats", "vectors", "ranks", "another"):
        model = model_register(name=name, path=f"/m/{name}", aliases=("other",) if name == "another" else ())
        if name == "chats":
            adapter_set(model=model, name="support", path="/elsewhere", is_elsewhere=True)
            model.system_prompt, model.sampling_defaults = "Be brief.", {"temperature": 0.5}
            model_update(model=model)
            price_add(model=model, input=Decimal("0.150"), output=Decimal(2))
    models_cache_clear()


def listed(page: Page) -> dict[str, Any]:
    status, answer = page("GET", "models")
    assert status == 200, answer
    return {model["id"]: model for model in answer["data"]}


def test_models_that_chat_are_listed_with_all_that_the_page_shows(ann: Page) -> None:
    models = listed(ann)
    assert list(models) == ["chats", "chats:support", "another"]
    price = {"prompt": "0.15", "cached": "0.15", "completion": "2", "currency": "USD", "per_tokens": 1_000_000}
    first = models["chats"]
    assert first.pop("defaults") | {"temperature": 0.5, "top_p": 1.0} == {
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "max_completion_tokens": None,
    }
    assert first == {
        "id": "chats",
        "is_default": True,
        "state": "ready",
        "phase": "",
        "fraction": 0.0,
        "reason": "",
        "context": 4096,
        "max_output": 4096,
        "modalities": ["text"],
        "capabilities": ["chat", "completion", "structured_output", "embedding", "tools"],
        "price": price,
        "system_prompt": "Be brief.",
        "deprecated_at": None,
        "aliases": [],
    }
    assert (models["chats:support"]["is_default"], models["chats:support"]["price"]) == (False, price)
    another = models["another"]
    assert (another["state"], another["context"], another["price"], another["system_prompt"], another["aliases"]) == (
        "unloaded",
        900,
        None,
        None,
        ["other"],
    )


def test_why_a_model_failed_is_for_staff(ann: Page, page_of: Any, live: dict[str, ModelCondition]) -> None:
    live["another"] = ModelCondition("failed", "/srv/models/x.gguf: not a GGUF file")
    assert (listed(ann)["another"]["state"], listed(ann)["another"]["reason"]) == ("failed", "")
    staff = page_of("root", role="viewer")
    assert listed(staff)["another"]["reason"] == "/srv/models/x.gguf: not a GGUF file"


def test_a_model_is_loaded_once_for_whoever_may_use_it(
    ann: Page, live: dict[str, ModelCondition], asked: list[str]
) -> None:
    live["another"] = ModelCondition("unloaded")
    status, answer = ann("POST", "models/load", {"model": "other"})
    assert (status, answer) == (200, {"model": "other", "state": "unloaded", "phase": "", "fraction": 0.0})
    live["another"] = ModelCondition("loading", phase="weights", fraction=0.5)
    assert ann("POST", "models/load", {"model": "another"})[1]["fraction"] == 0.5
    live["another"] = ModelCondition("failed")
    ann("POST", "models/load", {"model": "another"})
    assert ann("POST", "models/load", {"model": "chats"})[1]["state"] == "ready"
    assert asked == ["another", "another"]


def test_what_cannot_be_loaded_is_said(ann: Page, asked: list[str]) -> None:
    for name, status, code in (("another", 503, "model_unloaded"), ("absent", 404, "model_not_found")):
        answer = ann("POST", "models/load", {"model": name})
        assert (answer[0], answer[1]["error"]["code"]) == (status, code)
    assert ann("POST", "models/load", {})[1]["error"]["param"] == "model"
    assert ann("GET", "models/load")[0] == 405
    assert asked == []


def test_models_are_for_users_of_the_playground(db: None) -> None:
    assert Page()("GET", "models")[0] == 401


def test_a_model_takes_what_it_says_and_sound_where_another_writes_it_down(
    ann: Page, live: dict[str, ModelCondition]
) -> None:
    """A transcriber that the caller may not use is none."""
    ranks = ServedModel.objects.get(name="ranks")
    ServedModel.objects.filter(name="another").update(modalities=["image"], transcriber="ranks")
    models_cache_clear()
    assert listed(ann)["another"]["modalities"] == ["text", "image", "audio"]
    assert listed(ann)["chats"]["modalities"] == ["text"]
    live["another"] = ModelCondition("ready", modalities=("audio",))
    assert listed(ann)["another"]["modalities"] == ["text", "audio"]
    live["another"] = ModelCondition("ready", modalities=())
    ranks.delete()
    models_cache_clear()
    assert listed(ann)["another"]["modalities"] == ["text"]
