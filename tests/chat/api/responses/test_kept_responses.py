"""Stored responses: fetched, continued, referenced, deleted and run in the background."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chat.access.configuration import TTLCache
from chat.api.answering import storage
from chat.api.responses import history, views
from chat.api.responses.truncation import messages_shorten
from chat.api.stored.services import StoredState, answer_find
from chat.generation.completions import LimitExceeded, LimitKind
from chat.models import StoredAnswer
from engine.api import Admitted, Completed, EngineUnavailable, ErrorCode, Outcome, Rejected, Timings, Usage
from tests.chat.api.conftest import ADMITTED, HELLO, completed, delta
from tests.chat.api.responses.conftest import ROUTE, answer, checked, events, names, respond

UNKNOWN = "resp_" + "0" * 32


@pytest.fixture(autouse=True)
def _found(runs, monkeypatch) -> None:
    """Let every run be found, and check the room for answers each time."""
    monkeypatch.setattr("chat.api.stored.services._room", TTLCache(max_entries=1, ttl_s=0.0))


async def make(api, scripted, **fields: Any) -> dict[str, Any]:
    scripted.script = list(HELLO)
    return await answer(api, **fields)


async def fetch(api, response_id: str, path: str = "", **query: Any) -> Any:
    response = await api.get(f"{ROUTE}/{response_id}{path}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_response_is_stored_unless_store_is_false(api, scripted):
    made = await make(api, scripted, metadata={"a": "b"})
    assert made["store"] is True
    assert await fetch(api, made["id"]) == made
    unkept = await make(api, scripted, store=False)
    assert unkept["store"] is False
    assert (await api.get(f"{ROUTE}/{unkept['id']}")).status_code == 404


async def test_responses_report_store_false_if_storage_is_disabled(api, scripted, settings):
    settings.LIGHTCONE_STORE = False
    made = await make(api, scripted)
    assert made["store"] is False
    assert (await api.get(f"{ROUTE}/{made['id']}")).status_code == 404
    assert (await respond(api, background=True)).json()["error"]["param"] == "background"


async def test_a_large_response_is_not_stored_and_refused_with_store_true(api, scripted, settings):
    settings.LIGHTCONE_LIMITS = replace(settings.LIGHTCONE_LIMITS, max_stored_bytes=100)
    assert (await make(api, scripted, input="x" * 200))["store"] is False
    refused = await respond(api, input="x" * 200, store=True)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "store")


async def test_a_full_project_stores_no_response_and_refuses_store_true(api, scripted, settings):
    settings.LIGHTCONE_MAX_PROJECT_ANSWERS = 0
    assert (await make(api, scripted))["store"] is False
    refused = await respond(api, store=True)
    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["error"]["param"]) == (
        429,
        "insufficient_quota",
        "store",
    )


async def test_input_items_are_listed_in_their_full_form(api, scripted):
    items = [{"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "c", "output": "b"}]
    made = await make(api, scripted, input=items)
    listed = await fetch(api, made["id"], "/input_items", order="asc")
    assert [item["type"] for item in listed["data"]] == ["message", "function_call_output"]
    assert listed["data"][0]["content"] == [{"type": "input_text", "text": "a"}]
    assert listed["first_id"] == listed["data"][0]["id"]
    newest = await fetch(api, made["id"], "/input_items", limit=1)
    assert (newest["data"], newest["has_more"]) == (listed["data"][1:], True)


async def test_a_response_continues_another_without_its_instructions(api, scripted):
    first = await make(api, scripted, input="one", instructions="Be brief.")
    second = await make(api, scripted, input="two", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert [(message["role"], message["content"]) for message in scripted.requests[-1].messages] == [
        ("user", "one"),
        ("assistant", "Hello"),
        ("user", "two"),
    ]
    await make(api, scripted, previous_response_id=second["id"], input=None)
    assert [message["content"] for message in scripted.requests[-1].messages] == ["one", "Hello", "two", "Hello"]
    await api.delete(f"{ROUTE}/{first['id']}")
    await make(api, scripted, input="three", previous_response_id=second["id"])
    assert len(scripted.requests[-1].messages) == 5


async def test_items_can_be_referenced_by_id(api, scripted):
    first = await make(api, scripted, input="one")
    [said] = first["output"]
    [asked] = (await fetch(api, first["id"], "/input_items"))["data"]
    await make(
        api,
        scripted,
        input=[{"type": "item_reference", "id": asked["id"]}, {"id": said["id"]}, {"role": "user", "content": "two"}],
    )
    assert [message["content"] for message in scripted.requests[-1].messages] == ["one", "Hello", "two"]


async def test_a_response_referenced_repeatedly_is_read_once(api, scripted, monkeypatch):
    made, other = await make(api, scripted), await make(api, scripted)
    found: list[str] = []

    def find(*, public_id: str, **place: Any) -> StoredAnswer:
        found.append(public_id)
        return answer_find(public_id=public_id, **place)

    monkeypatch.setattr(storage, "answer_find", find)
    references = [{"id": made["output"][0]["id"]}] * 20 + [{"id": other["output"][0]["id"]}]
    await make(api, scripted, input=[*references, {"role": "user", "content": "two"}])
    assert found == [made["id"], other["id"]]
    assert len(scripted.requests[-1].messages) == 22
    monkeypatch.setattr(history, "MAX_REFERRED", 1)
    refused = (await respond(api, input=references)).json()
    assert (refused["error"]["param"], "at most 1 responses, got 2" in refused["message"]) == ("input", True)


async def test_referenced_items_are_limited_to_the_size_of_a_body(api, scripted, settings):
    """A thousand references to one item of megabytes would give gigabytes of messages."""
    made = await make(api, scripted, input="x" * 1000)
    [asked] = (await fetch(api, made["id"], "/input_items"))["data"]
    settings.LIGHTCONE_HTTP_LIMITS = replace(settings.LIGHTCONE_HTTP_LIMITS, max_body_bytes=5000)
    await make(api, scripted, input=[{"id": asked["id"]}] * 4)
    refused = (await respond(api, input=[{"id": asked["id"]}] * 5)).json()
    assert (refused["error"]["param"], "at most 5000 bytes" in refused["message"]) == ("input", True)


async def test_other_projects_can_neither_fetch_nor_continue_nor_reference(api, scripted, runs):
    made = await make(api, scripted)
    await StoredAnswer.objects.aupdate(project_id=2)
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("GET", "?stream=true"),
    ):
        response = await api.request(method, f"{ROUTE}/{made['id']}{path}")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    unknown = (await respond(api, previous_response_id=UNKNOWN)).json()["message"]
    assert (await respond(api, previous_response_id=made["id"])).json()["message"] == unknown.replace(
        UNKNOWN, made["id"]
    )
    assert (await respond(api, input=[{"id": made["output"][0]["id"]}])).status_code == 400


async def test_a_deleted_response_is_gone(api, scripted):
    made = await make(api, scripted)
    assert (await api.delete(f"{ROUTE}/{made['id']}")).json() == {
        "id": made["id"],
        "object": "response.deleted",
        "deleted": True,
    }
    assert (await api.get(f"{ROUTE}/{made['id']}")).status_code == 404


async def test_a_stored_stream_is_fetched_in_its_final_state(api, scripted, runs):
    scripted.script = list(HELLO)
    text = (await respond(api, stream=True)).text
    last = events(text)[-1]["response"]
    assert await fetch(api, last["id"]) == last
    runs.said = list(HELLO)
    again = await api.get(f"{ROUTE}/{last['id']}", params={"stream": "true"})
    assert again.text == text
    rest = await api.get(f"{ROUTE}/{last['id']}", params={"stream": "true", "starting_after": 4})
    assert text.endswith(rest.text)
    assert events(rest.text)[0]["sequence_number"] == 5


async def test_a_response_without_its_log_is_not_resumable(api, scripted, runs):
    made = await make(api, scripted)
    runs.state = None
    response = await api.get(f"{ROUTE}/{made['id']}", params={"stream": "true"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_resumable")
    assert await fetch(api, made["id"]) == made


async def begin(api, scripted, *script: Any, **fields: Any) -> dict[str, Any]:
    scripted.script = list(script)
    response = await respond(api, background=True, **fields)
    assert response.status_code == 200, response.text
    return checked(response.json())


async def test_a_background_response_answers_at_once_and_keeps_running(api, scripted, runs, settings):
    waiting = await begin(api, scripted, None)
    assert (waiting["status"], waiting["background"], waiting["output"], waiting["usage"]) == ("queued", True, [], None)
    assert (await begin(api, scripted, ADMITTED))["status"] == "in_progress"
    assert scripted.detach_policies[0].detach_grace_s >= settings.LIGHTCONE_LIMITS.request_timeout
    assert [reader.num_left for reader in scripted.readers] == [1, 1]
    runs.state = "queued"
    assert (await fetch(api, waiting["id"]))["status"] == "queued"
    runs.state = "running"
    assert (await fetch(api, waiting["id"]))["status"] == "in_progress"


async def test_the_end_of_a_background_response_is_stored_when_fetched(api, scripted, runs):
    made = await begin(api, scripted, ADMITTED, metadata={"a": "b"})
    runs.state, runs.said = "ended", list(HELLO)
    ended = checked(await fetch(api, made["id"]))
    assert (ended["status"], ended["output"][0]["content"][0]["text"], ended["metadata"]) == (
        "completed",
        "Hello",
        {"a": "b"},
    )
    assert (await StoredAnswer.objects.aget()).state == StoredState.FINISHED
    runs.state = None
    assert await fetch(api, made["id"]) == ended


async def test_a_background_response_without_a_run_has_failed(api, scripted, runs):
    made = await begin(api, scripted, ADMITTED)
    runs.state = None
    assert checked(await fetch(api, made["id"]))["error"]["code"] == "server_error"


async def test_an_early_refusal_of_a_background_response_is_a_status_and_not_stored(api, scripted):
    scripted.script = [Rejected(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages")]
    response = await respond(api, background=True)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
    assert await StoredAnswer.objects.acount() == 0
    scripted.refusal = LimitExceeded(LimitKind.REQUESTS, "slow down", retry_after_s=3, headers={})
    assert (await respond(api, background=True)).status_code == 429
    assert await StoredAnswer.objects.acount() == 0


async def test_a_background_stream_starts_as_queued_and_is_stored_at_its_end(api, scripted, runs):
    scripted.script = list(HELLO)
    read = events((await respond(api, background=True, stream=True)).text)
    assert names(read)[:3] == ["created", "queued", "in_progress"]
    assert [event["response"]["status"] for event in read[:3]] == ["queued", "queued", "in_progress"]
    assert (await StoredAnswer.objects.aget()).state == StoredState.FINISHED
    assert await fetch(api, read[-1]["response"]["id"]) == read[-1]["response"]


async def test_a_cancelled_response_keeps_its_partial_output(api, scripted, runs):
    made = await begin(api, scripted, ADMITTED)
    runs.said = [ADMITTED, delta("Hel")]
    runs.on_stop = [Completed(Outcome.STOPPED, Usage(3, 0, 1), Timings(0.0))]
    cancelled = checked((await api.post(f"{ROUTE}/{made['id']}/cancel")).json())
    assert (cancelled["status"], cancelled["output"][0]["content"][0]["text"]) == ("cancelled", "Hel")
    assert len(runs.stopped) == 1
    assert (await api.post(f"{ROUTE}/{made['id']}/cancel")).json() == cancelled
    assert len(runs.stopped) == 1


async def test_only_background_responses_can_be_cancelled(api, scripted):
    made = await make(api, scripted)
    response = await api.post(f"{ROUTE}/{made['id']}/cancel")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value")


async def test_a_deleted_background_response_is_stopped(api, scripted, runs):
    made = await begin(api, scripted, ADMITTED)
    await api.delete(f"{ROUTE}/{made['id']}")
    assert len(runs.stopped) == 1


async def test_a_background_response_that_cannot_be_stopped_is_not_deleted(api, scripted, runs, monkeypatch):
    made = await begin(api, scripted, ADMITTED)

    async def away(**_: Any) -> None:
        raise EngineUnavailable(ErrorCode.OVERLOADED, "away")

    monkeypatch.setattr(views, "run_stop", away)
    assert (await api.delete(f"{ROUTE}/{made['id']}")).status_code == 503
    assert (await fetch(api, made["id"]))["status"] == "in_progress"


async def test_a_refused_background_stream_is_not_stored(api, scripted, runs):
    """Its client has no id for it and will send the request again."""
    scripted.script = [EngineUnavailable(ErrorCode.OVERLOADED, "No worker took the request")]
    assert (await respond(api, background=True, stream=True)).status_code == 503
    assert runs.stopped == [scripted.requests[-1].run_id]
    assert await StoredAnswer.objects.acount() == 0


async def test_an_unfinished_response_cannot_be_continued(api, scripted, runs):
    made = await begin(api, scripted, ADMITTED)
    response = await respond(api, previous_response_id=made["id"])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "previous_response_id")
    runs.state, runs.said = "ended", list(HELLO)
    await make(api, scripted, input="two", previous_response_id=made["id"])
    assert [message["content"] for message in scripted.requests[-1].messages] == ["hi", "Hello", "two"]


async def test_a_database_failure_stops_a_background_response(api, scripted, monkeypatch):
    from django.db import OperationalError

    from chat.api.stored import services as stored

    def refuse(**_: Any) -> None:
        raise OperationalError("locked")

    async def stop() -> None:
        """As a reader would."""

    monkeypatch.setattr(stored, "answer_keep", refuse)
    monkeypatch.setattr("tests.chat.api.conftest.ScriptedReader.stop", lambda self: stop(), raising=False)
    assert (await respond(api, background=True)).status_code == 503
    assert scripted.readers[0].num_left == 1
    scripted.script = list(HELLO)
    assert (await respond(api)).status_code == 200


async def test_input_tokens_are_counted_without_an_answer(api, scripted):
    first = await make(api, scripted, input="one")
    scripted.script = [Admitted(9, 1, 1, context_length=100), completed(9, 0, 0)]
    response = await api.post(f"{ROUTE}/input_tokens", json={"input": "two", "previous_response_id": first["id"]})
    assert response.json() == {"object": "response.input_tokens", "input_tokens": 9}
    assert (scripted.requests[-1].task, len(scripted.requests[-1].messages)) == ("read", 3)


async def test_truncation_auto_drops_the_oldest_messages(api, scripted, monkeypatch):
    items = [{"role": "developer", "content": "be"}] + [
        {"role": "user", "content": str(number) * 100} for number in range(10)
    ]
    lengths = iter([200, 120, 90])

    class Reading(list[Any]):
        def __iter__(self) -> Any:
            length = next(lengths, None)
            said = HELLO if length is None else [Admitted(length, 1, 1, context_length=100), completed(length, 0, 0)]
            return iter(said)

    scripted.script = Reading()
    await answer(api, input=items, truncation="auto", max_output_tokens=10, instructions="x")
    assert [request.task for request in scripted.requests] == ["read"] * 3 + ["generate"]
    kept = [message["content"] for message in scripted.requests[-1].messages]
    assert kept[:2] == ["x", "be"]
    assert kept[2:] == [str(number) * 100 for number in range(10 - len(kept) + 2, 10)]
    assert 2 < len(kept) < 8
    assert scripted.further == [True, True, True, False]


def test_truncation_keeps_system_messages_and_results_with_their_calls():
    call = {"role": "assistant", "content": "", "tool_calls": [{}]}
    said = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        call,
        {"role": "tool", "content": "r" * 50},
    ]
    assert messages_shorten([*said, {"role": "user", "content": "b"}], 0.01) == [0, 2, 3, 4]
    assert messages_shorten([*said, {"role": "user", "content": "b"}], 0.9) == [0, 4]
    assert messages_shorten([*said[:2], call, said[3]], 0.9) == [0, 2, 3]
    assert messages_shorten(said[:2], 0.9) == [0, 1]
