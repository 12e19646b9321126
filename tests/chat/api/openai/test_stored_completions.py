"""Chat completions with `store: true`, and the routes to fetch, list, update and delete them."""

from __future__ import annotations

from typing import Any

import pytest

from chat.access.configuration import TTLCache
from chat.api.openai import stored
from chat.models import StoredAnswer
from engine.api import ErrorCode, Failed, Outcome, Usage
from tests.chat.api.conftest import ADMITTED, HELLO, ROUTE, delta, frames, post

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_resumable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(**_: Any) -> None:
        return None

    monkeypatch.setattr(stored, "run_find_public", none)
    monkeypatch.setattr("chat.api.stored.services._room", TTLCache(max_entries=1, ttl_s=0.0))


async def keep(api, scripted, **fields: Any) -> dict[str, Any]:
    scripted.script = list(HELLO)
    response = await post(api, store=True, **fields)
    assert response.status_code == 200, response.text
    return response.json()


async def fetch(api, path: str, **query: Any) -> Any:
    response = await api.get(f"{ROUTE}{path}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_stored_answer_is_fetched_unchanged_with_its_metadata(api, scripted):
    made = await keep(api, scripted, metadata={"a": "b"})
    assert "metadata" not in made
    assert await fetch(api, f"/{made['id']}") == {**made, "metadata": {"a": "b"}}
    assert (await api.get(f"/chat/completions/{made['id']}/")).json()["id"] == made["id"]


async def test_a_stored_stream_equals_a_plain_answer(api, scripted):
    response = await post(api, store=True, stream=True)
    *chunks, _ = frames(response.text)
    kept = await fetch(api, f"/{chunks[0]['id']}")
    assert (kept["object"], kept["choices"][0]["message"]["content"]) == ("chat.completion", "Hello")
    assert (kept["created"], kept["usage"]["total_tokens"]) == (chunks[0]["created"], 5)


async def test_a_full_project_refuses_store_true_and_answers_without(api, scripted, settings):
    settings.LIGHTCONE_MAX_PROJECT_ANSWERS = 0
    refused = await post(api, store=True)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (429, "insufficient_quota", "store")
    assert "delete some" in error["message"]
    assert (await post(api)).status_code == 200


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"store": None}])
async def test_answers_are_stored_only_with_store_true(api, scripted, fields):
    made = (await post(api, **fields)).json()
    response = await api.get(f"{ROUTE}/{made['id']}")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


async def test_store_true_is_accepted_if_storage_is_disabled(api, scripted, settings):
    settings.LIGHTCONE_STORE = False
    assert (await post(api, store=True)).status_code == 200
    assert (await fetch(api, ""))["data"] == []


async def test_an_interrupted_answer_is_not_stored(api, scripted):
    scripted.script = [
        ADMITTED,
        delta("Hel"),
        Failed(ErrorCode.WORKER_LOST, "gone", Usage(), None, Outcome.WORKER_LOST),
    ]
    await post(api, store=True, stream=True)
    assert (await fetch(api, ""))["data"] == []


async def test_a_database_failure_does_not_fail_the_answer(api, scripted, monkeypatch):
    from django.db import OperationalError

    from chat.api.stored import services as service

    def refuse(**_: Any) -> None:
        raise OperationalError("locked")

    monkeypatch.setattr(service, "answer_keep", refuse)
    assert (await post(api, store=True)).json()["choices"][0]["message"]["content"] == "Hello"


async def test_store_true_is_refused_for_a_large_request(api, scripted, settings):
    from dataclasses import replace

    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, max_stored_bytes=40)
    response = await post(api, store=True)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "store"
    assert "40 bytes" in response.json()["message"]


async def test_store_true_is_refused_for_deeply_nested_messages(api, scripted):
    """JSON is read to more levels than it is written with: this was a 500."""
    value: Any = {}
    for _ in range(251):
        value = {"a": value}
    response = await post(api, store=True, messages=[{"role": "user", "content": "hi", "x": value}])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "store")


async def test_lists_have_pages_orders_and_filters_by_model_and_metadata(api, scripted):
    ids = [(await keep(api, scripted, metadata={"n": str(number % 2), "1": "x"}))["id"] for number in range(5)]
    page = await fetch(api, "", limit=2)
    assert ([entry["id"] for entry in page["data"]], page["has_more"]) == (ids[:2], True)
    assert (page["first_id"], page["last_id"]) == (ids[0], ids[1])
    rest = await fetch(api, "", limit=10, after=page["last_id"])
    assert ([entry["id"] for entry in rest["data"]], rest["has_more"]) == (ids[2:], False)
    assert [entry["id"] for entry in (await fetch(api, "", order="desc"))["data"]] == ids[::-1]
    odd = await fetch(api, "", **{"metadata[n]": "1", "metadata[1]": "x"})
    assert [entry["id"] for entry in odd["data"]] == [ids[1], ids[3]]
    assert (await fetch(api, "", model="other"))["data"] == []
    assert len((await fetch(api, "", model="org/tiny"))["data"]) == 5


@pytest.mark.parametrize(
    ("query", "param"),
    [({"limit": 0}, "limit"), ({"limit": "x"}, "limit"), ({"order": "up"}, "order"), ({"after": "x"}, "after")],
)
async def test_bad_queries_are_refused_by_name(api, scripted, query, param):
    response = await api.get(ROUTE, params=query)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_an_update_replaces_metadata_only(api, scripted):
    made = await keep(api, scripted, metadata={"a": "b"})
    response = await api.post(f"{ROUTE}/{made['id']}", json={"metadata": {"c": "d"}, "model": "other"})
    assert response.json() == {**made, "metadata": {"c": "d"}}
    for body, code in (({}, "missing_required_parameter"), ({"metadata": {"a": 1}}, "invalid_type")):
        refused = await api.post(f"{ROUTE}/{made['id']}", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)
        assert refused.json()["error"]["param"].startswith("metadata")


async def test_an_unfinished_answer_is_404(api, scripted):
    made = await keep(api, scripted)
    await StoredAnswer.objects.aupdate(state="unfinished", answer=b"")
    for method in ("GET", "POST"):
        response = await api.request(
            method, f"{ROUTE}/{made['id']}", json={"metadata": {}} if method == "POST" else None
        )
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert (await fetch(api, ""))["data"] == []


async def test_messages_are_listed_as_sent(api, scripted):
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "NUL \0 and \u2028", "name": "Ann"},
    ]
    made = await keep(api, scripted, messages=messages)
    listed = await fetch(api, f"/{made['id']}/messages")
    assert listed["data"] == [
        {"role": "system", "content": None, "content_parts": messages[0]["content"], "id": f"{made['id']}-0"},
        {**messages[1], "content_parts": None, "id": f"{made['id']}-1"},
    ]
    last = await fetch(api, f"/{made['id']}/messages", order="desc", limit=1)
    assert (last["data"][0]["id"], last["has_more"]) == (f"{made['id']}-1", True)


async def test_a_deleted_answer_is_404(api, scripted):
    made = await keep(api, scripted)
    response = await api.delete(f"{ROUTE}/{made['id']}")
    assert response.json() == {"object": "chat.completion.deleted", "id": made["id"], "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages"), ("POST", "")):
        gone = await api.request(
            method, f"{ROUTE}/{made['id']}{path}", json={"metadata": {}} if method == "POST" else None
        )
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


async def test_other_projects_see_no_answers(api, scripted):
    made = await keep(api, scripted)
    await StoredAnswer.objects.aupdate(project_id=2)
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages")):
        assert (await api.request(method, f"{ROUTE}/{made['id']}{path}")).status_code == 404
    assert (await fetch(api, ""))["data"] == []
    assert await StoredAnswer.objects.acount() == 1


async def test_a_repeated_request_id_replaces_the_stored_answer(api, scripted):
    for text in ("first", "second"):
        scripted.script = [ADMITTED, delta(text), *HELLO[3:]]
        await api.post(
            ROUTE,
            json={"messages": [{"role": "user", "content": "hi"}], "store": True},
            headers={"X-Request-Id": "mine"},
        )
    assert (await fetch(api, "/chatcmpl-mine"))["choices"][0]["message"]["content"] == "second"
    assert len((await fetch(api, ""))["data"]) == 1


async def test_stored_answers_need_a_key(api, scripted):
    made = await keep(api, scripted)
    assert (await api.get(f"{ROUTE}/{made['id']}", headers={"Authorization": ""})).status_code == 401
