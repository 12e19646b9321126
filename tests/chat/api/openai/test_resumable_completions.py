"""Requests with X-Lightcone-Resumable: numbered chunks, and the route for missed ones."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.api.answering import storage
from chat.api.chat_format.numbered import NumberedStream
from chat.api.chat_format.stored import kept_read, resumable_policy
from chat.api.chat_format.stream import NAMED, PLAIN, ChatStream
from chat.api.openai import stored
from chat.api.stored.services import StoredState
from chat.errors import ApiError
from chat.generation.completions import PublicIdInUse, RunInfo
from chat.models import StoredAnswer
from engine.api import ChoiceFinished, Completed, Delta, Event, FinishReason, Outcome, Timings, ToolCallDelta, Usage
from tests.chat.api.conftest import ADMITTED, HELLO, ROUTE, ScriptedReader, chat, frames
from tests.chat.api.openai.heads import head

RESUMABLE = {"X-Lightcone-Resumable": "true", "X-Request-Id": "mine"}
EVENTS = f"{ROUTE}/chatcmpl-mine/events"


@pytest.fixture
def picked_up(scripted, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let runs be found by their key and replay their events."""
    asked: list[str] = []

    async def find(*, public_id: str, caller: Any) -> Any:
        asked.append(public_id)
        policy = scripted.detach_policies[-1] if scripted.detach_policies else None
        return ("f" * 32, policy.resume_context) if policy is not None and policy.public_id == public_id else None

    async def attach(*, run_id: str, caller: Any) -> Any:
        return ScriptedReader(list(HELLO), {}), RunInfo("running", {"project_id": 1}, 60.0)

    monkeypatch.setattr(stored, "run_find_public", find)
    monkeypatch.setattr(storage, "run_attach", attach)
    return asked


async def resumable(api, **fields: Any) -> Any:
    return await api.post(ROUTE, json=chat(**fields), headers=RESUMABLE)


async def test_chunks_are_numbered_from_0_and_the_run_survives_a_disconnect(api, scripted):
    *chunks, done = frames((await resumable(api, stream=True)).text)
    assert done == "[DONE]"
    assert [chunk["lightcone"] for chunk in chunks] == [{"seq": number} for number in range(4)]
    assert all("seq" not in chunk["choices"][0]["delta"] for chunk in chunks)
    assert (scripted.detach_policies[0].detach_grace_s, scripted.detach_policies[0].public_id) == (60.0, "mine")


@pytest.mark.parametrize("headers", [{}, {"X-Lightcone-Resumable": "false"}])
async def test_other_requests_have_no_numbers_and_end_at_a_disconnect(api, scripted, headers):
    response = await api.post(ROUTE, json=chat(stream=True), headers=headers)
    assert "lightcone" not in response.text
    assert scripted.detach_policies == [None]


async def test_an_id_in_use_is_a_non_retryable_409(api, scripted):
    scripted.refusal = PublicIdInUse()
    response = await resumable(api, stream=True)
    assert (response.status_code, response.json()["error"]["code"]) == (409, "request_id_in_use")
    assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", [EVENTS, EVENTS.removeprefix("/v1"), EVENTS + "/"])
async def test_a_resumed_stream_continues_with_the_same_chunks(api, scripted, picked_up, path):
    whole = (await resumable(api, stream=True)).text
    chunks = whole.removesuffix("\n\n").split("\n\n")
    for after in range(-1, len(chunks)):
        response = await api.get(path, params={} if after == -1 else {"starting_after": after})
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        again = re.sub(r"^id: (\d+)\n", "", response.text, flags=re.MULTILINE)
        assert again == "".join(f"{chunk}\n\n" for chunk in chunks[:-1][after + 1 :] + chunks[-1:])
        assert re.findall(r"^id: (\d+)$", response.text, re.MULTILINE) == [
            str(number) for number in range(after + 1, len(chunks) - 1)
        ]


async def test_last_event_id_sets_the_start_of_a_resumed_stream(api, scripted, picked_up):
    await resumable(api, stream=True)
    response = await api.get(EVENTS, params={"starting_after": 0}, headers={"Last-Event-ID": "2"})
    assert re.findall(r"^id: (\d+)$", response.text, re.MULTILINE) == ["3"]
    refused = await api.get(EVENTS, headers={"Last-Event-ID": "two"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Last-Event-ID")
    ignored = await api.post(ROUTE, json=chat(stream=True), headers={**RESUMABLE, "Last-Event-ID": "2"})
    assert "id:" not in ignored.text


async def test_a_completion_that_is_not_resumable_is_404(api, scripted, picked_up):
    for path in (EVENTS, f"{ROUTE}/other/events"):
        response = await api.get(path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_resumable")


@pytest.mark.parametrize(("dialect", "framing"), [("lightcone", PLAIN), ("scale", NAMED)])
def test_a_run_that_began_before_an_update_keeps_its_framing(dialect, framing):
    """The update closes its connection, so that its client picks it up after it."""
    kept = orjson.dumps({"dialect": dialect, "head": head().dump()})
    assert kept_read(kept) == (head(), framing)
    assert kept_read(resumable_policy(framing, head()).resume_context) == (head(), framing)


@pytest.mark.django_db(transaction=True)
async def test_a_resumable_answer_can_be_fetched_as_a_whole(api, scripted, picked_up):
    plain = (await resumable(api)).json()
    assert (await api.get(f"{ROUTE}/chatcmpl-mine")).json() == plain


@pytest.mark.django_db(transaction=True)
async def test_a_stored_resumable_answer_is_recorded_when_it_begins(api, scripted, picked_up):
    plain = (await resumable(api, store=True, metadata={"a": "b"})).json()
    row = await StoredAnswer.objects.aget()
    assert (row.state, orjson.loads(row.answer)) == (StoredState.FINISHED, plain)
    assert (await api.get(f"{ROUTE}/chatcmpl-mine")).json()["choices"] == plain["choices"]


PAYLOADS = st.lists(
    st.one_of(
        st.builds(
            lambda choice, text: Delta(choice, (1,), text),
            st.integers(0, 1),
            st.sampled_from(["a", "", "\n\ndata: [DONE]\n\n"]),
        ),
        st.builds(lambda choice: Delta(choice, (1,), "t", reasoning="r"), st.integers(0, 1)),
        st.builds(lambda: Delta(0, (1,), "", tool_calls=(ToolCallDelta(0, "c", "f", "{}"),))),
    ),
    max_size=8,
)


@given(payloads=PAYLOADS, after=st.integers(-1, 30), interval=st.integers(1, 3), framing=st.sampled_from([None, NAMED]))
def test_a_stream_resumed_at_any_chunk_has_the_same_bytes(payloads, after, interval, framing):
    answer_head = head(num_choices=2, include_usage=True, continuous_usage=True, stream_interval=interval)
    ends = [ChoiceFinished(0, FinishReason.STOP), ChoiceFinished(1, FinishReason.LENGTH)]
    said = [ADMITTED, *payloads, *ends, Completed(Outcome.FINISHED, Usage(1, 0, 2), Timings(0.0))]
    events = [Event(position, 1, payload) for position, payload in enumerate(said)]

    def stream(**options: Any) -> bytes:
        inner = ChatStream(answer_head, framing) if framing is not None else ChatStream(answer_head)
        writer = NumberedStream(inner, **options)
        return b"".join(map(writer.feed, events))

    whole = stream().split(b"\n\n")[:-1]
    assert stream(after=after) == b"".join(frame + b"\n\n" for frame in whole[:-1][after + 1 :] + whole[-1:])
    numbers = [orjson.loads(frame.removeprefix(b"data: "))["lightcone"]["seq"] for frame in whole[:-1]]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("framing", [PLAIN, NAMED])
def test_an_error_frame_has_no_number(framing):
    """A client resuming after an error's number never got the chunk of that number."""
    events = [Event(0, 1, ADMITTED), Event(1, 1, Delta(0, (1,), "a")), Event(2, 1, Delta(0, (1,), "b"))]
    lost = NumberedStream(ChatStream(head(), framing))
    seen = b"".join(map(lost.feed, events[:2])) + lost.error(ApiError("worker_lost", "lost"))
    assert b'"error"' in seen
    numbers = [int(number) for number in re.findall(rb'"seq":(\d+)', seen)]
    again = NumberedStream(ChatStream(head(), framing), after=numbers[-1], has_ids=True)
    assert [b'"content":"b"' in again.feed(event) for event in events] == [False, False, True]
    assert b"id:" not in again.error(ApiError("worker_lost", "lost"))
