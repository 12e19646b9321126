"""The model worker with a scripted engine: lease, claims, refusals, failed loads, drain."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chat.catalog.fingerprint import file_states
from chat.catalog.model_choice import model_choice
from chat.relay.state.runs import Runs
from chat.relay.state.workers import worker_leases
from chat.relay.worker.loop_thread import LoopThread
from chat.relay.worker.publisher import Publisher
from chat.workers.model import ModelWorker
from engine.api import AdapterInfo, Admitted, Completed, Delta, Event, GenerationRequest, Outcome, Timings, Usage
from engine.api.errors import EngineUnavailable, ErrorCode, ModelLoadError, RequestError
from engine.config import EngineConfig
from engine.engine import EngineStats, Resume, RunEvents
from tests.chat.relay.world import MODEL, World, read_all, text_of


class ScriptedEngine:
    """An engine that answers each run with the letters of `answer`, refuses it, or waits for an abort."""

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
        self.core_pid: int | None = None
        self.added: dict[str, Path] = {}
        self.on_restarted: Callable[[], None] = lambda: None
        self.on_failed: Callable[[], None] = lambda: None

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
        if run_id in self.positions:
            self.end(run_id, outcome)

    def add_adapter(self, name: str, path: Path) -> None:
        if not path.exists():
            raise ModelLoadError(f"{path} is no adapter")
        self.added[name] = path

    def adapters(self) -> tuple[AdapterInfo, ...]:
        return tuple(AdapterInfo(name, str(path), 4, (), 0) for name, path in self.added.items())

    def remove_adapter(self, name: str) -> None:
        del self.added[name]

    def stats(self) -> EngineStats:
        return EngineStats(self.state, 0, 0, 128, None)

    def close(self, drain_s: float = 0.0) -> None:
        self.is_closed = True

    def fail(self) -> None:
        """Its cores have died too often."""
        self.state = "failed"
        self.on_failed()


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

    def make_engine(
        config: EngineConfig,
        publish: Any,
        on_restarted: Callable[[], None],
        on_failed: Callable[[], None],
        started_core: None = None,
    ) -> ScriptedEngine:
        made.append(make(config, publish))
        made[0].on_restarted, made[0].on_failed = on_restarted, on_failed
        for name, value in script.items():
            setattr(made[0], name, value)
        return made[0]

    def build() -> ModelWorker:
        config = EngineConfig(model_path=path, model_name=MODEL, max_num_seqs=4)
        worker = ModelWorker(
            config,
            "model@here~1",
            loop=LoopThread("publisher"),
            on_lost=world.on_lost,
            make_engine=make_engine,
            clock=world.clock,
        )
        worker.load(lambda: None)
        return worker

    return await asyncio.to_thread(build), made[0]


def sent_tasks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """Return the list of the tasks that the worker sends from now on."""
    sent: list[tuple[str, int, str]] = []
    monkeypatch.setattr("chat.workers.model.task_send", lambda *task: sent.append(task))
    return sent


async def test_a_run_goes_through_the_worker_to_its_reader(world: World) -> None:
    worker, engine = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, verdict = await world.admit(web)
    assert verdict.decision == "go"
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)
    assert engine.is_closed
    assert await worker_leases(world.client, world.keys) == []
    assert [record["outcome"] for record in await world.records()] == ["finished"]


async def test_the_lease_carries_the_sampling_defaults_of_the_models_files(world: World, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6, "top_k": 20}')
    worker, _ = await start(world, path=tmp_path)
    [lease] = await worker_leases(world.client, world.keys)
    assert lease.maker_defaults == {"temperature": 0.6, "top_k": 20}
    await asyncio.to_thread(worker.close, 0.0)


async def test_the_first_lease_of_a_ready_model_has_its_context(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.workers.model.WATCH_S", 3600.0)
    await start(world)
    [lease] = await worker_leases(world.client, world.keys)
    assert (lease.state, lease.max_model_len) == ("ready", 128)


async def test_a_model_whose_defaults_cannot_be_read_fails_to_load(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error was raised where failures are not recorded, and the model stayed `loading` for ever."""

    def refuse(path: Path) -> dict[str, float]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("chat.workers.model.maker_defaults", refuse)
    worker, _ = await start(world)
    assert worker.state == "failed"
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_failed_load_leaves_the_worker_up_with_the_reason_in_its_lease(world: World) -> None:
    worker, _ = await start(world, load_error=ModelLoadError("nothing.gguf is truncated"))
    [lease] = await worker_leases(world.client, world.keys)
    assert (lease.state, lease.reason) == ("failed", "nothing.gguf is truncated")
    web = await world.web()
    _, verdict = await world.admit(web)
    assert (verdict.decision, verdict.worker_state) == ("unavailable", "failed")
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
async def test_a_claim_is_repeated_if_its_reply_is_lost(
    world: World, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    worker, _ = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    claim, losses = Runs.claim, [True]

    async def claim_badly(*arguments: Any) -> Any:
        if losses:
            losses.pop()
            if is_done:
                await claim(*arguments)
            raise ConnectionResetError
        return await claim(*arguments)

    monkeypatch.setattr(Runs, "claim", claim_badly)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)


class ReadingEngine(ScriptedEngine):
    """An engine that publishes a whole run inside `submit`, as for a prompt that is only tokenized."""

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        admitted = Admitted(3, 0, 0, (1, 2, 3), context_length=128)
        completed = Completed(Outcome.FINISHED, Usage(), Timings(1.0, ended_at=2.0))
        self.publish([RunEvents(request.run_id, (Event(0, 1, admitted), Event(1, 1, completed)))])


async def test_a_run_that_ends_during_submit_reaches_its_reader_whole(world: World) -> None:
    worker, _ = await start(world, make=ReadingEngine)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    admitted = await reader.first()
    [completed] = [event.payload async for event in reader]
    assert admitted.prompt_ids == (1, 2, 3)
    assert completed.usage == Usage()
    [record] = await world.records()
    assert (record["outcome"], record["status"], record["prompt_tokens"], record["completion_tokens"]) == (
        "finished",
        200,
        0,
        0,
    )
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


async def test_a_drain_waits_for_pending_claims(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine was closed before the reply to a claim arrived."""
    worker, _ = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    claim, is_sent, may_answer = Runs.claim, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def claim_late(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(is_sent.set)
        await asyncio.to_thread(may_answer.wait, 10)
        return await claim(*arguments)

    def sleep(seconds: float) -> None:
        may_answer.set()
        time.sleep(seconds)

    monkeypatch.setattr(Runs, "claim", claim_late)
    monkeypatch.setattr("chat.workers.model.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    taking = asyncio.create_task(asyncio.to_thread(worker.take, reader.run_id, 1))
    await is_sent.wait()
    await asyncio.to_thread(worker.close, 10.0)
    assert may_answer.is_set()
    await taking
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


async def test_a_second_attempt_resumes_from_the_log_of_the_first(world: World) -> None:
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


async def test_repeated_core_deaths_hand_the_runs_over_and_stop_the_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a worker stayed up as `failed`, was always the first with a free thread, and rejected each task with 503."""
    published: list[str] = []
    world.on_lost = lambda: published.append("leave")
    sent = sent_tasks(monkeypatch)
    worker, engine = await start(world, waits=True)
    web = await world.web(sweep_s=0.02)
    live, queued = (await world.admit(web))[0], (await world.admit(web))[0]
    await asyncio.to_thread(worker.take, live.run_id, 1)
    await live.first()
    await asyncio.to_thread(engine.fail)
    assert published == ["leave"]
    assert (worker.lease(), await worker_leases(world.client, world.keys)) == (None, [])
    assert sent == [(live.run_id, 2, MODEL)]
    await asyncio.to_thread(worker.take, queued.run_id, 1)
    assert sent[1:] == [(queued.run_id, 1, MODEL)], "a task that was fetched already goes back"
    await asyncio.to_thread(worker.close, 10.0)

    heir = await world.worker("model@there~2")
    for run_id, attempt, _ in sent:
        voice = await world.claim(heir, run_id, attempt)
        if attempt == 1:
            voice.admit()
        voice.token("x")
        voice.end()
    await heir.flush()
    assert text_of(await read_all(queued)) == "x"
    assert text_of([event async for event in live]) == "x"
    assert {record["outcome"] for record in await world.records()} == {"finished"}


async def test_a_run_claimed_before_the_engine_failed_goes_to_another_worker(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a run was rejected as `overloaded`."""
    sent = sent_tasks(monkeypatch)
    worker, engine = await start(
        world, submit_error=EngineUnavailable(ErrorCode.OVERLOADED, "the engine takes no more requests")
    )
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    engine.state = "failed"
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    await asyncio.to_thread(engine.on_failed)
    assert sent == [(reader.run_id, 2, MODEL)]
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_restarted_core_makes_its_worker_ready_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests were refused as `model_loading` until the next beat, for up to a second."""
    monkeypatch.setattr(Publisher, "start", partialmethod(Publisher.start, beat_s=3600.0))
    worker, engine = await start(world)

    async def await_state(state: str) -> None:
        while [lease.state for lease in await worker_leases(world.client, world.keys)] != [state]:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)

    engine.state = "restarting"
    engine.on_restarted()  # a beat that sees the core away
    await await_state("loading")
    engine.state = "ready"
    engine.on_restarted()
    await await_state("ready")
    await asyncio.to_thread(worker.close, 0.0)


async def test_a_suspended_worker_takes_the_next_attempt_of_its_own_run(world: World) -> None:
    """Its lease had lapsed, so the claim failed, and clients waited half a minute for the next task."""
    worker, engine = await start(world, waits=True)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    await reader.first()
    await world.client.delete(world.keys.worker(worker.worker_id))
    await world.reaper().turn()
    assert world.queued == [(reader.run_id, 2, MODEL)]
    engine.waits = False
    await asyncio.to_thread(worker.take, reader.run_id, 2)
    assert text_of([event async for event in reader]) == "abc"
    await asyncio.to_thread(worker.close, 1.0)


class PausingEngine(ScriptedEngine):
    """An engine that calls `go` in the first `submit`, before it knows the run; that run lasts until it is aborted."""

    go: Callable[[], None] | None = None

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        go, self.go = self.go, None
        self.waits = go is not None
        if go is not None:
            go()
        super().submit(request, resume)


async def test_a_run_that_is_taken_over_during_submit_is_aborted(world: World) -> None:
    """The abort came before the engine knew the run, so the engine finished it while the next attempt waited."""
    worker, engine = await start(world, make=PausingEngine)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    loop = asyncio.get_running_loop()
    second: list[asyncio.Task[None]] = []

    async def stand_still() -> None:
        await world.client.delete(world.keys.worker(worker.worker_id))
        await world.reaper().turn()
        second.append(loop.create_task(asyncio.to_thread(worker.take, reader.run_id, 2)))
        async with asyncio.timeout(5):
            while worker.lease()["num_live"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    engine.go = lambda: asyncio.run_coroutine_threadsafe(stand_still(), loop).result()
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    async with asyncio.timeout(4):
        await second[0]
        assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)


async def test_a_suspended_worker_takes_a_first_attempt(world: World) -> None:
    worker, _ = await start(world)
    web = await world.web(sweep_s=0.02)
    reader, _ = await world.admit(web)
    await world.client.delete(world.keys.worker(worker.worker_id))
    await asyncio.to_thread(worker.take, reader.run_id, 1)
    assert text_of(await read_all(reader)) == "abc"
    await asyncio.to_thread(worker.close, 1.0)


async def test_a_worker_without_heartbeat_sends_the_task_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = sent_tasks(monkeypatch)
    monkeypatch.setattr("chat.workers.model.SEND_BACK_S", 0.0)
    worker, engine = await start(world, waits=True)
    web = await world.web(sweep_s=0.02)
    live, queued = (await world.admit(web))[0], (await world.admit(web))[0]
    await asyncio.to_thread(worker.take, live.run_id, 1)
    engine.heartbeat_at = world.clock() - 10
    await world.client.delete(world.keys.worker(worker.worker_id))
    await asyncio.to_thread(worker.take, queued.run_id, 1)
    assert sent == [(queued.run_id, 1, MODEL)]
    engine.abort(live.run_id, Outcome.STOPPED)
    await asyncio.to_thread(worker.close, 1.0)


async def test_a_model_in_a_closed_folder_fails_to_load(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loading thread died of the error, and the model stayed `loading` for ever."""

    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    worker, _ = await start(world)
    monkeypatch.setattr(Path, "is_dir", refuse)
    assert file_states(Path("closed/model.gguf")) == ()
    assert model_choice(path="closed/model.gguf", name="").name == "model"
    assert not await asyncio.to_thread(worker.load, lambda: None)
    assert worker.state == "failed"
    await asyncio.to_thread(worker.close, 0.0)
