"""What a page is told of its runs: all that the engine and the request log know of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.urls import reverse

from chat.api.dialect import AnswerHead
from chat.catalog.prices import Prices, price_add
from chat.catalog.services import model_register
from chat.generation import waiting
from chat.models import RequestLog
from chat.playground.requests import kept_read
from chat.playground.running import OpenRun, run_said, visitor_of
from chat.relay.state.workers import WorkerLease
from chat.usage.prices import cost_nanos
from engine.api import (
    Completed,
    Delta,
    FinishReason,
    Outcome,
    PromptScored,
    RankedLogprob,
    Timings,
    TokenLogprob,
    TopLogprob,
    Usage,
)
from tests.chat.api.conftest import ADMITTED, HELLO, MODEL, RUN_ID, Scripted, ScriptedReader, completed, delta, finished
from tests.chat.playground.conftest import HELLO_BODY, messages_until_end, signed_in, socket

pytestmark = pytest.mark.django_db(transaction=True)

HEAD = AnswerHead("a", 1, MODEL.name, "fp", "assistant", 1, False, False, False, None, 0)
NEWLINE = TopLogprob(7, -0.5, "\n", b"\n")
HALF = TopLogprob(8, -1.5, "\ufffd", b"\xc3")


async def run(page: Any, **fields: Any) -> list[dict[str, Any]]:
    """Start a run and return its messages."""
    await page.send_json_to({"type": "start", "id": "a", "request": HELLO_BODY | fields})
    first = await page.receive_json_from()
    return [first] if first["type"] == "error" else [first, *await messages_until_end(page)]


async def test_the_admission_says_what_the_run_will_do(page: Any, service: Scripted) -> None:
    assert (await run(page))[0] == {
        "type": "admitted",
        "id": "a",
        "prompt_tokens": 3,
        "model": MODEL.name,
        "max_tokens": 100,
        "seed": 1,
    }


async def test_log_probabilities_come_with_ids_bytes_and_ranks(page: Any, service: Scripted) -> None:
    """A token within a character releases no text, and is said all the same."""
    drawn = TokenLogprob(8, -1.5, "\ufffd", b"\xc3", (NEWLINE, HALF))
    outside = TokenLogprob(9, float("-inf"), "x", b"x", (NEWLINE, HALF))
    service.script = [ADMITTED, Delta(0, (8,), "", (drawn,)), Delta(0, (9,), "x", (outside,)), finished(), completed()]
    _, first, second, _ = await run(page, logprobs=True, top_logprobs=2)
    newline = {"token": "\n", "id": 7, "logprob": -0.5, "bytes": [10], "rank": 1}
    half = {"token": "\ufffd", "id": 8, "logprob": -1.5, "bytes": [0xC3], "rank": 2}
    assert first == {"type": "delta", "id": "a", "choice": 0, "text": "", "logprobs": [half | {"top": [newline, half]}]}
    unknown = {"token": "x", "id": 9, "logprob": -9999.0, "bytes": [120], "rank": None}
    assert second["logprobs"] == [unknown | {"top": [newline, half]}]
    assert service.requests[0].logprobs.top == 2


async def test_alternatives_that_the_request_names_have_no_rank(page: Any, service: Scripted) -> None:
    drawn = TokenLogprob(8, -1.5, "\ufffd", b"\xc3", (NEWLINE, HALF))
    service.script = [ADMITTED, Delta(0, (8,), "", (drawn,)), finished(), completed()]
    said = (await run(page, logprobs=True, logprob_token_ids=[7, 8]))[1]["logprobs"][0]
    assert (said["rank"], [other["rank"] for other in said["top"]]) == (None, [None, None])
    policy = service.detach_policies[0]
    assert policy is not None
    assert kept_read(policy.resume_context)[1] is False


async def test_log_probabilities_of_the_prompt_come_with_the_end(page: Any, service: Scripted) -> None:
    entry = (RankedLogprob(3, -2.0, 5, " b"), RankedLogprob(4, -0.1, 1, " c"))
    service.script = [ADMITTED, PromptScored(((), entry)), delta("x"), finished(), completed()]
    end = (await run(page, prompt_logprobs=1))[-1]
    best = {"token": " c", "id": 4, "logprob": -0.1, "bytes": None, "rank": 1}
    own = {"token": " b", "id": 3, "logprob": -2.0, "bytes": None, "rank": 5}
    assert end["prompt_logprobs"] == [None, own | {"top": [best]}]


async def test_token_ids_are_said_where_they_are_asked_for(page: Any, service: Scripted) -> None:
    _, first, *_ = await run(page, return_token_ids=True)
    assert (first["text"], first["token_ids"]) == ("Hel", [5])


async def test_the_end_has_the_cost_and_the_row_of_the_request_log(page: Any, service: Scripted) -> None:
    """The price is that of the log; an administrator gets a link to the row."""
    usage = Usage(1000, 200, 30, 10, 4, 2)
    timings = Timings(100.0, 100.25, 100.75, 102.0)
    stop = finished(reason=FinishReason.STOP, stop_reason="END")
    service.script = [ADMITTED, delta("x"), stop, Completed(Outcome.FINISHED, usage, timings)]
    prices = Prices(Decimal("1.5"), Decimal("0.15"), Decimal("2"), Decimal("3"))
    row = RequestLog(prompt_tokens=1000, cached_tokens=200, completion_tokens=30, reasoning_tokens=10)

    def priced() -> None:
        model = model_register(name=MODEL.name, path="/models/tiny")
        price_add(
            model=model,
            input=prices.input,
            cached=prices.cached,
            output=prices.output,
            reasoning=prices.reasoning,
        )
        who = get_user_model().objects.get(username="ada")
        who.memberships.update(role="viewer")

    await database_sync_to_async(priced)()
    end = (await run(page))[-1]
    assert end["cost"] == {"amount": "0.0013", "currency": "USD"}
    assert Decimal(end["cost"]["amount"]) * 10**9 == cost_nanos(row, prices)
    assert (end["request_id"], end["attempts"], end["seed"], end["stop"]) == (RUN_ID, 1, 1, "END")
    assert end["log_url"] == reverse("admin:chat_requestlog_change", args=[UUID(hex=RUN_ID)])
    assert end["timings"]["queue_s"] == 0.25
    assert end["timings"]["prompt_s"] == 0.5
    assert (end["usage"]["reasoning_tokens"], end["usage"]["accepted_prediction_tokens"]) == (10, 4)


async def test_without_a_price_there_is_no_cost_and_without_the_permission_no_link(
    page: Any, service: Scripted
) -> None:
    end = (await run(page))[-1]
    assert (end["cost"], end["log_url"], end["request_id"]) == (None, None, RUN_ID)


async def test_an_error_names_its_row_of_the_request_log(page: Any, service: Scripted) -> None:
    refused = (await run(page, model="unknown"))[-1]
    assert refused["request_id"] == service.rejected[0]["run_id"]
    service.script = [ADMITTED, delta("x"), completed(outcome=Outcome.WORKER_LOST)]
    lost = (await run(page))[-1]
    assert (lost["type"], lost["error"]["code"], lost["request_id"]) == ("error", "worker_lost", RUN_ID)


class MovedReader(ScriptedReader):
    """A reader whose run goes on elsewhere after its first piece of text."""

    async def next(self, timeout_s: float) -> Any:
        event = await super().next(timeout_s)
        self.attempt += event is None and self.attempt == 1
        return event


def opened(reader: ScriptedReader, user: Any) -> OpenRun:
    return OpenRun(reader, HEAD, True, MODEL.name, visitor_of(user))  # type: ignore[arg-type]  # as much of a reader as is used


async def said_types(run: OpenRun) -> list[str]:
    return [message["type"] async for said in run_said(run) for message in said.messages]


async def test_a_run_that_goes_on_elsewhere_says_so_once(service: Scripted, ada: Any) -> None:
    user = await database_sync_to_async(get_user_model().objects.get)(username="ada")
    _, one, two, *ends = HELLO
    reader = MovedReader([ADMITTED, one, None, None, two, *ends], {})
    run = await database_sync_to_async(opened)(reader, user)
    assert await said_types(run) == ["admitted", "delta", "resuming", "delta", "completed"]


async def test_a_run_whose_core_starts_again_says_so_once_per_loss(
    service: Scripted, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(["ready", "loading", "loading", "loading"])

    class Seen:
        async def workers_seen(self) -> list[WorkerLease]:
            return [WorkerLease("w", MODEL.name, next(states), "", 0.0, "", 4, 4096, 0, 0, 0)]

    monkeypatch.setattr(waiting, "dispatcher_of_loop", Seen)
    user = await database_sync_to_async(get_user_model().objects.get)(username="ada")
    _, one, two, *ends = HELLO
    reader = ScriptedReader([ADMITTED, None, None, None, one, None, two, *ends], {})
    run = await database_sync_to_async(opened)(reader, user)
    assert await said_types(run) == ["admitted", "resuming", "delta", "resuming", "delta", "completed"]


async def test_another_account_gets_no_link(service: Scripted, ada: Any) -> None:
    other = await socket(await database_sync_to_async(signed_in)("eve"))
    await other.connect()
    assert (await run(other))[-1]["log_url"] is None
    await other.disconnect()
