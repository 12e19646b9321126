"""The worker host over a real Valkey, with scripted engines: what is loaded, what leaves, what is refused."""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from chat.catalog.services import ModelOffer
from chat.relay.state.keys import model_slug
from chat.relay.state.workers import WorkerLease, lease_read
from chat.relay.valkey import valkey_connect_blocking
from chat.workers.host import MAX_CORES_LOST, SETTLE_S, WorkerHost
from chat.workers.hosted import LOOK_S, PATIENCE_S, RETRY_S
from chat.workers.model import ModelWorker
from chat.workers.offers import Offer, offers_of
from engine.api import MemoryNeed, Outcome
from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.supervisor import CoreLost
from tests.chat.relay.world import Clock, World
from tests.chat.workers.test_model import ScriptedEngine

DEADLINE_S = 120.0
"""For what takes milliseconds: its end is a failure on the busiest machine."""


class HeldEngine(ScriptedEngine):
    waits = True


@dataclass
class FakeConsumer:
    """Notes which models' tasks are fetched."""

    slugs: set[str] = field(default_factory=set)

    def start(self, slug: str) -> None:
        self.slugs.add(slug)

    def stop(self, slug: str) -> None:
        self.slugs.discard(slug)

    def has_fetched(self, slug: str) -> bool:
        return False


@dataclass
class Floor:
    """A host, its offers and its engines. Each model needs 40 of a budget of 100, unless `sizes` says otherwise."""

    world: World
    tmp_path: Path
    offers: list[Offer] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    errors: dict[str, list[Exception | None]] = field(default_factory=dict)
    engines: dict[str, list[HeldEngine]] = field(default_factory=dict)
    consumer: FakeConsumer = field(default_factory=FakeConsumer)
    clock: Clock = field(default_factory=lambda: Clock(1000.0))
    budget: int = 100
    workers: list[ModelWorker] = field(default_factory=list)

    def offer(self, name: str, **changes: Any) -> Offer:
        path = self.tmp_path / name
        path.touch()
        return Offer(EngineConfig(model_path=path, model_name=name, max_num_seqs=4), **changes)

    def open(self, *names: str, **changes: Any) -> WorkerHost:
        self.offers = [self.offer(name, **changes) for name in names]
        self.client = valkey_connect_blocking(self.world.url)
        self.host = WorkerHost(
            "model@here",
            first=self.offers[0],
            read_offers=lambda: self.offers,
            need_of=self.need_of,
            consumer=self.consumer,
            client=self.client,
            keys=self.world.keys,
            budget=self.budget,
            make_worker=self.make_worker,
            clock=self.clock,
        )
        return self.host

    def need_of(self, config: EngineConfig) -> MemoryNeed:
        size = self.sizes.get(config.model_name, 40)
        return MemoryNeed(size, 0, 0, 0, 0, 0, 2048, 2048)

    def make_worker(self, config: EngineConfig, worker_id: str, **given: Any) -> ModelWorker:
        def make_engine(config: EngineConfig, publish: Any, **callbacks: Any) -> HeldEngine:
            engine = HeldEngine(config, publish)
            engine.on_failed = callbacks["on_failed"]
            errors = self.errors.get(config.model_name, [])
            engine.load_error = errors.pop(0) if errors else None
            self.engines.setdefault(config.model_name, []).append(engine)
            return engine

        worker = ModelWorker(config, worker_id, make_engine=make_engine, **given)
        self.workers.append(worker)
        return worker

    def turn_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_true():
            assert time.monotonic() < deadline, self.states()
            self.host.refresh()
            self.host.turn()
            threading.Event().wait(0.001)

    def states(self) -> dict[str, str]:
        return {name: lease.state for name, lease in self.leases().items()}

    def leases(self) -> dict[str, WorkerLease]:
        """Return the lease of each model, of the worker that is ready if there are two."""
        order = ("ready", "loading", "unloaded", "draining", "failed")
        keys = self.world.keys
        ids = [raw.decode() for raw in self.client.smembers(keys.workers)]
        known = [(one, raw) for one in ids if (raw := self.client.hgetall(keys.worker(one)))]
        found = [lease_read(one, raw) for one, raw in known]
        return {lease.model: lease for lease in sorted(found, key=lambda lease: order.index(lease.state), reverse=True)}

    def ask(self, name: str) -> None:
        self.client.lpush(self.world.keys.demand(model_slug(name)), "1")

    def load(self, *names: str) -> None:
        """Load the models, and let them come to rest."""
        for name in names:
            self.ask(name) if name != self.offers[0].name else None
            self.turn_until(lambda name=name: self.states().get(name) == "ready")
            self.settle()

    def settle(self) -> None:
        """Let as much time pass as lets a model that has just loaded leave again."""
        self.pass_time(SETTLE_S + 1)

    def pass_time(self, seconds: float) -> None:
        """Let the host note what its leases already say, and then let time pass.

        A lease is ready or failed before the host has noted since when: the note ends the thread of the load.
        """
        for thread in threading.enumerate():
            if thread.name.startswith("host "):
                thread.join(DEADLINE_S)
        self.clock.now += seconds

    def begin_run(self, name: str) -> str:
        """Admit a run of a loaded model and have its worker take it; the engine holds it."""

        async def admit() -> str:
            world = World(self.world.url, self.world.keys.deployment)
            try:
                admission = world.admission()
                admission = replace(admission, request=replace(admission.request, model=name))
                result = await world.runs.admit(admission, web_id="web", channel="web.1")
                assert result.decision == "go", result
                return admission.request.run_id
            finally:
                await world.close()

        run_id = asyncio.run(admit())
        self.client.delete(self.world.keys.tasks(model_slug(name)))
        self.host.take(model_slug(name), run_id, 1)
        return run_id

    def end_run(self, name: str, run_id: str) -> None:
        self.engines[name][-1].end(run_id, Outcome.FINISHED)

    def used(self) -> int:
        states = self.states()
        return sum(self.sizes.get(name, 40) for name, state in states.items() if state == "ready")


@pytest.fixture
def floor(valkey: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Floor]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    monkeypatch.setattr("chat.workers.host.LEASES_S", 0.0)
    monkeypatch.setattr("chat.workers.host.task_send", lambda *task: None)
    monkeypatch.setattr("chat.workers.host.SEND_BACK_S", 0.0)
    monkeypatch.setattr("chat.workers.memory.process_memory", lambda pid: 0)
    floor = Floor(World(valkey, settings.LIGHTCONE_DEPLOYMENT), tmp_path)
    yield floor
    floor.host.announce_drain()
    floor.host.close(0.0)
    floor.client.close()


def test_the_first_model_is_loaded_at_once_and_others_when_they_are_asked_for(floor: Floor) -> None:
    floor.open("a", "b", "c")
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "unloaded", "c": "unloaded"})
    assert floor.consumer.slugs == {"a"}
    floor.ask("b")
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "ready", "c": "unloaded"})
    assert floor.consumer.slugs == {"a", "b"}
    assert floor.leases()["c"].max_num_seqs == 4


def test_the_least_recently_used_model_makes_room_and_can_come_back(floor: Floor) -> None:
    floor.open("a", "b", "c")
    floor.load("a", "b", "c")
    assert floor.states() == {"a": "unloaded", "b": "ready", "c": "ready"}
    assert floor.engines["a"][0].is_closed
    floor.ask("a")
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "unloaded", "c": "ready"})


def test_a_busy_model_stays_until_patience_ends_and_then_leaves_after_its_last_run(floor: Floor) -> None:
    floor.open("a", "b", "c")
    floor.load("a", "b")
    runs = {name: floor.begin_run(name) for name in ("a", "b")}
    floor.ask("c")
    for _ in range(20):
        floor.host.turn()
    lease = floor.leases()["c"]
    assert (lease.state, "waits for memory" in lease.reason) == ("unloaded", True)
    assert floor.states().get("a") == floor.states().get("b") == "ready"
    floor.pass_time(PATIENCE_S + 1)
    floor.turn_until(lambda: floor.states().get("a") == "unloaded")
    assert floor.consumer.slugs == {"b"}, "it takes no new runs"
    assert not floor.engines["a"][0].is_closed, "its run goes on"
    floor.end_run("a", runs["a"])
    floor.turn_until(lambda: floor.states() == {"a": "unloaded", "b": "ready", "c": "ready"})
    floor.end_run("b", runs["b"])


def test_a_pinned_model_is_loaded_without_a_request_and_never_leaves(floor: Floor) -> None:
    floor.open("a", "b", "c")
    floor.offers[1] = replace(floor.offers[1], is_pinned=True)
    floor.turn_until(lambda: floor.states().get("b") == "ready")
    floor.settle()
    for name in ("c", "a", "c"):
        floor.ask(name)
        floor.turn_until(lambda name=name: floor.states().get(name) == "ready")
        assert floor.states().get("b") == "ready"
        floor.settle()


def test_an_idle_model_leaves_after_its_time_and_a_used_one_does_not(floor: Floor) -> None:
    floor.open("a", "b", idle_s=60.0)
    floor.load("a", "b")
    run_id = floor.begin_run("b")
    floor.host.turn()
    floor.pass_time(61)
    floor.turn_until(lambda: floor.states() == {"a": "unloaded", "b": "ready"})
    floor.end_run("b", run_id)

    def has_left() -> bool:
        floor.clock.now += 10  # the end of the run may come a turn later
        return floor.states() == {"a": "unloaded", "b": "unloaded"}

    floor.turn_until(has_left)


def test_a_model_that_can_never_fit_is_refused_before_it_is_read(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(need: MemoryNeed, budget: int) -> str:
        return f"{need.total_bytes} of {budget}" if need.total_bytes > budget else ""

    monkeypatch.setattr(MemoryNeed, "refusal", refusal)
    floor.sizes["b"] = 120
    floor.sizes["c"] = 80
    floor.open("a", "b", "c")
    floor.offers[0] = replace(floor.offers[0], is_pinned=True)
    floor.load("a")
    floor.ask("b")
    floor.turn_until(lambda: floor.states().get("b") == "failed")
    assert floor.leases()["b"].reason.startswith("120 of 60")
    floor.ask("c")
    floor.turn_until(lambda: floor.states().get("c") == "failed")
    assert "Pinned models keep" in floor.leases()["c"].reason
    assert set(floor.engines) == {"a"}


def test_a_model_that_fails_is_tried_again_after_a_pause_and_once_its_file_has_changed(floor: Floor) -> None:
    floor.errors["b"] = [ModelLoadError("it is torn"), ModelLoadError("it is torn"), None]
    floor.open("a", "b")
    floor.load("a")
    floor.ask("b")
    floor.turn_until(lambda: floor.states().get("b") == "failed")
    assert floor.leases()["b"].reason == "it is torn"
    floor.pass_time(RETRY_S - 1)
    floor.host.turn()
    assert floor.states().get("b") == "failed"
    floor.pass_time(2)
    floor.turn_until(lambda: floor.states().get("b") == "unloaded")
    floor.ask("b")
    floor.turn_until(lambda: floor.states().get("b") == "failed")
    (floor.tmp_path / "b").write_text("whole")
    floor.pass_time(3)
    floor.host.refresh()
    floor.pass_time(3)
    floor.turn_until(lambda: floor.states().get("b") == "unloaded")
    floor.ask("b")
    floor.turn_until(lambda: floor.states().get("b") == "ready")


def test_the_first_model_is_tried_again_without_a_request(floor: Floor) -> None:
    floor.errors["a"] = [ModelLoadError("it is torn")]
    floor.open("a")
    floor.turn_until(lambda: floor.states() == {"a": "failed"})
    floor.pass_time(RETRY_S + 1)
    floor.turn_until(lambda: floor.states() == {"a": "ready"})


@pytest.mark.parametrize("num_lost", [1, MAX_CORES_LOST])
def test_a_core_that_dies_while_it_loads_is_replaced_but_not_for_ever(floor: Floor, num_lost: int) -> None:
    floor.errors["a"] = [CoreLost("the core died") for _ in range(num_lost)]
    floor.open("a")
    is_served = num_lost < MAX_CORES_LOST
    floor.turn_until(lambda: floor.states() == {"a": "ready" if is_served else "failed"})
    assert len(floor.engines["a"]) == (num_lost + 1 if is_served else MAX_CORES_LOST)


def test_a_model_whose_cores_die_too_often_is_loaded_anew_and_others_go_on(floor: Floor) -> None:
    floor.open("a", "b")
    floor.load("a", "b")
    other = floor.begin_run("b")
    floor.begin_run("a")
    threading.Thread(target=floor.engines["a"][0].fail).start()
    floor.turn_until(lambda: len(floor.engines["a"]) == 2 and floor.states() == {"a": "ready", "b": "ready"})
    assert len(floor.engines["b"]) == 1
    floor.end_run("b", other)


def test_a_model_that_is_no_longer_offered_leaves_after_its_run(floor: Floor) -> None:
    floor.open("a", "b")
    floor.load("a", "b")
    run_id = floor.begin_run("b")
    removed = floor.offers.pop()
    floor.client.incr(floor.world.keys.configuration_epoch)
    floor.turn_until(lambda: "b" not in floor.consumer.slugs)
    assert not floor.engines["b"][0].is_closed
    floor.end_run("b", run_id)
    floor.turn_until(lambda: floor.states() == {"a": "ready"})
    floor.offers.append(removed)
    floor.client.incr(floor.world.keys.configuration_epoch)
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "unloaded"})


def test_a_loaded_model_with_another_context_is_loaded_again(floor: Floor) -> None:
    floor.open("a")
    floor.load("a")
    floor.offers[0] = Offer(replace(floor.offers[0].config, max_model_len=512))
    floor.client.incr(floor.world.keys.configuration_epoch)
    floor.turn_until(lambda: len(floor.engines["a"]) == 2 and floor.states() == {"a": "ready"})


def test_adapters_come_and_go_while_their_model_serves(floor: Floor) -> None:
    here = str(floor.tmp_path)
    floor.open("a", adapters=(("one", here), ("torn", "/nowhere")))
    floor.load("a")
    assert set(floor.engines["a"][0].added) == {"one"}
    floor.offers[0] = replace(floor.offers[0], adapters=(("two", here),))
    floor.client.incr(floor.world.keys.configuration_epoch)
    floor.turn_until(lambda: set(floor.engines["a"][0].added) == {"two"})
    assert len(floor.engines["a"]) == 1, "the model stays loaded"


def test_a_model_is_unloaded_on_command_and_comes_back_on_demand(floor: Floor) -> None:
    floor.open("a")
    floor.load("a")
    floor.host.unload("a")
    floor.host.unload("unknown")
    floor.turn_until(lambda: floor.states() == {"a": "unloaded"})
    floor.ask("a")
    floor.turn_until(lambda: floor.states() == {"a": "ready"})


def test_a_model_that_is_unloaded_while_it_loads_does_not_stay(floor: Floor) -> None:
    @dataclass
    class UnloadingConsumer(FakeConsumer):
        """Has the model unloaded in the last step of its load."""

        was_asked: bool = False

        def start(self, slug: str) -> None:
            super().start(slug)
            floor.host.unload("a")
            self.was_asked = True

    floor.consumer = consumer = UnloadingConsumer()
    floor.open("a")
    floor.turn_until(lambda: consumer.was_asked and floor.states() == {"a": "unloaded"} and not consumer.slugs)
    for _ in range(20):
        floor.host.turn()
    assert floor.states() == {"a": "unloaded"}


def test_a_demand_for_a_model_that_is_loaded_does_not_load_it_once_more(floor: Floor) -> None:
    floor.open("a", "b")
    floor.load("a")
    floor.ask("b")
    floor.ask("b")
    floor.turn_until(lambda: floor.states().get("b") == "ready")
    floor.ask("b")
    floor.host.turn()
    floor.settle()
    floor.host.unload("b")
    floor.turn_until(lambda: floor.states().get("b") == "unloaded")
    for _ in range(20):
        floor.host.turn()
    assert floor.states() == {"a": "ready", "b": "unloaded"}
    assert len(floor.engines["b"]) == 1


def test_a_task_of_a_model_that_is_not_loaded_goes_back_and_has_it_loaded(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, int, str]] = []
    monkeypatch.setattr("chat.workers.host.task_send", lambda *task: sent.append(task))
    floor.open("a", "b")
    floor.load("a")
    floor.host.take("b", "run", 2)
    assert sent == [("run", 2, "b")]
    floor.turn_until(lambda: floor.states().get("b") == "ready")


def test_a_host_that_stops_has_no_leases_of_its_own_and_drains_the_rest(floor: Floor) -> None:
    floor.open("a", "b")
    floor.load("a")
    assert floor.client.zcard(floor.world.keys.hosts) == 1
    floor.host.announce_drain()
    assert floor.states() == {"a": "draining"}
    assert floor.client.zcard(floor.world.keys.hosts) == 0, "it would count as lost"


@pytest.mark.parametrize("seed", range(3))
def test_every_demand_is_met_within_the_budget_and_no_run_is_cut_off(floor: Floor, seed: int) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "c", "d"]
    floor.sizes = {name: chance.choice([20, 30, 40, 60]) for name in names}
    floor.open(*names)
    floor.load("a")
    runs: list[tuple[str, str]] = []
    for _ in range(12):
        name = chance.choice(names)
        if floor.states().get(name) == "unloaded":
            floor.ask(name)
            if chance.random() < 0.5:
                floor.clock.now += PATIENCE_S + 1

        def is_ready(name: str = name) -> bool:
            assert floor.used() <= floor.budget
            floor.clock.now += 0.1
            if floor.clock.now % 3 < 0.1 and runs:
                floor.end_run(*runs.pop(0))
            return floor.states().get(name) == "ready"

        floor.turn_until(is_ready)
        if chance.random() < 0.7:
            runs.append((name, floor.begin_run(name)))
    for run in runs:
        floor.end_run(*run)
    outcomes = [record["outcome"] for record in asyncio.run(records(floor))]
    assert set(outcomes) <= {"finished"}


async def records(floor: Floor) -> list[dict[str, Any]]:
    world = World(floor.world.url, floor.world.keys.deployment)
    try:
        return await world.records()
    finally:
        await world.close()


def test_offers_are_the_rows_whose_files_are_here(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    first = EngineConfig(model_path=tmp_path / "first", model_name="first", kv_spill_bytes=5, max_model_len=100)
    rows = [
        ModelOffer("first", "/of/the/row", True, 7, 0),
        ModelOffer("here", str(tmp_path / "here"), False, None, 50),
        ModelOffer("elsewhere", str(tmp_path / "elsewhere"), False, None, 0),
    ]
    one, two = offers_of(rows, first, hosted=[], idle_s=60)
    assert (one.config, one.is_pinned, one.idle_s) == (first, True, 7)
    assert (two.name, two.config.max_model_len, two.config.kv_spill_bytes, two.idle_s) == ("here", 50, 0, 60)
    assert [offer.name for offer in offers_of(rows, first, hosted=["first"], idle_s=0)] == ["first"]
    assert [offer.name for offer in offers_of([], first, hosted=[], idle_s=0)] == ["first"]


def test_a_drained_host_takes_nothing_until_it_is_resumed(floor: Floor) -> None:
    host = floor.open("a", "b")
    floor.load("a")
    run_id = floor.begin_run("a")
    host.drain(True)
    floor.turn_until(lambda: floor.states() == {"a": "draining", "b": "draining"} and not floor.consumer.slugs)
    floor.ask("b")
    host.turn()
    assert floor.states()["b"] == "draining"
    floor.end_run("a", run_id)
    host.drain(False)
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "ready"})
    assert floor.consumer.slugs == {model_slug("a"), model_slug("b")}


def test_a_restarted_model_ends_its_requests_and_is_loaded_anew(floor: Floor) -> None:
    host = floor.open("a")
    floor.load("a")
    run_id = floor.begin_run("a")
    host.reload("a")
    host.reload("nothing")
    floor.turn_until(lambda: floor.states() == {"a": "unloaded"})
    assert len(floor.engines["a"]) == 1
    floor.end_run("a", run_id)
    floor.turn_until(lambda: floor.states() == {"a": "ready"})
    assert len(floor.engines["a"]) == 2


def test_a_model_whose_files_have_changed_says_so(floor: Floor) -> None:
    floor.open("a")
    floor.load("a")
    floor.pass_time(LOOK_S)
    floor.turn_until(lambda: floor.leases()["a"].outdated == "")
    (floor.tmp_path / "a").write_bytes(b"new")
    floor.pass_time(LOOK_S)
    floor.host.refresh()
    assert [worker.lease()["outdated"] for worker in floor.workers] == ["files"]


def test_what_a_waiting_model_needs_is_read_again_once_its_files_have_changed(floor: Floor) -> None:
    floor.sizes["b"] = 80
    floor.open("a", "b")
    floor.load("a")
    run_id = floor.begin_run("a")
    floor.ask("b")
    floor.turn_until(lambda: "waits for memory" in floor.leases()["b"].reason)
    floor.sizes["b"] = 40
    (floor.tmp_path / "b").write_text("smaller")
    floor.pass_time(LOOK_S)
    floor.turn_until(lambda: floor.states() == {"a": "ready", "b": "ready"})
    floor.end_run("a", run_id)


def test_a_disk_that_hangs_holds_up_no_turn_and_no_command(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    floor.open("a")
    floor.load("a")
    is_asked, goes_on = threading.Event(), threading.Event()

    def hang(path: Path) -> tuple[()]:
        is_asked.set()
        goes_on.wait(DEADLINE_S)
        return ()

    monkeypatch.setattr("chat.workers.host.file_states", hang)
    floor.pass_time(LOOK_S)
    look = threading.Thread(target=floor.host.refresh)
    look.start()
    assert is_asked.wait(DEADLINE_S)
    floor.host.turn()
    floor.host.unload("a")
    floor.host.turn()
    assert look.is_alive(), "the disk still hangs"
    goes_on.set()
    look.join()
