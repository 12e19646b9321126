"""Lists of models for Scale's clients."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chat.api.scale import models_views
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.relay.state.workers import ModelCondition
from tests.chat.api.conftest import MODEL

SECOND = ModelEntry(name="bare", owned_by="lightcone", created_at=1_700_000_001, aliases=("naked",))
MODELS = [MODEL, SECOND]


@pytest.fixture(autouse=True)
def _catalogue(scripted, monkeypatch):
    async def models(*, caller=None):
        return MODELS

    async def resolve(*, name, caller=None):
        return next((model for model in MODELS if name in (model.name, *model.aliases)), None)

    async def live():
        return {MODEL.name: ModelCondition("ready"), SECOND.name: ModelCondition("loading")}

    monkeypatch.setattr(models_views, "models_for_caller_async", models)
    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    monkeypatch.setattr(models_views, "models_live", live)


async def test_v4_lists_pages_until_one_is_empty(scale):
    first = (await scale.get("/v4/models")).json()
    assert [item["id"] for item in first["items"]] == ["org/tiny", "lightcone/bare"]
    assert (first["current_page"], first["total_item_count"], first["items_per_page"]) == (1, 2, 100)
    item = first["items"][1]
    assert (item["name"], item["model_type"], item["supports_multi_turn"]) == ("bare", "CHAT_COMPLETION", True)
    assert datetime.fromisoformat(item["created_at"]) == datetime.fromtimestamp(1_700_000_001, UTC)
    assert all(isinstance(item[name], str) for name in ("account_id", "created_by_user_id"))
    second = (await scale.get("/v4/models/?page=2&limit=1")).json()
    assert ([item["name"] for item in second["items"]], second["current_page"], second["items_per_page"]) == (
        ["bare"],
        2,
        1,
    )
    assert (await scale.get("/v4/models?page=3&limit=1")).json()["items"] == []


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=x", "page=-1", "page=1.5", "page=", "limit=0", "limit=10001", "page=" + "9" * 30, "page=²"],
)
async def test_a_bad_page_is_refused_by_name(scale, query):
    response = await scale.get(f"/v4/models?{query}")
    assert (response.status_code, response.json()["error"]["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize(
    "path", ["/v4/models/bare", "/v4/models/lightcone/bare", "/v4/models/lightcone%2Fbare/", "/v4/models/naked"]
)
async def test_v4_describes_one_model_by_any_of_its_names(scale, path):
    assert (await scale.get(path)).json()["id"] == "lightcone/bare"


async def test_a_missing_model_is_404(scale):
    response = await scale.get("/v4/models/gpt-9")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert response.json()["detail"]


@pytest.mark.parametrize("path", ["/v5/chat/completions/models", "/v5/chat/completions/models/"])
async def test_v5_lists_the_availability_of_models(scale, path):
    listed = (await scale.get(path)).json()
    kind = {"model_type": "chat_completion", "model_vendor": "model_zoo"}
    assert listed == {
        "object": "list",
        "items": [
            {"model_name": "org/tiny", **kind, "model_availability": "available", "state": "ready"},
            {"model_name": "bare", **kind, "model_availability": "unavailable", "state": "loading"},
        ],
    }


@pytest.mark.parametrize(
    ("query", "names", "has_more"),
    [
        ("", ["org/tiny", "bare"], False),
        ("limit=1", ["org/tiny"], True),
        ("starting_after=org/tiny", ["bare"], False),
        ("starting_after=lightcone/bare", [], False),
        ("ending_before=lightcone/bare", ["org/tiny"], False),
        ("ending_before=org/tiny", [], False),
    ],
)
async def test_v5_lists_models_by_cursor(scale, query, names, has_more):
    listed = (await scale.get(f"/v5/models?{query}")).json()
    assert ([item["name"] for item in listed["items"]], listed["has_more"]) == (names, has_more)
    assert all(item["object"] == "model" for item in listed["items"])


async def test_lists_report_model_states_in_both_vocabularies(scale, monkeypatch):
    """Every model was listed as ready, even without a worker for weeks."""

    async def live():
        return {MODEL.name: ModelCondition("loading")}

    assert [item["status"] for item in (await scale.get("/v5/models")).json()["items"]] == ["ready", "deploying"]
    monkeypatch.setattr(models_views, "models_live", live)
    newer, older = [(await scale.get(path)).json()["items"] for path in ("/v5/models", "/v4/models")]
    assert [(item["status"], item["state"]) for item in newer] == [("deploying", "loading"), ("failed", "unloaded")]
    assert [item["state"] for item in older] == ["loading", "unloaded"]
    assert (await scale.get("/v4/models/bare")).json()["state"] == "unloaded"


@pytest.mark.parametrize("path", ["/v5/models", "/v5/chat/completions/models"])
async def test_an_unknown_cursor_is_refused(scale, path):
    assert (await scale.get(f"{path}?starting_after=gone")).json()["error"]["param"] == "starting_after"


@pytest.mark.parametrize(
    ("query", "names"),
    [("limit=1", ["org/tiny"]), ("starting_after=org/tiny", ["bare"]), ("ending_before=bare&limit=5", ["org/tiny"])],
)
async def test_available_models_are_listed_by_cursor(scale, query, names):
    listed = (await scale.get(f"/v5/chat/completions/models?{query}")).json()
    assert [item["model_name"] for item in listed["items"]] == names


@pytest.mark.parametrize(
    ("query", "num_items"),
    [
        ("/v4/models?model_type=CHAT_COMPLETION", 2),
        ("/v4/models?model_type=EMBEDDING", 0),
        ("/v4/models?model_type=&sort_by=id:asc&account_id=a", 2),
        ("/v5/models?model_vendor=model_zoo", 2),
        ("/v5/models?model_vendor=openai", 0),
        ("/v5/models?name=bare&sort_order=desc", 1),
        ("/v5/models?name=none", 0),
        ("/v5/chat/completions/models?model_vendor=model_zoo", 2),
        ("/v5/chat/completions/models?model_vendor=openai", 0),
    ],
)
async def test_lists_are_filtered_by_their_query(scale, query, num_items):
    listed = (await scale.get(query)).json()
    assert len(listed["items"]) == num_items == listed.get("total_item_count", num_items)


@pytest.mark.parametrize("path", ["/v4/models", "/v4/models/a", "/v5/models", "/v5/chat/completions/models"])
async def test_lists_need_a_key_and_allow_only_get_and_head(scale, path):
    assert (await scale.head(path)).status_code == (404 if path.endswith("/a") else 200)
    assert (await scale.post(path, json={})).status_code == 405
    assert (await scale.get(path, headers={"x-api-key": "bad"})).status_code == 401


@pytest.mark.parametrize("path", ["/v4/chat-completions", "/v4/agents", "/v5/models/x", "/v5/responses", "/v4", "/v5/"])
async def test_unserved_routes_answer_404_in_the_same_shape(scale, path):
    for method in ("GET", "POST"):
        response = await scale.request(method, path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
        assert response.json()["detail"] == response.json()["message"]
