"""Further readers of a run: from its first event, in any process, as long as its log exists."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from chat.generation.completions import PublicIdInUse, completion_start, run_attach, run_find_public
from chat.relay.state.runs import READ_ENTRIES, DetachPolicy
from chat.relay.web.reader import RunReader
from engine.api import ErrorCode, Failed, Outcome
from tests.chat.relay.test_completion_start import CALLER, TRACE, request, service, worker_of
from tests.chat.relay.world import World, read_all, text_of, until
from tests.examples import examples

__all__ = ["service"]


async def attach(dispatcher: Any, run_id: str) -> RunReader:
    attached = await dispatcher.attach(run_id)
    assert attached is not None
    return attached[0]


async def test_a_second_reader_starts_at_the_first_event_and_follows_live(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    first, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    second = await attach(web, first.run_id)
    voice.token("b")
    voice.end()
    await worker.flush()
    assert [text_of(events) for events in await asyncio.gather(read_all(first), read_all(second))] == ["ab", "ab"]


async def test_a_reader_in_another_process_uses_sweeps_until_the_next_heartbeat(world: World) -> None:
    web, other, worker = await world.web(), await world.web(), await world.worker()
    first, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    second = await attach(other, first.run_id)
    assert (await second.first()).num_prompt_tokens == 3
    voice.token("b")
    await worker.flush()
    await other.sweep()
    assert [text_of([await second.__anext__()]) for _ in "ab"] == ["a", "b"]
    await worker.beat()
    voice.end()
    await worker.flush()
    assert (await second.__anext__()).payload is not None
    assert (await second.__anext__()).is_terminal


@given(num_said=st.integers(0, 12), num_seen=st.integers(0, 12))
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_reader_attached_at_any_time_gets_every_event_once(world: World, num_said: int, num_seen: int) -> None:
    web = world.dispatchers[0] if world.dispatchers else await world.web()
    worker = world.publishers[0] if world.publishers else await world.worker()
    first, voice = await world.run(web, worker)
    voice.admit()
    for number in range(num_said):
        voice.token(f"<{number}>")
        if number < num_seen:
            await worker.flush()
    second = await attach(web, first.run_id)
    voice.token("last")
    voice.end()
    await worker.flush()
    ours, theirs = await asyncio.gather(read_all(first), read_all(second))
    assert ours == theirs
    assert text_of(ours) == "".join(f"<{number}>" for number in range(num_said)) + "last"
    first.leave()
    second.leave()


async def test_an_ended_run_is_read_from_its_log(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    for _ in range(READ_ENTRIES + 10):
        voice.token("x")
        await worker.flush()
    voice.end()
    await worker.flush()
    reader.leave()
    again = await attach(web, reader.run_id)
    assert text_of(await read_all(again)) == "x" * (READ_ENTRIES + 10)


async def test_an_unknown_run_cannot_be_attached(world: World) -> None:
    web = await world.web()
    assert await web.attach("0" * 32) is None
    assert len(web._readers) == 0


async def test_a_run_is_left_when_its_last_reader_leaves(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    first, _ = await world.run(web, worker)
    second = await attach(web, first.run_id)
    first.leave()
    await until(lambda: not web.chores.leaves)
    assert world.stops == []
    second.leave()
    await until(lambda: bool(world.stops))
    assert world.stops == [("model@here~1", first.run_id, "disconnected")]


async def test_a_detached_run_is_not_ended_while_a_reader_is_attached(world: World) -> None:
    web, worker, reaper = await world.web(), await world.worker(), world.reaper()
    first, _ = await world.run(web, worker, detach=DetachPolicy(60.0))
    first.leave()
    await until(lambda: not web.chores.leaves)
    again = await attach(web, first.run_id)
    world.clock.now += 61
    await world.client.set(world.keys.worker("model@here~1"), "there")
    await reaper._reap_unread()
    assert world.stops == []
    again.leave()
    await until(lambda: not web.chores.leaves)
    world.clock.now += 61
    await reaper._reap_unread()
    assert world.stops == [("model@here~1", first.run_id, "disconnected")]


async def test_a_reader_of_a_deleted_log_gets_log_lost(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    first, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await first.first()
    await world.client.delete(world.keys.log(first.run_id), world.keys.meta(first.run_id))
    for _ in range(4):
        await web.sweep(everyone=True)
    event = await first.__anext__()
    assert isinstance(event.payload, Failed)
    assert event.payload.code == ErrorCode.LOG_LOST


async def test_a_public_id_identifies_one_run_of_a_project(service: World) -> None:
    worker = await worker_of(service)
    detach = DetachPolicy(60.0, public_id="mine", resume_context=b'{"a":1}')
    reader = await completion_start(request=request(), caller=CALLER, trace=TRACE, detach=detach)
    assert await run_find_public(public_id="mine", caller=CALLER) == (reader.run_id, b'{"a":1}')
    with pytest.raises(PublicIdInUse):
        await completion_start(request=request(), caller=CALLER, trace=TRACE, detach=detach)
    stranger = replace(CALLER, project_id=3)
    assert await run_find_public(public_id="mine", caller=stranger) is None
    assert await run_attach(run_id=reader.run_id, caller=stranger) is None
    other = await completion_start(request=request(), caller=stranger, trace=TRACE, detach=detach)
    for started in (reader, other):
        voice = await service.claim(worker, started.run_id)
        voice.admit()
        voice.end()
    attached = await run_attach(run_id=reader.run_id, caller=CALLER)
    assert attached is not None
    assert (await read_all(attached[0]))[-1].payload.outcome == Outcome.FINISHED
    for name in (
        service.keys.public(2, "mine"),
        service.keys.resume_context(reader.run_id),
        service.keys.log(reader.run_id),
    ):
        assert 0 < await service.client.pttl(name) <= 600_000


async def test_a_log_may_outlive_its_run(service: World) -> None:
    worker = await worker_of(service)
    reader = await completion_start(
        request=request(), caller=CALLER, trace=TRACE, detach=DetachPolicy(60.0, log_ttl_s=3600.0)
    )
    voice = await service.claim(worker, reader.run_id)
    voice.admit()
    voice.end()
    await read_all(reader)
    assert await service.client.pttl(service.keys.log(reader.run_id)) > 3_000_000
