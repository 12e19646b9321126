"""A batch from its lines to its files: states, early ends, and crashes without loss or repeats."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.urls import resolve
from django.utils import timezone

from chat.access.keys import key_disable, key_update
from chat.api.request.build import LATER
from chat.api.view import error_response
from chat.batches import runner as runner_module
from chat.batches import work
from chat.batches.lines import endpoint_view
from chat.batches.services import (
    ENDPOINTS,
    ClaimLost,
    Tokens,
    batch_cancel,
    batch_claim,
    batch_output_begin,
    batches_prune,
    result_add,
)
from chat.batches.views import BATCHES
from chat.errors import ApiError
from chat.models import Batch, BatchResult, ProjectFile, RequestLog
from tests.chat.batches.conftest import BatchWorld
from tests.chat.relay.world import until


def refused(code: str, message: str = "no", **options: Any) -> Any:
    return error_response(BATCHES, ApiError(code, message, **options))


async def test_every_line_is_answered_and_the_files_keep_the_order(world: BatchWorld) -> None:
    batch = await world.create(*({"n": number} for number in range(20)))
    await world.run()
    output, errors = await world.files(batch)
    assert batch.status == "completed"
    assert (batch.num_lines, batch.num_completed, batch.num_failed) == (20, 20, 0)
    assert [line["custom_id"] for line in output] == [f"r{number}" for number in range(20)]
    assert [line["response"]["body"]["echo"]["n"] for line in output] == list(range(20))
    assert errors == []
    first = output[0]
    assert set(first) == {"id", "custom_id", "response", "error"}
    assert first["id"].startswith("batch_req_")
    assert (first["error"], first["response"]["status_code"]) == (None, 200)
    assert first["response"]["request_id"]
    assert (batch.prompt_tokens, batch.cached_tokens, batch.completion_tokens, batch.reasoning_tokens) == (
        60,
        20,
        40,
        20,
    )
    instants = (batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at)
    assert list(instants) == sorted(instants)
    assert await database_sync_to_async(BatchResult.objects.count)() == 0


async def test_lines_have_low_priority_and_the_batch_id(world: BatchWorld) -> None:
    batch = await world.create({"n": 1})
    await world.run()
    (caller,), (request,) = world.route.callers, world.route.requests
    assert (caller.public_id, caller.min_priority) == (world.key.public_id, LATER)
    assert request.lightcone_batch_id == batch.public_id
    assert request.path == "/v1/chat/completions"


async def test_refused_lines_go_into_the_error_file(world: BatchWorld) -> None:
    world.route.answers = lambda body: refused("invalid_value", "n is bad", param="n")
    batch = await world.create({"n": 1}, {"n": 2})
    await world.run()
    output, errors = await world.files(batch)
    assert (batch.status, batch.num_completed, batch.num_failed, output) == ("completed", 0, 2, [])
    assert [line["response"]["status_code"] for line in errors] == [400, 400]
    assert errors[0]["response"]["body"]["error"]["param"] == "n"
    assert errors[0]["error"] is None
    assert batch.output_file_id == ""


@pytest.mark.parametrize(
    "code", ["rate_limit_exceeded", "overloaded", "model_loading", "model_unloaded", "model_load_failed"]
)
async def test_a_line_waits_at_a_limit(world: BatchWorld, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    waits: list[float] = []
    monkeypatch.setattr(work.AimdLimiter, "back_off", lambda self, wait_s: waits.append(wait_s))
    plain = world.route.answers
    world.route.answers = lambda body: refused(code, retry_after_s=7) if len(world.route.seen) < 5 else plain(body)
    batch = await world.create({"n": 1})
    await world.run()
    assert (await world.now(batch)).num_completed == 1
    assert waits == [7.0] * 4


@pytest.mark.parametrize("code", ["worker_lost", "inference_timeout"])
async def test_a_failed_line_is_tried_three_times(
    world: BatchWorld, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(work.AimdLimiter, "back_off", lambda self, wait_s: None)
    world.route.answers = lambda body: refused(code)
    batch = await world.create({"n": 1})
    await world.run()
    assert len(world.route.seen) == 3
    assert (await world.now(batch)).num_failed == 1


async def test_a_defect_fails_its_line_alone(world: BatchWorld) -> None:
    plain = world.route.answers

    def answers(body: Any) -> Any:
        if body["n"] == 1:
            raise KeyError("bug")
        return plain(body)

    world.route.answers = answers
    batch = await world.create({"n": 0}, {"n": 1}, {"n": 2})
    await world.run()
    output, errors = await world.files(batch)
    assert [line["custom_id"] for line in output] == ["r0", "r2"]
    assert errors[0]["response"]["body"]["error"]["code"] == "internal_error"


async def test_a_bad_input_fails_the_batch_with_the_numbers_of_its_lines(world: BatchWorld) -> None:
    batch = await world.create(content=b"{}\nx\n")
    await world.run()
    await world.now(batch)
    assert (batch.status, [error["line"] for error in batch.errors]) == ("failed", [1, 2])
    assert batch.failed_at is not None
    assert world.route.seen == []


async def test_a_missing_input_fails_the_batch(world: BatchWorld) -> None:
    batch = await world.create({"n": 1})
    await database_sync_to_async(ProjectFile.objects.all().delete)()
    await world.run()
    assert (await world.now(batch)).errors[0]["code"] == "file_missing"


async def test_concurrent_lines_over_all_batches_are_limited(world: BatchWorld, settings: Any) -> None:
    settings.LIGHTCONE_BATCH_CONCURRENCY = 3
    world.route.hold = asyncio.Event()
    batches = [await world.create(*({"n": number} for number in range(5))) for _ in range(2)]
    runner = world.runner()
    await runner.turn(wait_s=0.0)
    await until(lambda: len(world.route.seen) >= 3)
    world.route.hold.set()
    await runner.settle()
    assert world.route.most_at_once == 3
    assert [(await world.now(batch)).num_completed for batch in batches] == [5, 5]


@pytest.mark.parametrize(("allowed", "at_once"), [(1, 1), (4, 2), (None, 3)])
async def test_a_batch_uses_at_most_half_of_the_keys_concurrency(
    world: BatchWorld, settings: Any, allowed: int | None, at_once: int
) -> None:
    settings.LIGHTCONE_MAX_LIVE_PER_KEY = 6
    world.key.max_concurrency = allowed
    await database_sync_to_async(key_update)(key=world.key)
    world.route.hold = asyncio.Event()
    await world.create(*({"n": number} for number in range(5)))
    runner = world.runner()
    await runner.turn(wait_s=0.0)
    await until(lambda: len(world.route.seen) >= at_once)
    world.route.hold.set()
    await runner.settle()
    assert world.route.most_at_once == at_once
    assert {caller.limits.live_runs for caller in world.route.callers} == {at_once}


async def test_a_cancel_stops_running_lines_and_keeps_results(world: BatchWorld, settings: Any) -> None:
    settings.LIGHTCONE_BATCH_CONCURRENCY = 1
    plain = world.route.answers

    def answers(body: Any) -> Any:
        world.route.hold = asyncio.Event()  # the lines behind the first one wait
        return plain(body)

    world.route.answers = answers
    batch = await world.create(*({"n": number} for number in range(3)))
    runner = world.runner()
    await runner.turn(wait_s=0.0)
    await until(lambda: len(world.route.seen) == 2)
    await database_sync_to_async(batch_cancel)(batch=batch)
    await runner.settle()
    output, errors = await world.files(batch)
    assert (batch.status, world.route.num_cancelled) == ("cancelled", 1)
    assert [line["custom_id"] for line in output] == ["r0"]
    assert errors == []
    assert batch.cancelling_at is not None
    assert batch.cancelled_at is not None


async def test_a_batch_cancelled_before_its_start_has_no_files(world: BatchWorld) -> None:
    batch = await world.create({"n": 1})
    await database_sync_to_async(batch_cancel)(batch=batch)
    await world.run()
    await world.now(batch)
    assert (batch.status, batch.output_file_id, batch.error_file_id, world.route.seen) == ("cancelled", "", "", [])


async def test_expired_lines_are_listed_in_the_error_file(world: BatchWorld) -> None:
    world.route.hold = asyncio.Event()
    batch = await world.create({"n": 0}, {"n": 1}, expires_at=timezone.now() + timedelta(milliseconds=1))
    await world.run()
    output, errors = await world.files(batch)
    assert (batch.status, batch.num_failed, output) == ("expired", 2, [])
    assert [(line["custom_id"], line["response"], line["error"]["code"]) for line in errors] == [
        ("r0", None, "batch_expired"),
        ("r1", None, "batch_expired"),
    ]


async def test_a_batch_expired_before_its_start_sends_nothing(world: BatchWorld) -> None:
    batch = await world.create({"n": 0}, expires_at=timezone.now() - timedelta(seconds=1))
    await world.run()
    _, errors = await world.files(batch)
    assert (batch.status, world.route.seen) == ("expired", [])
    assert [line["error"]["code"] for line in errors] == ["batch_expired"]


@pytest.mark.parametrize(("lives_on", "status"), [(timedelta(hours=1), "failed"), (timedelta(hours=-1), "expired")])
async def test_a_batch_whose_input_is_deleted_ends(world: BatchWorld, lives_on: timedelta, status: str) -> None:
    batch = await world.create({"n": 0}, status="in_progress", num_lines=1, expires_at=timezone.now() + lives_on)
    await database_sync_to_async(ProjectFile.objects.all().delete)()
    await world.run()
    await world.now(batch)
    assert (batch.status, world.route.seen) == (status, [])
    assert [error["code"] for error in batch.errors] == (["file_missing"] if status == "failed" else [])


async def test_disabling_a_key_stops_its_batch(world: BatchWorld) -> None:
    world.route.hold = asyncio.Event()
    batch = await world.create({"n": 0})
    runner = world.runner()
    await runner.turn(wait_s=0.0)
    await world.route.arrived.wait()
    await database_sync_to_async(key_disable)(key=world.key)
    await runner.settle()
    await world.now(batch)
    assert (batch.status, batch.errors[0]["code"], world.route.num_cancelled) == ("failed", "invalid_api_key", 1)


async def test_a_crash_loses_nothing_and_repeats_only_running_lines(world: BatchWorld, settings: Any) -> None:
    settings.LIGHTCONE_BATCH_CONCURRENCY = 2
    hold = asyncio.Event()
    plain = world.route.answers

    def answers(body: Any) -> Any:
        if len(world.route.seen) >= 6:
            world.route.hold = hold
        return plain(body)

    world.route.answers = answers
    batch = await world.create(*({"n": number} for number in range(10)))
    dying = world.runner()
    await dying.turn(wait_s=0.0)
    await until(lambda: world.route.hold is not None and len(world.route.seen) >= 7)
    await dying.close()
    answered = set(await database_sync_to_async(list)(BatchResult.objects.values_list("line", flat=True)))
    assert 0 < len(answered) < 10
    before = list(world.route.seen)
    world.route.hold, world.route.answers = None, plain
    await world.run()
    output, _ = await world.files(batch)
    again = [body["n"] + 1 for body in world.route.seen[len(before) :]]
    assert batch.status == "completed"
    assert sorted(again) == sorted(set(range(1, 11)) - answered)
    assert [line["custom_id"] for line in output] == [f"r{number}" for number in range(10)]
    assert batch.num_completed == 10


async def test_a_crash_while_writing_files_leaves_one_of_each(
    world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "TURN_S", 0.0)
    batch = await world.create({"n": 0})

    def die(*, pk: int, owner: str) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(work.batches, "batch_end", die)
        await world.run()
    assert (await world.now(batch)).status == "finalizing"
    await database_sync_to_async(Batch.objects.update)(claimed_until=None)
    await world.run()
    output, _ = await world.files(batch)
    assert (batch.status, len(output), len(world.route.seen)) == ("completed", 1, 1)
    files = await database_sync_to_async(ProjectFile.objects.filter(purpose="batch_output").count)()
    assert files == 1


async def test_a_batch_has_one_runner_until_its_claim_is_over(world: BatchWorld) -> None:
    batch = await world.create({"n": 0})
    claim = database_sync_to_async(batch_claim)
    assert await claim(pk=batch.pk, owner="a") is not None
    assert await claim(pk=batch.pk, owner="b") is None
    assert await claim(pk=batch.pk, owner="a") is not None
    await database_sync_to_async(Batch.objects.update)(claimed_until=timezone.now() - timedelta(seconds=1))
    assert await claim(pk=batch.pk, owner="b") is not None
    await world.run()
    assert world.route.seen == []


async def test_a_runner_without_its_claim_cannot_change_the_batch(world: BatchWorld) -> None:
    batch = await world.create({"n": 0})
    await database_sync_to_async(batch_claim)(pk=batch.pk, owner="sleeper")
    await database_sync_to_async(Batch.objects.update)(claimed_until=None)
    await world.run()
    for late in (
        partial(batch_output_begin, is_error=False),
        partial(result_add, line=2, text="{}", is_error=False, tokens=Tokens()),
    ):
        with pytest.raises(ClaimLost):
            await database_sync_to_async(late)(pk=batch.pk, owner="sleeper")
    output, _ = await world.files(batch)
    assert (batch.status, batch.num_completed, len(output)) == ("completed", 1, 1)
    assert await database_sync_to_async(BatchResult.objects.count)() == 0


async def test_a_call_wakes_a_waiting_runner(world: BatchWorld) -> None:
    runner = world.runner()
    runner.wake()
    async with asyncio.timeout(5):
        await runner.turn(wait_s=3600.0)


async def test_old_batches_are_deleted_and_open_ones_kept(world: BatchWorld) -> None:
    old = await world.create({"n": 0}, status="completed", created_at=timezone.now() - timedelta(days=40))
    await world.create({"n": 0}, created_at=timezone.now() - timedelta(days=40))
    assert await database_sync_to_async(batches_prune)(before=timezone.now() - timedelta(days=30)) == 1
    assert not await database_sync_to_async(Batch.objects.filter(pk=old.pk).exists)()
    assert await database_sync_to_async(RequestLog.objects.count)() == 0


def test_every_endpoint_has_the_view_of_its_route() -> None:
    assert ENDPOINTS == ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
    for endpoint in ENDPOINTS:
        assert endpoint_view(endpoint) is resolve(endpoint).func
