"""The routes of this dialect, and the model list for its clients."""

import json

import pytest

from chat.api.middleware import error_described
from chat.catalog import named_models
from chat.catalog.services import ModelEntry
from chat.errors import ApiError
from tests.chat.api.anthropic.shapes import COUNT_ROUTE, ROUTE, message
from tests.chat.api.conftest import KEY, MODEL

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.fixture
def listed(scripted, monkeypatch):
    """List five names of three models."""
    entries = [
        MODEL,
        ModelEntry("b", "lightcone", 0, aliases=("b1", "b2")),
        ModelEntry("c", "lightcone", 0, max_model_len=8192),
    ]
    entries[0], entries[1] = ModelEntry("org/tiny", "lightcone", MODEL.created_at), entries[1]

    async def all_models(*, caller=None):
        return entries

    async def resolve(*, name, caller=None):
        return next((entry for entry in entries if name in (entry.name, *entry.aliases)), None)

    monkeypatch.setattr(named_models, "models_for_caller_async", all_models)
    monkeypatch.setattr(named_models, "model_resolve_async", resolve)


@pytest.mark.parametrize("path", [ROUTE, ROUTE + "/", ROUTE + "?beta=true"])
async def test_messages_answer_on_every_spelling(api, path):
    assert (await api.post(path, json=message())).status_code == 200


@pytest.mark.parametrize("path", [ROUTE, COUNT_ROUTE])
async def test_other_methods_are_405(api, path):
    response = await api.get(path)
    assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", [ROUTE + "/batches", ROUTE + "/count_tokens/x", ROUTE + "/msg_1"])
async def test_unknown_routes_beneath_messages_are_404_in_this_shape(api, path):
    response = await api.get(path)
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
    assert response.json()["request_id"] == response.headers["request-id"]
    assert (await api.get(path, headers={"Authorization": ""})).status_code == 401


async def test_clients_with_a_version_header_get_the_model_list_in_this_shape(api, listed):
    response = await api.get("/v1/models", headers=VERSION)
    body = response.json()
    assert [entry["id"] for entry in body["data"]] == ["org/tiny", "b", "b1", "b2", "c"]
    assert body["data"][0] == {
        "type": "model",
        "id": "org/tiny",
        "display_name": "org/tiny",
        "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active",
        "max_input_tokens": 4096,
        "state": "ready",
    }
    assert [entry["state"] for entry in body["data"]] == ["ready", *["unloaded"] * 4]
    assert (body["has_more"], body["first_id"], body["last_id"]) == (False, "org/tiny", "c")
    assert body["data"][-1]["max_input_tokens"] == 8192
    assert response.headers["request-id"]


@pytest.mark.parametrize(
    ("query", "ids", "has_more"),
    [
        ("limit=2", ["org/tiny", "b"], True),
        ("limit=2&after_id=b", ["b1", "b2"], True),
        ("limit=2&after_id=b2", ["c"], False),
        ("after_id=c", [], False),
        ("limit=2&before_id=c", ["b1", "b2"], True),
        ("before_id=b", ["org/tiny"], False),
    ],
)
async def test_model_lists_have_pages(api, listed, query, ids, has_more):
    body = (await api.get(f"/v1/models?{query}", headers=VERSION)).json()
    assert ([entry["id"] for entry in body["data"]], body["has_more"]) == (ids, has_more)


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("after_id=z", "after_id")],
)
async def test_bad_page_parameters_are_refused(api, listed, query, param):
    response = await api.get(f"/v1/models?{query}", headers=VERSION)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("name", ["org/tiny", "org%2Ftiny", "b1"])
async def test_one_model_is_described(api, listed, name):
    body = (await api.get(f"/v1/models/{name}", headers={**VERSION, "Authorization": "", "x-api-key": KEY})).json()
    assert (body["type"], body["id"]) == ("model", name.replace("%2F", "/"))


async def test_an_unknown_model_is_404_and_a_missing_key_401(api, listed):
    response = await api.get("/v1/models/claude-9", headers=VERSION)
    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
    response = await api.get("/v1/models", headers={**VERSION, "Authorization": ""})
    assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


async def test_clients_without_a_version_header_get_the_openai_list(api, scripted):
    assert (await api.get("/v1/models")).json()["object"] == "list"
    assert (await api.get("/v1/models/tiny")).json()["object"] == "model"


async def test_errors_before_any_view_have_this_shape(api):
    response = await api.post(ROUTE, json=message(), headers={"Host": "elsewhere.example"})
    assert (response.status_code, response.json()["type"], response.json()["error"]["code"]) == (
        400,
        "error",
        "invalid_host",
    )
    assert response.json()["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]


def test_errors_of_the_http_server_have_this_shape():
    """Such a body had a null id, and lacked the header from which Anthropic's clients read it."""
    headers, content = error_described(ROUTE, None, ApiError("headers_too_large", "The headers are too large."))
    assert json.loads(content)["request_id"] == headers["request-id"] == headers["X-Request-Id"]
