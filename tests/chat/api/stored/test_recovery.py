"""Answers without a client are ended from the logs of their runs, after any crash."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from chat.api.dialect import AnswerHead
from chat.api.registry import stored_endings
from chat.api.stored.recovery import UnfinishedAnswers, database_sync_to_async
from chat.api.stored.services import StoredKind, StoredState, answer_keep
from chat.models import StoredAnswer
from chat.relay.state.runs import DetachPolicy
from engine.api import Completed, ErrorCode, Outcome, Rejected, Timings, Usage
from tests.chat.relay.world import Voice, World

pytestmark = pytest.mark.django_db(transaction=True)
RESPONSE_ID = "resp_" + "0" * 32
ECHOED = {
    "id": RESPONSE_ID,
    "background": True,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "metadata": {},
}


@pytest.fixture
async def world(valkey: str) -> AsyncIterator[World]:
    made = World(valkey, f"test-{secrets.token_hex(4)}")
    yield made
    await made.close()


def head(**fields: Any) -> AnswerHead:
    return AnswerHead("mine", 1, "tiny", "fp", "assistant", 1, False, False, False, None, 0, **fields)


async def begin(run_id: str, kind: StoredKind) -> None:
    echoed = ECHOED if kind == StoredKind.RESPONSE else {}
    await database_sync_to_async(answer_keep)(
        run_id=run_id,
        public_id=RESPONSE_ID if echoed else "chatcmpl-mine",
        project_id=1,
        kind=kind,
        model="tiny",
        metadata={},
        request={"head": head(echo_fields=echoed).dump(), "items": [], "messages": []},
        created_at=datetime.now(UTC),
    )


async def run(world: World, kind: StoredKind) -> Voice:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker, detach=DetachPolicy(60.0))
    await begin(reader.run_id, kind)
    reader.leave()
    return voice


async def ended(world: World) -> tuple[str, Any] | None:
    await UnfinishedAnswers(world.runs, stored_endings()).turn()
    row = await StoredAnswer.objects.afirst()
    return None if row is None else (row.state, orjson.loads(row.answer) if row.answer else None)


@pytest.mark.parametrize("kind", list(StoredKind))
async def test_an_unfinished_answer_is_written_once_its_run_has_ended(world, kind):
    voice = await run(world, kind)
    voice.admit()
    voice.token("Hel")
    voice.token("lo")
    await world.publishers[0].flush()
    assert await ended(world) == (StoredState.UNFINISHED, None)
    voice.end()
    await world.publishers[0].flush()
    state, body = await ended(world)
    assert state == StoredState.FINISHED
    assert "Hello" in str(body)
    if kind == StoredKind.RESPONSE:
        assert (body["status"], body["usage"]["output_tokens"]) == ("completed", 2)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(Outcome.STOPPED, "cancelled"), (Outcome.DISCONNECTED, "failed"), (Outcome.TIMED_OUT, "failed")],
)
async def test_a_response_ended_early_keeps_its_partial_output(world, outcome, status):
    voice = await run(world, StoredKind.RESPONSE)
    voice.admit()
    voice.token("Hel")
    voice.say(Completed(outcome, Usage(3, 0, 1), Timings(0.0)))
    await world.publishers[0].flush()
    state, body = await ended(world)
    assert (state, body["status"]) == (status, status)
    assert body["output"][0]["content"][0]["text"] == "Hel"
    assert body["output"][0]["status"] == "incomplete"


async def test_a_chat_completion_ended_early_is_dropped(world):
    voice = await run(world, StoredKind.CHAT)
    voice.admit()
    voice.say(Completed(Outcome.DISCONNECTED, Usage(3, 0, 1), Timings(0.0)))
    await world.publishers[0].flush()
    assert await ended(world) is None


async def test_a_response_refused_late_has_the_reason(world):
    voice = await run(world, StoredKind.RESPONSE)
    voice.say(Rejected(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages"))
    await world.publishers[0].flush()
    state, body = await ended(world)
    assert (state, body["error"]) == (StoredState.FAILED, {"code": "invalid_prompt", "message": "too long"})


async def test_an_answer_without_a_run_is_marked_as_failed(world):
    await begin("0" * 32, StoredKind.RESPONSE)
    state, body = await ended(world)
    assert (state, body["status"], body["error"]["code"]) == (StoredState.FAILED, "failed", "server_error")


async def test_an_unreadable_answer_does_not_block_later_ones(world):
    """The oldest answer comes first, so that one bad row left all later answers unfinished."""
    await begin(f"{0:032x}", StoredKind.CHAT)
    await StoredAnswer.objects.aupdate(request=b"no JSON", kind=StoredKind.RESPONSE)
    await begin(f"{1:032x}", StoredKind.RESPONSE)
    await UnfinishedAnswers(world.runs, stored_endings()).turn()
    assert [row.state async for row in StoredAnswer.objects.order_by("run_id")] == [
        StoredState.UNFINISHED,
        StoredState.FAILED,
    ]
