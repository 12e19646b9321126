"""From the publisher to the reader: every position once, in order, despite lost messages."""

from __future__ import annotations

import asyncio
import random

import pytest

from chat.relay.valkey import WritesRefused
from chat.relay.web.reader import INBOX_ENTRIES
from engine.api import (
    Admitted,
    Completed,
    Delta,
    EngineFailure,
    EngineUnavailable,
    ErrorCode,
    Outcome,
    Rejected,
    RequestError,
    Timings,
    Usage,
)
from tests.chat.relay.world import World, read_all, text_of, until

LETTERS = "abcdefghijklmnopqrstuvwxyz"


async def speak(voice, publisher, text: str = LETTERS) -> None:
    """Send one step per letter, each flushed."""
    voice.admit()
    await publisher.flush()
    for letter in text:
        voice.token(letter)
        await publisher.flush()
    voice.end()
    await publisher.flush()


async def test_a_run_is_read_from_admission_to_usage(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    await speak(voice, worker)
    assert await reader.first() == Admitted(3, 100, 7)
    events = [event async for event in reader]
    assert text_of(events) == LETTERS
    assert events[-1].payload.outcome is Outcome.FINISHED
    assert [event.start for event in events] == [1 + sum(e.count for e in events[:i]) for i in range(len(events))]
    with pytest.raises(StopAsyncIteration):
        await reader.next(1.0)


async def test_one_message_per_flush_and_web_process_carries_all_runs(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    runs = [await world.run(web, worker) for _ in range(5)]
    await worker.flush()
    world.layer.sent.clear()
    for _, voice in runs:
        voice.admit()
    await worker.flush()
    assert len(world.layer.sent) == 1
    assert len(world.layer.sent[0]["deltas"]) == 5


async def test_text_is_complete_when_a_third_of_the_messages_is_lost(world: World) -> None:
    chance = random.Random(5)
    world.layer.drops = lambda message: chance.random() < 1 / 3
    web, worker = await world.web(sweep_s=0.01), await world.worker()
    runs = [await world.run(web, worker) for _ in range(4)]
    results = [asyncio.create_task(read_all(reader)) for reader, _ in runs]
    await asyncio.gather(*(speak(voice, worker) for _, voice in runs))
    assert [text_of(events) for events in await asyncio.gather(*results)] == [LETTERS] * 4


async def test_a_lost_last_message_is_found_by_the_sweep(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await reader.first()
    world.layer.drops = lambda message: True
    voice.token("x")
    voice.end()
    await worker.flush()
    assert await reader.next(0.001) is None
    await web.sweep(everyone=True)
    assert text_of([event async for event in reader]) == "x"


async def test_a_gap_in_message_numbers_triggers_a_sweep(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    first, voice = await world.run(web, worker)
    second, other_voice = await world.run(web, worker)
    voice.admit()
    other_voice.admit()
    await worker.flush()
    await first.first()
    await second.first()
    world.layer.drops = lambda message: True
    voice.end()
    await worker.flush()
    world.layer.drops = lambda message: False
    other_voice.token("x")
    await worker.flush()
    async with asyncio.timeout(5):
        assert isinstance([event async for event in first][-1].payload, Completed)


async def test_a_gap_is_read_from_the_log(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await reader.first()
    world.layer.drops = lambda message: message["n"] in (2, 3)
    for letter in "abc":
        voice.token(letter)
        await worker.flush()
    async with asyncio.timeout(5):
        assert [(await anext(reader)).payload.text for _ in range(3)] == ["a", "b", "c"]


async def test_a_slow_reader_falls_back_to_the_log(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    text = LETTERS * (INBOX_ENTRIES // 20)
    for letter in text:
        voice.token(letter)
        await worker.flush()
    voice.end()
    await worker.flush()
    await until(lambda: world.layer.queues[web.channel].empty())
    results = asyncio.create_task(read_all(reader))
    while not results.done():
        await web.sweep(everyone=True)
        await asyncio.sleep(0)
    assert text_of(results.result()) == text


async def test_deltas_of_a_run_are_joined_while_valkey_is_slow(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    for letter in "abc":
        voice.token(letter)
    voice.end()
    await worker.flush()
    events = await read_all(reader)
    assert events[0].payload == Delta(0, (1, 2, 3), "abc")
    assert events[0].count == 3
    assert len(await world.runs.read_log(reader.run_id)) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [(ErrorCode.CONTEXT_LENGTH_EXCEEDED, RequestError), (ErrorCode.OVERLOADED, EngineUnavailable)],
)
async def test_a_rejected_run_raises_before_anything_is_answered(
    world: World, code: ErrorCode, error: type[Exception]
) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.say(Rejected(code, "no", "messages"))
    await worker.flush()
    with pytest.raises(error, match="no"):
        await reader.first()
    [record] = await world.records()
    assert (record["outcome"], record["error_code"]) == ("rejected", code.value)


async def test_a_run_stopped_before_it_began_raises(world: World) -> None:
    """A request stopped in the queue was reported as a server error."""
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.say(Completed(Outcome.STOPPED, Usage(), Timings(1000.0)))
    await worker.flush()
    with pytest.raises(EngineFailure, match="stopped before it began") as caught:
        await reader.first()
    assert caught.value.code == ErrorCode.ENGINE_ERROR


async def test_a_run_without_a_worker_in_time_is_503(world: World) -> None:
    reader, _ = await world.admit_with_worker(await world.web())
    with pytest.raises(EngineUnavailable, match="within 0.01 s") as raised:
        await reader.first(timeout_s=0.01)
    assert raised.value.code is ErrorCode.OVERLOADED


async def test_silence_lets_the_reader_ping_and_loses_nothing(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    await reader.first()
    assert await reader.next(0.001) is None
    voice.token("a")
    await worker.flush()
    event = await reader.next(5.0)
    assert event is not None
    assert event.payload.text == "a"


async def test_runs_of_two_deployments_are_separate(world: World, valkey: str) -> None:
    other = World(valkey, "test-other")
    try:
        web, worker = await world.web(), await world.worker()
        other_web, other_worker = await other.web(), await other.worker()
        reader, voice = await world.run(web, worker)
        assert await other_worker.claims.take(reader.run_id, 1) is None
        assert await other.client.exists(other.keys.meta(reader.run_id)) == 0
        assert other_web.channel != ""
        assert voice.claim.watchers == {web.web_id: web.channel}
    finally:
        await other.close()


async def test_while_valkey_refuses_writes_new_runs_fail_and_begun_ones_continue(
    world: World,
) -> None:
    """With a full disk reads still worked, and requests hung without a header for 40 s."""
    web, worker = await world.web(sweep_s=0.01), await world.worker()
    waiting, _ = await world.admit(web)
    begun, voice = await world.run(web, worker)
    voice.admit()
    voice.token("a")
    await worker.flush()
    await begun.first()
    await world.client.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(WritesRefused):
            await asyncio.to_thread(web._lease.renew)
        async with asyncio.timeout(10):
            with pytest.raises(EngineUnavailable) as raised:
                await waiting.first()
        assert raised.value.code is ErrorCode.OVERLOADED
        voice.token("b")
        voice.end()
        await worker.flush()
        await worker.beat_safely()
    finally:
        await world.client.execute_command("REPLICAOF", "NO", "ONE")
    await worker.flush()
    assert text_of([event async for event in begun]) == "ab"
    waiting.leave()
