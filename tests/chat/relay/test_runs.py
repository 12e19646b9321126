"""Claim, stop, leave, end and takeover each happen once, with exactly one terminal record per run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from chat.relay.state.runs import DetachPolicy, NotNow
from engine.api import Completed, Delta, EngineUnavailable, ErrorCode, Failed, Outcome, Rejected
from lightcone_site.serve.child import MAX_BACKOFF_S
from tests.chat.relay.world import World, read_all, text_of, until


async def test_only_one_claim_of_an_attempt_succeeds(world: World) -> None:
    web, one, two = await world.web(), await world.worker("a@x~1"), await world.worker("b@x~2")
    reader, _ = await world.admit(web)
    claims = await asyncio.gather(*(worker.claims.take(reader.run_id, 1) for worker in (one, two, one, two)))
    assert sum(claim is not None for claim in claims) == 1
    assert (list(one._table.live) + list(two._table.live)).count(reader.run_id) == 1
    assert await one.claims.take(reader.run_id, 1) is None


async def test_a_claim_is_repeated_after_a_lost_reply(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    claim, answers = worker.runs.claim, [True, False]

    async def claim_badly(*args: Any) -> Any:
        claimed = await claim(*args)
        if answers.pop():
            return claimed
        raise ConnectionResetError

    monkeypatch.setattr(worker.runs, "claim", claim_badly)
    both = await asyncio.gather(worker.claims.take(reader.run_id, 1), worker.claims.take(reader.run_id, 1))
    assert [taken is not None for taken in both] == [True, False]
    assert list(worker._table.live) == [reader.run_id]
    assert await worker.claims.take(reader.run_id, 1) is None


async def test_a_worker_without_a_lease_renews_it_before_it_claims(world: World) -> None:
    """After a suspension the task of its own run was dropped, and the next one came after half a minute."""
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    await world.client.delete(world.keys.worker(worker.worker_id))
    assert await worker.claims.take(reader.run_id, 1) is not None
    assert await world.client.exists(world.keys.worker(worker.worker_id)) == 1


async def test_a_worker_without_a_lease_claims_nothing_and_raises(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    await world.client.delete(world.keys.worker(worker.worker_id))
    world.has_lease = False
    with pytest.raises(NotNow):
        await worker.claims.take(reader.run_id, 1)
    assert await world.client.hget(world.keys.meta(reader.run_id), "state") == b"queued"


async def test_the_end_leaves_one_record_and_frees_the_key(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    voice.end()
    await worker.flush()
    await read_all(reader)
    [record] = await world.records()
    assert record["outcome"] == "finished"
    assert (record["prompt_tokens"], record["completion_tokens"], record["finish_reason"]) == (3, 1, "stop")
    assert (record["attempts"], record["worker"], record["route"]) == (1, worker.worker_id, "/v1/chat/completions")
    assert await world.client.zcard(world.keys.admit_live("key1")) == 0
    assert await world.client.scard(world.keys.worker_runs(worker.worker_id)) == 0
    assert 0 < await world.client.pttl(world.keys.log(reader.run_id)) <= 600_000


async def test_the_request_of_a_run_is_deleted_at_its_end(world: World) -> None:
    """Twenty refused messages of 30 MB stayed in Valkey for ten minutes, though only their logs are needed."""
    web, worker = await world.web(), await world.worker()
    refused, voice = await world.run(web, worker)
    voice.say(Rejected(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "messages"))
    finished, other = await world.run(web, worker)
    other.admit()
    other.end()
    await worker.flush()
    for reader in (refused, finished):
        assert await world.client.exists(world.keys.request(reader.run_id)) == 0
        assert await world.client.exists(world.keys.log(reader.run_id)) == 1


async def test_an_end_refused_by_a_full_valkey_is_written_later(world: World) -> None:
    """The refusal was taken for a newer attempt: the run was dropped, and its reader waited for ever."""
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await world.client.config_set("maxmemory", 1)
    try:
        voice.token("a")
        voice.end()
        await worker.flush()
        assert list(worker._table.live) == [reader.run_id]
    finally:
        await world.client.config_set("maxmemory", 2**30)
    await worker.flush()
    assert text_of(await read_all(reader)) == "a"
    assert list(worker._table.live) == []


async def test_a_client_that_leaves_ends_its_run(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    world.on_abort = lambda run_id, outcome: voice.end(outcome)
    reader.leave()
    reader.leave()
    await until(lambda: bool(world.aborted))
    await worker.flush()
    assert world.aborted == [(reader.run_id, Outcome.DISCONNECTED)]
    assert [record["outcome"] for record in await world.records()] == ["disconnected"]


async def test_a_lost_stop_command_is_caught_by_the_flag(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await world.runs.stop(reader.run_id, "stopped")
    assert world.aborted == []
    await worker.beat()
    assert world.aborted == [(reader.run_id, Outcome.STOPPED)]


async def test_a_stopped_run_still_sends_its_end(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await reader.first()
    world.on_abort = lambda run_id, outcome: voice.end(outcome)
    await reader.stop()
    await worker.flush()
    events = [event async for event in reader]
    assert events[-1].payload.outcome is Outcome.STOPPED


async def test_a_run_stopped_in_the_queue_is_claimed_with_its_flag(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    assert await world.runs.stop(reader.run_id, "stopped") == ""
    voice = await world.claim(worker, reader.run_id)
    assert voice.claim.stop == "stopped"


async def test_a_run_left_at_its_deadline_is_recorded_as_timed_out(world: World) -> None:
    """The client gets 408, so that the record must not have 499."""
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    await reader.stop(Outcome.TIMED_OUT)
    reader.leave()
    await world.runs.leave(reader.run_id, web.web_id)
    voice = await world.claim(worker, reader.run_id)
    assert voice.claim.stop == "timed_out"


async def test_a_detached_run_outlives_its_reader_for_the_grace_period(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.run(web, worker, detach=DetachPolicy(60.0))
    assert await world.runs.leave(reader.run_id, web.web_id) is None
    reaper = world.reaper()
    world.clock.now += 59
    await reaper.turn()
    assert world.stops == []
    world.clock.now += 2
    await reaper.turn()
    assert world.stops == [(worker.worker_id, reader.run_id, "disconnected")]


async def test_a_takeover_continues_without_gap_or_repeat(world: World) -> None:
    web, lost = await world.web(sweep_s=0.01), await world.worker("a@x~1")
    reader, voice = await world.run(web, lost)
    result = asyncio.create_task(read_all(reader))
    voice.admit()
    voice.token("a")
    voice.token("b")
    await lost.flush()
    await world.client.delete(world.keys.worker(lost.worker_id))
    await world.reaper().turn()
    assert world.queued == [(reader.run_id, 2, "tiny")]
    heir = await world.worker("b@x~2")
    heir_voice = await world.claim(heir, reader.run_id, 2)
    heir_voice.num_tokens = 2
    assert heir_voice.position == 4  # 0 admitted, 1 and 2 tokens, 3 the new attempt's beginning
    heir_voice.token("c")
    heir_voice.end()
    await heir.flush()
    assert text_of(await result) == "abc"
    [record] = await world.records()
    assert (record["attempts"], record["completion_tokens"]) == (2, 3)


async def test_a_stale_worker_is_refused_and_publishes_nothing(world: World) -> None:
    web, stale = await world.web(), await world.worker("a@x~1")
    reader, voice = await world.run(web, stale)
    voice.admit()
    await stale.flush()
    await world.client.delete(world.keys.worker(stale.worker_id))
    await world.reaper().turn()
    num_sent = len(world.layer.sent)
    voice.token("late")
    await stale.flush()
    assert world.aborted == [(reader.run_id, Outcome.STOPPED)]
    voice.end()
    await stale.flush()
    assert len(world.layer.sent) == num_sent
    assert await world.records() == []
    log = await world.runs.read_log(reader.run_id)
    assert [(entry.attempt, entry.position) for entry in log] == [(1, 0), (2, 1)]


async def test_the_end_of_a_stale_attempt_is_refused_as_a_whole(world: World) -> None:
    web, stale = await world.web(), await world.worker("a@x~1")
    reader, voice = await world.run(web, stale)
    voice.admit()
    await stale.flush()
    await world.client.delete(world.keys.worker(stale.worker_id))
    await world.reaper().turn()
    voice.end()
    await stale.flush()
    assert await world.records() == []
    assert await world.client.hget(world.keys.meta(reader.run_id), "state") == b"queued"


async def test_the_same_worker_may_take_its_lost_run_again(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await world.client.delete(world.keys.worker(worker.worker_id))
    await world.reaper().turn()
    await worker.beat()
    assert world.aborted == [(reader.run_id, Outcome.STOPPED)]
    again = asyncio.create_task(world.claim(worker, reader.run_id, 2))
    voice.end(Outcome.STOPPED)
    second = await again
    second.token("x")
    second.end()
    await worker.flush()
    [record] = await world.records()
    assert (record["attempts"], record["outcome"]) == (2, "finished")


async def test_after_three_attempts_a_run_ends_as_lost(world: World) -> None:
    web = await world.web(sweep_s=0.01)
    reader, _ = await world.admit_with_worker(web)
    result = asyncio.create_task(read_all(reader))
    reaper = world.reaper()
    for attempt in (1, 2, 3):
        worker = await world.worker(f"a@x~{attempt}")
        voice = await world.claim(worker, reader.run_id, attempt)
        if attempt == 1:
            voice.admit()
        voice.token("x")
        await worker.flush()
        await world.client.delete(world.keys.worker(worker.worker_id))
        await reaper.turn()
    payload = (await result)[-1].payload
    assert isinstance(payload, Failed)
    assert (payload.code, payload.outcome) == (ErrorCode.WORKER_LOST, Outcome.WORKER_LOST)
    [record] = await world.records()
    assert (record["outcome"], record["status"], record["completion_tokens"], record["attempts"]) == (
        "worker_lost",
        503,
        3,
        3,
    )


async def test_an_unclaimed_run_is_requeued_or_ended(world: World) -> None:
    web = await world.web(sweep_s=0.01)
    reader, _ = await world.admit_with_worker(web)
    reaper = world.reaper()
    await reaper.turn()
    assert world.queued == []
    world.clock.now += 31
    await reaper.turn()
    assert world.queued == [(reader.run_id, 1, "tiny")]
    for publisher in world.publishers:
        await world.client.delete(world.keys.worker(publisher.worker_id))
    world.clock.now += 91
    await reaper.turn()
    with pytest.raises(Exception, match="lost"):
        await reader.first()
    assert [record["outcome"] for record in await world.records()] == ["worker_lost"]


async def test_a_queued_run_waits_for_a_worker_that_may_still_be_started(world: World) -> None:
    """Streams ended after 6 s although the supervisor had planned a start within 30 s."""
    web = await world.web(sweep_s=0.01)
    reader, _ = await world.admit_with_worker(web)
    [worker] = world.publishers
    reaper = world.reaper()
    await world.client.delete(world.keys.worker(worker.worker_id))
    world.clock.now += MAX_BACKOFF_S + 45
    await reaper.turn()
    assert await world.client.hget(world.keys.meta(reader.run_id), "state") == b"queued"
    world.lease_state = "loading"
    await worker.beat()
    world.clock.now += 100
    await reaper.turn()
    assert await world.client.hget(world.keys.meta(reader.run_id), "state") == b"queued", (
        "a worker that loads is waited for"
    )
    world.lease_state = "ready"
    await worker.beat()
    await reaper.turn()
    assert world.queued == [(reader.run_id, 1, "tiny")], "whatever became of its task"


async def test_a_queued_run_ends_when_no_worker_comes(world: World) -> None:
    web = await world.web(sweep_s=0.01)
    reader, _ = await world.admit_with_worker(web)
    [worker] = world.publishers
    world.lease_state = "failed"
    await worker.beat()
    world.clock.now += 91
    await world.reaper().turn()
    with pytest.raises(EngineUnavailable) as raised:
        await reader.first()
    assert raised.value.code is ErrorCode.WORKER_LOST
    assert world.queued == []
    assert await world.client.zcard(world.keys.admit_live("key1")) == 0


async def test_a_run_ended_at_admission_is_never_queued(world: World) -> None:
    """A lost write of a refused request's end let a worker claim a run without a request."""
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web, has_task=False)
    reader.leave()
    await web.chores.settle()
    world.clock.now += 40
    await worker.beat()
    await world.reaper().turn()
    assert world.queued == []


async def test_a_run_without_a_worker_ends_at_its_own_time_limit(world: World) -> None:
    web, worker = await world.web(sweep_s=0.01), await world.worker()
    request = replace(world.admission().request, deadline_at=world.clock() + 20)
    reader, voice = await world.run(web, worker, request=request)
    voice.admit()
    voice.token("a")
    await worker.flush()
    await world.client.delete(world.keys.worker(worker.worker_id))
    reaper = world.reaper()
    await reaper.turn()
    world.clock.now += 21
    await reaper.turn()
    payload = (await read_all(reader))[-1].payload
    assert isinstance(payload, Failed)
    assert (payload.code, payload.outcome) == (ErrorCode.INFERENCE_TIMEOUT, Outcome.TIMED_OUT)
    [record] = await world.records()
    assert (record["outcome"], record["status"], record["completion_tokens"]) == ("timed_out", 408, 1)


async def test_runs_of_a_dead_web_process_are_left(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.run(web, worker)
    await world.client.delete(world.keys.web(web.web_id))
    await world.reaper().turn()
    assert world.stops == [(worker.worker_id, reader.run_id, "interrupted")], "its client was cut off, and has not left"
    assert await world.client.hget(world.keys.meta(reader.run_id), "stop") == b"interrupted"


async def test_a_run_ended_after_its_web_process_is_recorded_as_interrupted(world: World) -> None:
    """Streams cut by a killed web process were recorded as `finished` or as disconnected."""
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    await world.client.delete(world.keys.web(web.web_id))
    voice.admit()
    voice.token("a")
    voice.end()
    await worker.flush()
    await world.reaper().turn()
    record, correction = await world.records()
    assert (record["outcome"], record["completion_tokens"]) == ("finished", 1)
    assert correction == {"run_id": reader.run_id, "told": "interrupted"}


async def test_a_resumable_run_of_a_dead_web_process_is_not_interrupted(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    _, voice = await world.run(web, worker, detach=DetachPolicy(60.0))
    await world.client.delete(world.keys.web(web.web_id))
    voice.admit()
    voice.end()
    await worker.flush()
    await world.reaper().turn()
    assert [record["outcome"] for record in await world.records()] == ["finished"]


async def test_the_record_has_the_outcome_sent_to_the_client(world: World) -> None:
    """While Valkey was stuck, clients got an error and the rows had `finished`."""
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    await reader.first()
    reader.fail(ErrorCode.LOG_LOST)
    reader.leave()
    await until(lambda: not web.chores.leaves)
    voice.end()
    await worker.flush()
    [record] = await world.records()
    assert (record["outcome"], record["status"], record["error_code"]) == ("worker_lost", 503, "worker_lost")
    assert record["completion_tokens"] == 1, "what was computed is counted all the same"


async def test_a_queue_time_out_is_not_recorded_as_a_disconnect(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    with pytest.raises(EngineUnavailable):
        await reader.first(timeout_s=0.01)
    reader.leave()
    await until(lambda: not web.chores.leaves)
    voice = await world.claim(worker, reader.run_id)
    assert voice.claim.stop == "interrupted"


async def test_a_request_timed_out_in_the_queue_is_recorded_as_timed_out(world: World) -> None:
    """Its client gets 408, not the 503 of a full queue."""
    web, worker = await world.web(), await world.worker()
    reader, _ = await world.admit(web)
    with pytest.raises(EngineUnavailable):
        await reader.first(timeout_s=0.01)
    await reader.stop(Outcome.TIMED_OUT)
    reader.leave()
    await until(lambda: not web.chores.leaves)
    voice = await world.claim(worker, reader.run_id)
    assert voice.claim.stop == "timed_out"
    voice.admit()
    voice.end(Outcome.TIMED_OUT)
    await worker.flush()
    [record] = await world.records()
    assert (record["outcome"], record["status"]) == ("timed_out", 408)


async def test_an_ending_process_reports_all_delivered_answers(world: World) -> None:
    """The last answers of a drain were not reported, and would have been recorded as interrupted."""
    web, worker = await world.web(), await world.worker()
    readers = []
    for _ in range(5):
        reader, voice = await world.run(web, worker)
        voice.admit()
        voice.end()
        readers.append(reader)
    await worker.flush()
    for reader in readers:
        await read_all(reader)
        reader.leave()
    await web.chores.settle()
    await web.chores.settle()
    await world.client.delete(world.keys.web(web.web_id))
    await world.reaper().turn()
    assert [record.get("outcome") for record in await world.records()] == ["finished"] * 5


async def test_connections_cut_by_the_server_are_recorded_as_interrupted(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    (cut, _), (left, _) = await world.run(web, worker), await world.run(web, worker)
    left.leave()
    web.is_cutting = True
    cut.leave()
    await until(lambda: not web.chores.leaves)
    assert [(run_id, outcome) for _, run_id, outcome in world.stops] == [
        (left.run_id, "disconnected"),
        (cut.run_id, "interrupted"),
    ]


async def test_two_reapers_do_not_run_at_once(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    await world.run(web, worker)
    await world.client.delete(world.keys.worker(worker.worker_id))
    await asyncio.gather(world.reaper().turn(), world.reaper().turn())
    assert len(world.queued) == 1


async def test_a_draining_worker_hands_its_runs_to_another(world: World) -> None:
    web, old, new = await world.web(sweep_s=0.01), await world.worker("a@x~1"), await world.worker("b@x~2")
    reader, voice = await world.run(web, old)
    voice.admit()
    voice.token("a")
    assert await old.hand_over() == [(reader.run_id, 2)]
    heir = await world.claim(new, reader.run_id, 2)
    heir.token("b")
    heir.end()
    await new.flush()
    assert text_of(await read_all(reader)) == "ab"


async def test_a_worker_handing_over_never_renews_its_lease(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat or a claim renewed it during the handover, so that the runs looked alive."""
    web, old, new = await world.web(), await world.worker("a@x~1"), await world.worker("b@x~2")
    reader, _ = await world.run(web, old)

    async def settled(timeout_s: float) -> None:
        await old.beat()

    monkeypatch.setattr(old.claims, "settled", settled)
    assert await old.hand_over() == [(reader.run_id, 2)]
    await world.claim(new, reader.run_id, 2)


async def test_without_another_worker_nothing_is_handed_over(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    _, voice = await world.run(web, worker)
    voice.admit()
    assert await worker.hand_over() == []
    assert worker.num_live == 1


async def test_a_log_entry_lost_with_the_worker_ends_the_stream(world: World) -> None:
    """The new attempt begins before the last sent position, so that continuing would contradict it."""
    web, worker = await world.web(sweep_s=0.01), await world.worker("a@x~1")
    reader, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    await reader.first()
    assert isinstance((await anext(reader)).payload, Delta)
    await world.client.xtrim(world.keys.log(reader.run_id), maxlen=0)
    await world.client.delete(world.keys.worker(worker.worker_id))
    await world.client.delete(world.keys.log(reader.run_id))
    await world.reaper().turn()
    payload = (await reader.next(5.0)).payload
    assert isinstance(payload, Failed)
    assert payload.code is ErrorCode.LOG_LOST


async def test_batch_mode_does_not_delay_first_tokens_and_ends(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    worker._flush_mode = "batch"
    reader, voice = await world.run(web, worker)
    voice.admit()
    async with asyncio.timeout(5):
        await reader.first()
    voice.token("a")
    voice.end()
    async with asyncio.timeout(5):
        assert isinstance([event async for event in reader][-1].payload, Completed)
