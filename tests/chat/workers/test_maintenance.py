"""The loops of the maintenance worker. Each record is stored once, even if a writer dies after its commit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import DatabaseError

from chat.catalog.services import model_register, model_resolve_async
from chat.models import RequestLog, ServedModel, UsageSum
from chat.relay.state.records import pack_record
from chat.relay.state.usage_stream import UsageStream
from chat.relay.state.workers import WorkerLease, model_conditions
from chat.workers import maintenance
from chat.workers.maintenance import ModelStates, usage_write_once
from tests.chat.records import record
from tests.chat.relay.world import MODEL, World

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def world(valkey: str, settings: Any) -> AsyncIterator[World]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    world = World(valkey, settings.LIGHTCONE_DEPLOYMENT)
    yield world
    await world.close()


async def end_runs(world: World, num_runs: int) -> None:
    """Add the terminal records of ended runs to the usage stream."""
    for _ in range(num_runs):
        await world.client.xadd(world.keys.usage, {"r": pack_record(record())})


async def write(world: World, stream: UsageStream | None = None) -> int:
    return await usage_write_once(stream or UsageStream(world.client, world.keys), gather_s=0.0)


@database_sync_to_async
def counted() -> tuple[int, int]:
    """Return the number of request rows, and of requests in the sums of hours."""
    return RequestLog.objects.count(), sum(UsageSum.objects.filter(length_h=1).values_list("num_requests", flat=True))


async def writer_dies(world: World) -> None:
    """Let the lock of a dead writer expire."""
    await world.client.delete(world.keys.usage_writer)


async def test_records_are_stored_and_leave_the_stream(world: World) -> None:
    await end_runs(world, 3)
    assert await write(world) == 3
    assert await counted() == (3, 3)
    assert await world.client.xlen(world.keys.usage) == 0


async def test_a_writer_that_dies_between_commit_and_acknowledgement_counts_nothing_twice(world: World) -> None:
    await end_runs(world, 3)
    dying = UsageStream(world.client, world.keys)

    async def die(entry_ids: list[bytes]) -> None:
        raise ConnectionError("killed")

    dying.done = die  # type: ignore[method-assign]  # this writer does not get further
    with pytest.raises(ConnectionError):
        await write(world, dying)
    assert await counted() == (3, 3)
    await writer_dies(world)
    await end_runs(world, 1)
    heir = UsageStream(world.client, world.keys)
    assert [await write(world, heir), await write(world, heir)] == [3, 1]
    assert await counted() == (4, 4)
    assert await world.client.xlen(world.keys.usage) == 0


async def test_records_that_a_dead_writer_had_read_are_claimed_by_the_next(world: World) -> None:
    await end_runs(world, 2)
    dead = UsageStream(world.client, world.keys)
    assert await dead.lock()
    assert len(await dead.read(block_ms=None)) == 2
    await writer_dies(world)
    assert await write(world) == 2
    assert await counted() == (2, 2)


async def test_records_that_the_database_refuses_stay_for_the_next_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_runs(world, 2)
    stream = UsageStream(world.client, world.keys)

    async def refuse(records: list[dict[str, Any]]) -> int:
        raise DatabaseError("database is locked")

    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "write_records", refuse)
        with pytest.raises(DatabaseError):
            await write(world, stream)
    assert await counted() == (0, 0)
    assert await write(world, stream) == 2
    assert await counted() == (2, 2)


async def test_only_one_writer_works_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TURN_S", 0.0)
    await end_runs(world, 2)
    assert await UsageStream(world.client, world.keys).lock()
    assert await write(world) == 0
    assert await counted() == (0, 0)


async def test_an_unreadable_record_does_not_hold_up_the_others(world: World) -> None:
    await world.client.xadd(world.keys.usage, {"r": b"\xc1"})
    await end_runs(world, 1)
    assert await write(world) == 2
    assert await counted() == (1, 1)
    assert await world.client.xlen(world.keys.usage) == 0


async def test_a_loop_continues_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "TURN_S", 0.0)
    failures: list[Callable[[], Exception]] = [
        lambda: ConnectionError("away"),
        lambda: DatabaseError("locked"),
        lambda: KeyError("bug"),
    ]
    went_on = asyncio.Event()

    async def turn() -> None:
        if failures:
            raise failures.pop()()
        went_on.set()

    loop = asyncio.create_task(maintenance._forever(turn, 3600.0, "test"))
    async with asyncio.timeout(5):
        await went_on.wait()
    loop.cancel()


def lease(worker_id: str, state: str, **fields: Any) -> WorkerLease:
    values = {
        "phase": "",
        "fraction": 1.0,
        "reason": "",
        "max_num_seqs": 4,
        "max_model_len": 2048,
        "num_live": 0,
        "num_running": 0,
        "num_waiting": 0,
    }
    return WorkerLease(worker_id=worker_id, model=MODEL, state=state, **{**values, **fields})


def test_a_model_has_the_state_of_its_best_worker() -> None:
    failed, loading = lease("a", "failed", reason="no such file"), lease("b", "loading", phase="weights", fraction=0.25)
    for leases, expected in (
        ([failed], ("failed", "no such file")),
        ([failed, loading], ("loading", "weights 25%")),
        ([failed, lease("d", "draining"), loading], ("loading", "weights 25%")),
        ([failed, loading, lease("c", "ready")], ("ready", "")),
    ):
        condition = model_conditions(leases)[MODEL]
        assert (condition.state, condition.reason, condition.max_model_len) == (*expected, 2048)


async def test_the_lease_carries_the_sampling_defaults_of_the_models_files(world: World) -> None:
    """A web process on another machine has no access to the folder of the model."""
    await database_sync_to_async(model_register)(name=MODEL, path="/models/on-another-machine.gguf")
    states = ModelStates(world.client, world.keys)
    worker = await world.worker()
    await worker.beat()
    facts = {"maker_defaults": '{"temperature": 0.2, "top_k": 20}', "computed_by": "backend transformers"}
    await world.client.hset(world.keys.worker(worker.worker_id), mapping=facts)
    await states.turn()
    model = await ServedModel.objects.aget(name=MODEL)
    assert (model.maker_defaults, model.computed_by) == ({"temperature": 0.2, "top_k": 20}, "backend transformers")
    await world.client.delete(world.keys.worker(worker.worker_id))
    await states.turn()
    world.lease_state, world.lease_facts = "loading", {"maker_defaults": "null"}
    await (await world.worker()).beat()
    await states.turn()
    entry = await model_resolve_async(name=MODEL)
    assert entry is not None
    assert entry.sampling_defaults == {"temperature": 0.2, "top_k": 20}, "kept until the next worker has read them"
    assert (await ServedModel.objects.aget(name=MODEL)).computed_by == "backend transformers"


async def test_the_catalogue_shows_the_states_of_workers_and_unloaded_without_one(world: World) -> None:
    await database_sync_to_async(model_register)(name=MODEL, path="/models/tiny.gguf")
    states = ModelStates(world.client, world.keys)
    seen = []
    worker = await world.worker()
    for word in ("loading", "ready"):
        world.lease_state = word
        await worker.beat()
        await states.turn()
        seen.append((await ServedModel.objects.aget(name=MODEL)).state)
    await world.client.delete(world.keys.worker(worker.worker_id))
    await states.turn()
    seen.append((await ServedModel.objects.aget(name=MODEL)).state)
    assert seen == ["loading", "ready", "unloaded"]
