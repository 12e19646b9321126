"""A turn ends by itself when its run ends while no page is open."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import orjson
import pytest
from channels.db import database_sync_to_async
from django.utils import timezone

from chat.access.accounts import playground_caller
from chat.api.dialect import AnswerHead
from chat.catalog.prices import price_add
from chat.catalog.services import model_register
from chat.conversations.recovery import LOST_AFTER, UnfinishedTurns
from chat.conversations.runs import run_public_id
from chat.conversations.services import conversation_create
from chat.conversations.turns import TurnSent, body_of, turn_put
from chat.models import Turn
from chat.relay.state.runs import DetachPolicy
from engine.api import ChoiceFinished, Completed, Delta, FinishReason, Outcome, Timings, ToolCallDelta, Usage
from tests.chat.relay.world import Voice, World
from tests.people import member

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def world(valkey: str) -> AsyncIterator[World]:
    made = World(valkey, f"test-{secrets.token_hex(4)}")
    yield made
    await made.close()


def begin() -> tuple[int, str]:
    """Save a turn whose answer has begun, and return the project and public id of its run."""
    user = member("ann")
    caller = playground_caller(user=user)
    conversation_create(user_id=user.pk, public_id="a", fields={})
    public_id = run_public_id(caller, "run-1")
    sent = TurnSent("1", "", "assistant", "begun", {"model": "tiny"}, public_id, caller.project_id)
    turn_put(user_id=user.pk, conversation_id="a", sent=sent)
    return caller.project_id, public_id


async def run(world: World, *, num_choices: int = 1) -> Voice:
    project_id, public_id = await database_sync_to_async(begin)()
    head = AnswerHead("x", 1, "tiny", "fp", "assistant", num_choices, False, False, False, None, 0)
    detach = DetachPolicy(60.0, public_id=public_id, resume_context=orjson.dumps(head.dump()))
    reader, voice = await world.run(await world.web(), await world.worker(), detach=detach, project_id=project_id)
    reader.leave()
    return voice


async def ended(world: World) -> tuple[str, dict[str, Any]]:
    await world.publishers[0].flush() if world.publishers else None
    await UnfinishedTurns(world.runs).turn()
    row = await Turn.objects.aget()
    return row.state, body_of(row)


async def test_an_answer_without_a_page_is_saved_once_its_run_has_ended(world):
    voice = await run(world)
    voice.admit()
    voice.token("Hel")
    voice.token("lo")
    assert await ended(world) == ("begun", {"model": "tiny"})
    voice.end()
    state, body = await ended(world)
    choice = {"content": "Hello", "reasoning": "", "calls": [], "finish_reason": "stop", "tokens": 2}
    assert (state, body["model"], body["content"]) == ("ended", "tiny", {"choices": [choice], "shown": 0})
    assert (body["outcome"], body["usage"]["completion_tokens"]) == ("finished", 2)
    assert body["timings"]["total_s"] == pytest.approx(0.3)
    assert (body["request_id"], body["seed"], "cost" in body) == (voice.claim.run_id, 7, False)


async def test_a_saved_answer_says_what_it_has_cost(world):
    voice = await run(world)
    model = await database_sync_to_async(model_register)(name="tiny", path="/m/tiny")
    await database_sync_to_async(price_add)(model=model, input=Decimal(100_000), output=Decimal(1_000_000))
    voice.admit()
    voice.token("Hello")
    voice.end()
    _, body = await ended(world)
    tokens = body["usage"]["prompt_tokens"] + 10 * body["usage"]["completion_tokens"]
    assert body["cost"] == {"amount": str(Decimal(tokens) / 10), "currency": "USD"}


async def test_choices_reasoning_and_calls_are_told_apart(world):
    voice = await run(world, num_choices=2)
    voice.admit()
    voice.say(Delta(1, (1,), "", reasoning="hm"), Delta(0, (2,), "A"))
    voice.say(Delta(1, (3,), "", tool_calls=(ToolCallDelta(0, "c1", "add", '{"a"'),)))
    voice.say(ChoiceFinished(1, FinishReason.TOOL_CALLS, tool_calls=(ToolCallDelta(0, arguments=": 1}"),)))
    voice.end()
    _, body = await ended(world)
    assert body["content"]["choices"] == [
        {"content": "A", "reasoning": "", "calls": [], "finish_reason": "stop", "tokens": 1},
        {
            "content": "",
            "reasoning": "hm",
            "calls": [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}],
            "finish_reason": "tool_calls",
            "tokens": 2,
        },
    ]


async def test_a_saved_answer_says_which_stop_string_or_token_ended_it(world):
    """A page that reads the end saves it; without a page the figures said only that the answer had ended."""
    voice = await run(world, num_choices=2)
    voice.admit()
    voice.say(ChoiceFinished(0, FinishReason.STOP, stop_reason="END"), ChoiceFinished(1, FinishReason.STOP))
    voice.say(Completed(Outcome.FINISHED, Usage(3, 0, 1), Timings(0.0)))
    _, body = await ended(world)
    assert [choice.get("stop") for choice in body["content"]["choices"]] == ["END", None]
    assert "stop" not in body["content"]["choices"][1]


@pytest.mark.parametrize(
    ("outcome", "state"), [(Outcome.STOPPED, "ended"), (Outcome.DISCONNECTED, "failed"), (Outcome.TIMED_OUT, "failed")]
)
async def test_what_was_said_before_an_early_end_is_kept(world, outcome, state):
    voice = await run(world)
    voice.admit()
    voice.token("Hel")
    voice.say(Completed(outcome, Usage(3, 0, 1), Timings(0.0)))
    found, body = await ended(world)
    assert (found, body["content"]["choices"][0]["content"]) == (state, "Hel")
    assert ("error" in body) == (state == "failed")


async def test_a_run_that_never_began_is_lost_after_a_while(world):
    await database_sync_to_async(begin)()
    assert (await ended(world))[0] == "begun"
    await Turn.objects.aupdate(created_at=timezone.now() - LOST_AFTER - timedelta(seconds=1))
    state, body = await ended(world)
    assert (state, body["error"]["code"]) == ("failed", "not_resumable")


async def test_an_end_beyond_the_quota_is_a_failure(world, settings):
    voice = await run(world)
    voice.admit()
    voice.token("x" * 1000)
    voice.end()
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = 1000
    assert await ended(world) == ("failed", {"model": "tiny"})
