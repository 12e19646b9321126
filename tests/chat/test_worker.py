"""The model worker with an engine that follows a script: lease, claims, refusals, failed loads, drain."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chat.relay.valkey_line import Asked
from chat.relay.workers import worker_leases
from chat.worker import ModelWorker
from engine.api import Admitted, Completed, Delta, Event, GenerationRequest, Outcome, Timings, Usage
from engine.api.errors import EngineUnavailable, ErrorCode, ModelLoadError, RequestError
from engine.config import EngineConfig
from engine.engine import EngineStats, Resume, RunEvents
from tests.chat.relay.world import MODEL, World, read_all, text_of


class ScriptedEngine:
    """Answers each run with the letters of `answer`, unless told to refuse or to wait for an abort."""

    answer = "abc"
    load_error: Exception | None = None
    submit_error: Exception | None = None
    waits = False

    def __init__(self, config: EngineConfig, publish: Callable[[list[RunEvents]], None]) -> None:
        self.publish = publish
        self.state = "ready"
        self.heartbeat_at: float | None = None
        self.positions: dict[str, int] = {}
        self.is_closed = False

    def start(self, progress: Callable[[str, float], None]) -> None:
        progress("reading", 0.5)
        if self.load_error is not None:
            raise self.load_error

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        self.positions[request.run_id] = resume.position if resume else 0
        if resume is None or resume.admitted is None:
            self.say(request.run_id, Admitted(3, 10, 1))
        if not self.waits:
            known = len([event for event in resume.events if isinstance(event.payload, Delta)]) if resume else 0
            for index, letter in enumerate(self.answer[known:]):
                self.say(request.run_id, Delta(0, (index,), letter))
            self.end(request.run_id, Outcome.FINISHED)

    def say(self, run_id: str, payload: Any) -> None:
        self.publish([RunEvents(run_id, (Event(self.positions[run_id], 1, payload),))])
        self.positions[run_id] += 1

    def end(self, run_id: str, outcome: Outcome) -> None:
        self.say(run_id, Completed(outcome, Usage(3, 0, 3), Timings(1.0, 2.0, 3.0, 4.0)))

    def abort(self, run_id: str, outcome: Outcome) -> None:
        self.end(run_id, outcome)

    def stats(self) -> EngineStats:
        return EngineStats(self.state, 0, 0, 128, None, None)

    def close(self, drain_s: float = 0.0) -> None:
        self.is_closed = True


@pytest.fixture
async def world(valkey: str, settings: Any) -> AsyncIterator[World]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    world = World(valkey, settings.LIGHTCONE_DEPLOYMENT)
    yield world
    await world.close()


async def start(
    world: World, make: type[ScriptedEngine] = ScriptedEngine, path: Path = Path("nothing.gguf"), **script: Any
) -> tuple[ModelWorker, ScriptedEngine]:
    made: list[ScriptedEngine] = []

    def make_engine(config: EngineConfig, publish: Any) -> ScriptedEngine:
        made.append(make(config, publish))
        for name, value in script.items():
            setattr(made[0], name, value)
        return made[0]

    def build() -> ModelWorker:
        config = EngineConfig(model_path=path, model_name=MODEL, max_sequences=4)
        worker = ModelWorker(config, "model@here~1", make_engine=make_engine, clock=world.clock)
        worker.load(lambda: None)
        return worker

    return await asyncio.to_thread(build), made[0]


async def test_a_run_goes_through_the_worker_to_its_reader(world: World) -> None:
    worker, engine = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, verdict = await world.admit(web)
    assert verdict.word == "go"
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)
    assert engine.is_closed
    assert await worker_leases(world.client, world.keys) == []
    assert [record["outcome"] for record in await world.records()] == ["finished"]


async def test_the_lease_tells_the_sampling_values_of_the_models_files(world: World, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    worker, _ = await start(world, path=tmp_path)
    [lease] = await worker_leases(world.client, world.keys)
    assert lease.maker_defaults == {"temperature": 0.6, "top_k": 20}
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_model_that_cannot_be_loaded_leaves_the_worker_up_and_says_why(world: World) -> None:
    worker, _ = await start(world, load_error=ModelLoadError("nothing.gguf is truncated"))
    [lease] = await worker_leases(world.client, world.keys)
    assert (lease.state, lease.reason) == ("failed", "nothing.gguf is truncated")
    web = await world.web()
    _, verdict = await world.admit(web)
    assert (verdict.word, verdict.worker_state) == ("unavailable", "failed")
    await asyncio.to_thread(worker.close, 0.0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngineUnavailable(ErrorCode.OVERLOADED, "full"), EngineUnavailable),
        (RequestError(ErrorCode.INVALID_VALUE, "bad"), RequestError),
        (RuntimeError("a defect"), Exception),
    ],
)
async def test_a_submit_that_fails_rejects_the_run(world: World, error: Exception, expected: type[Exception]) -> None:
    worker, _ = await start(world, submit_error=error)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    with pytest.raises(expected) as raised:
        await reader.first()
    assert "defect" not in str(raised.value)
    assert [record["outcome"] for record in await world.records()] == ["rejected"]
    await asyncio.to_thread(worker.close, 0.0)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_claim_whose_answer_is_lost_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch, is_done: bool) -> None:
    worker, _ = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    answer = Asked.answer

    def answer_lost(asked: Asked) -> None:
        if is_done:
            answer(asked)
        raise ConnectionResetError

    monkeypatch.setattr(Asked, "answer", answer_lost)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)


class ReadingEngine(ScriptedEngine):
    """Says all there is to say of a run in the call that submits it, as of a prompt that is only read."""

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        admitted = Admitted(3, 0, 0, (1, 2, 3), context_length=128)
        completed = Completed(Outcome.FINISHED, Usage(), Timings(1.0, ended_at=2.0))
        self.publish([RunEvents(request.run_id, (Event(0, 1, admitted), Event(1, 1, completed)))])


async def test_a_run_that_ends_while_it_is_submitted_is_told_whole_and_counts_nothing(world: World) -> None:
    worker, _ = await start(world, make=ReadingEngine)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    admitted = await reader.first()
    [completed] = [event.payload async for event in reader]
    assert admitted.prompt_ids == (1, 2, 3)
    assert completed.usage == Usage()
    [record] = await world.records()
    assert (record["outcome"], record["status"], record["prompt_tokens"], record["completion_tokens"]) == ("finished", 200, 0, 0)
    assert worker.lease()["num_live"] == 0
    await asyncio.to_thread(worker.close, 1.0)


async def test_a_run_stopped_in_the_queue_never_reaches_the_engine(world: World) -> None:
    worker, engine = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await world.runs.stop(reader.run_id, "stopped")
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert (await read_all(reader))[-1].payload.outcome is Outcome.STOPPED
    assert engine.positions == {}
    [record] = await world.records()
    assert (record["outcome"], record["prompt_tokens"]) == ("stopped", 0)
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_drain_waits_for_runs_that_are_being_claimed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their claims were sent, and their engine was gone when they were answered."""
    worker, _ = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    begun = [await asyncio.to_thread(worker.begin, reader.run_id, 1)]

    def sleep(seconds: float) -> None:
        begun.pop()() if begun else time.sleep(seconds)

    monkeypatch.setattr("chat.worker.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    await asyncio.to_thread(worker.close, 10.0)
    assert not begun
    assert text_of(await read_all(reader)) == "abc"


async def test_a_stop_command_ends_a_run_in_decode(world: World) -> None:
    worker, _ = await start(world, waits=True)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    await reader.first()
    await asyncio.to_thread(worker.stop_run, reader.run_id, "disconnected")
    assert (await reader.next(5.0)).payload.outcome is Outcome.DISCONNECTED
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_second_attempt_gets_what_the_first_logged(world: World) -> None:
    worker, engine = await start(world)
    web, lost = await world.web(sweep_s=0.02), await world.worker("model@lost~1")
    reader, voice = await world.run(web, lost)
    voice.admit()
    voice.token("a")
    await lost.flush()
    await world.client.delete(world.keys.worker(lost.worker_id))
    await world.reaper().turn()
    await asyncio.to_thread(worker.take, reader.run_id, 2)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 0.0)


async def test_the_lease_lapses_when_the_core_is_silent_under_work(world: World) -> None:
    worker, engine = await start(world, waits=True)
    web = await world.web()
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    engine.heartbeat_at = world.clock() - 1
    assert worker.lease() is not None
    engine.heartbeat_at = world.clock() - 10
    assert worker.lease() is None
    engine.abort(reader.run_id, Outcome.STOPPED)
    await asyncio.to_thread(worker.close, 1.0)
