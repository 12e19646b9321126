"""Admission: all limits in one step, charged only if all permit, settled at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from chat.relay.state.keys import model_slug
from tests.chat.relay.world import MODEL, World, read_all, text_of


async def test_fifty_concurrent_admissions_never_exceed_a_limit(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    answers = await asyncio.gather(*(world.admit(web, requests_per_minute=20, max_live=64) for _ in range(50)))
    words = [verdict.decision for _, verdict in answers]
    assert (words.count("go"), words.count("requests")) == (20, 30)


async def test_live_runs_of_a_key_are_limited(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    answers = await asyncio.gather(*(world.admit(web, max_live=3) for _ in range(10)))
    admitted = [reader for reader, verdict in answers if verdict.decision == "go"]
    assert len(admitted) == 3
    voice = await world.claim(worker, admitted[0].run_id)
    voice.admit()
    voice.end()
    await worker.flush()
    assert (await world.admit(web, max_live=3))[1].decision == "go"
    assert (await world.admit(web, max_live=3))[1].decision == "concurrency"


async def test_a_crashed_run_stops_counting_when_its_lease_ends(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    assert (await world.admit(web, max_live=1))[1].decision == "go"
    assert (await world.admit(web, max_live=1))[1].decision == "concurrency"
    world.clock.now += 121
    assert (await world.admit(web, max_live=1))[1].decision == "go"


async def test_a_bucket_of_requests_refills_steadily(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    for left in (1, 0):
        _, verdict = await world.admit(web, requests_per_minute=2)
        assert (verdict.decision, verdict.requests.left) == ("go", left)
    _, verdict = await world.admit(web, requests_per_minute=2)
    assert (verdict.decision, verdict.wait_s) == ("requests", 30.0)
    world.clock.now += 30
    assert (await world.admit(web, requests_per_minute=2))[1].decision == "go"


async def test_reserved_tokens_are_settled_to_what_was_used(world: World) -> None:
    web, worker = await world.web(), await world.worker()
    limits = {"tokens_per_minute": 100, "reserved_tokens": 80}
    reader, verdict = await world.admit(web, **limits)
    assert (verdict.decision, verdict.tokens.left) == ("go", 20)
    assert (await world.admit(web, **limits))[1].decision == "tokens"
    voice = await world.claim(worker, reader.run_id)
    voice.admit()
    voice.token("a")
    voice.end()
    await worker.flush()
    _, verdict = await world.admit(web, **limits)
    assert (verdict.decision, verdict.tokens.left) == ("go", 100 - 4 - 80)


async def test_tokens_beyond_a_reservation_are_charged_later(world: World) -> None:
    """A small bucket was full and deleted before the run ended, so that its real use was never charged."""
    web, worker = await world.web(), await world.worker()
    limits = {"tokens_per_minute": 60, "reserved_tokens": 1}
    reader, _ = await world.admit(web, **limits)
    voice = await world.claim(worker, reader.run_id)
    world.clock.now += 30
    await world.client.delete(world.keys.meter("key1"))
    voice.admit()
    for _ in range(87):
        voice.token("a")
    voice.end()
    await worker.flush()
    _, verdict = await world.admit(web, **limits)
    assert (verdict.decision, verdict.wait_s) == ("tokens", 30.0)  # 60 + 1 - (3 + 87) = -29 tokens, one a second
    world.clock.now += 30
    assert (await world.admit(web, **limits))[1].decision == "go"


async def test_a_request_larger_than_a_minute_passes_when_the_bucket_is_full(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    assert (await world.admit(web, tokens_per_minute=100, reserved_tokens=500))[1].decision == "go"
    _, verdict = await world.admit(web, tokens_per_minute=100, reserved_tokens=1)
    assert (verdict.decision, round(verdict.wait_s)) == ("tokens", round(401 * 0.6))


async def test_a_refused_admission_charges_nothing(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    await world.admit(web, max_live=1, requests_per_minute=10)
    for _ in range(5):
        _, verdict = await world.admit(web, max_live=1, requests_per_minute=10)
        assert (verdict.decision, verdict.requests.left) == ("concurrency", 9)


async def test_the_queue_of_a_model_is_bounded(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    answers = [(await world.admit(web, max_waiting=2))[1].decision for _ in range(8)]
    assert answers == ["go"] * 6 + ["full"] * 2  # 4 seats and 2 waiting


async def test_a_queue_filled_by_one_tenant_admits_others_up_to_an_equal_share(world: World) -> None:
    """A project with many keys filled the queue, and all others were refused as overloaded."""
    web, worker = await world.web(), await world.worker()

    async def words(tenant: str, count: int) -> list[str]:
        wanted = [world.admission(max_waiting=2) for _ in range(count)]
        wanted = [replace(admission, request=replace(admission.request, tenant=tenant)) for admission in wanted]
        return [
            (await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)).decision for admission in wanted
        ]

    assert await words("greedy", 7) == ["go"] * 6 + ["full"]  # 4 seats and 2 waiting
    assert await words("witness", 4) == ["go"] * 3 + ["full"]
    assert await words("third", 3) == ["go"] * 2 + ["full"]
    run_ids = [
        name.decode() for name in await world.client.zrange(world.keys.tenant_live(model_slug(MODEL), "third"), 0, -1)
    ]
    voice = await world.claim(worker, run_ids[0])
    voice.admit()
    voice.end()
    await worker.flush()
    assert await words("third", 2) == ["go", "full"]


async def test_without_a_worker_that_may_serve_nothing_is_admitted(world: World) -> None:
    web = await world.web()
    assert (await world.admit(web))[1].worker_state == "none"
    world.lease_state = "draining"
    worker = await world.worker()
    _, verdict = await world.admit(web)
    assert (verdict.decision, verdict.worker_state, verdict.worker_progress) == ("unavailable", "draining", 0.5)
    for state in ("loading", "ready"):
        world.lease_state = state
        await worker.beat()
        _, verdict = await world.admit(web)
        assert (verdict.decision, verdict.worker_state) == ("go", state)


async def test_requests_for_a_model_that_is_not_loaded_ask_once_for_it_and_wait_in_its_queue(world: World) -> None:
    web, slug = await world.web(), model_slug(MODEL)
    world.lease_state = "unloaded"
    worker = await world.worker()
    verdicts = [(await world.admit(web))[1] for _ in range(3)]
    assert {(verdict.decision, verdict.worker_state) for verdict in verdicts} == {("go", "unloaded")}
    assert await world.client.llen(world.keys.tasks(slug)) == 3
    assert await world.client.llen(world.keys.demand(slug)) == 1
    await world.client.delete(world.keys.demand(slug))
    world.lease_state = "loading"
    await worker.beat()
    await world.admit(web)
    assert not await world.client.exists(world.keys.demand(slug)), "a worker loads it already"


async def test_admission_closes_at_four_fifths_of_memory_and_runs_continue(world: World) -> None:
    """Requests could fill the memory of Valkey; now room is kept for the answers of running ones."""
    web, worker = await world.web(), await world.worker()
    reader, voice = await world.run(web, worker)
    used = (await world.client.info("memory"))["used_memory"]
    await world.client.config_set("maxmemory", int(used / 0.85))
    await world.client.delete(world.keys.memory)  # that there was enough is known for a moment
    try:
        refused, verdict = await world.admit(web)
        assert verdict.decision == "memory"
        assert await world.client.exists(world.keys.request(refused.run_id)) == 0
        voice.admit()
        voice.token("a")
        voice.end()
        await worker.flush()
        assert text_of(await read_all(reader)) == "a"
    finally:
        await world.client.config_set("maxmemory", 2**30)
    assert (await world.admit(web))[1].decision == "go"


async def test_a_large_request_asks_for_memory_although_there_was_enough_a_moment_ago(world: World) -> None:
    web, _ = await world.web(), await world.worker()
    await world.client.set(world.keys.memory, "1")
    small = world.admission()
    large = replace(small.request, messages=({"role": "user", "content": "x" * 65_536},))
    used = (await world.client.info("memory"))["used_memory"]
    await world.client.config_set("maxmemory", int(used / 0.85))
    try:
        for request, decision in ((large, "memory"), (small.request, "go")):
            admission = replace(small, request=request)
            result = await world.runs.admit(admission, web_id=web.web_id, channel=web.channel)
            assert result.decision == decision
    finally:
        await world.client.config_set("maxmemory", 2**30)
