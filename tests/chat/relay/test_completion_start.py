"""completion_start over a real Valkey and channel layer; no worker takes the queued tasks."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from chat.access.keys import Caller, KeyLimits
from chat.catalog import named_models
from chat.errors import engine_api_error
from chat.generation.completions import (
    LimitExceeded,
    LimitKind,
    RequestTrace,
    completion_refuse,
    completion_start,
    limits_look,
    request_rejected_record,
)
from chat.generation.metering import Metering
from chat.generation.waiting import Waiting, admission_await, waiting_watch
from chat.relay.reaper import WAITED_MS
from chat.relay.state.keys import model_slug, run_id_create
from chat.relay.state.meters import BudgetMeter
from chat.relay.state.task_message import first_task
from chat.relay.web.dispatcher import _dispatchers, dispatcher_of_loop
from chat.relay.worker.publisher import Publisher
from engine.api import Admitted, Delta, EngineUnavailable, ErrorCode, GenerationRequest, RawPrompt, RequestError, Task
from tests.chat.relay.world import MODEL, World, read_all, text_of, until

CALLER = Caller(key_id=1, public_id="key1", org_id=1, project_id=2, tenant="2")
TRACE = RequestTrace(
    dialect="lightcone", route="/v1/chat/completions", is_stream=True, user_label="u", metadata={"a": "b"}
)


@pytest.fixture
async def service(valkey: str, settings: Any) -> AsyncIterator[World]:
    """A deployment of the settings."""
    deployment = f"test-{secrets.token_hex(4)}"
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = deployment
    world = World(valkey, deployment)

    _dispatchers.pop(asyncio.get_running_loop(), None)
    dispatcher = dispatcher_of_loop()
    yield world
    await dispatcher.close()
    _dispatchers.pop(asyncio.get_running_loop(), None)
    await world.close()


async def worker_of(world: World) -> Publisher:
    from channels.layers import get_channel_layer

    world.layer = get_channel_layer("tokens")
    return await world.worker()


async def queued_tasks(world: World) -> list[bytes]:
    return await world.client.lrange(world.keys.tasks(model_slug(MODEL)), 0, -1)


def request(**changes: Any) -> GenerationRequest:
    return GenerationRequest(
        run_id=run_id_create(), model=MODEL, messages=({"role": "user", "content": "hi"},), arrived_at=1000.0, **changes
    )


async def test_a_completion_streams_over_the_real_layer(service: World) -> None:
    worker = await worker_of(service)
    generation = request()
    reader = await completion_start(request=generation, caller=CALLER, trace=TRACE)
    assert await queued_tasks(service) == [first_task(generation.run_id, MODEL)]
    voice = await service.claim(worker, reader.run_id)
    voice.admit()
    await reader.first()
    for letter in "abc":
        voice.token(letter)
        event = await reader.next(5.0)
        assert isinstance(event.payload, Delta)
        assert event.payload.text == letter
    voice.end()
    assert [event async for event in reader][-1].is_terminal
    reader.leave()
    [record] = await service.records()
    assert record | {"key_public_id": "key1", "project_id": 2, "user_label": "u", "metadata": {"a": "b"}} == record


async def test_without_a_worker_the_answer_is_503_at_once(service: World) -> None:
    with pytest.raises(EngineUnavailable) as raised:
        await completion_start(request=request(), caller=CALLER, trace=TRACE)
    assert raised.value.code is ErrorCode.MODEL_UNLOADED
    assert await named_models.installation_state() == "unloaded"
    await worker_of(service)
    assert await named_models.installation_state() == "ready"


@pytest.mark.parametrize(
    ("state", "code", "retry_after", "should_retry"),
    [
        ("draining", "overloaded", "1", "true"),
        ("failed", "model_load_failed", None, "false"),
    ],
)
async def test_the_state_of_the_worker_decides_whether_clients_should_retry(
    service: World, state: str, code: str, retry_after: str | None, should_retry: str
) -> None:
    """A model that can never load was `overloaded`, with a retry after a second."""
    service.lease_state = state
    await worker_of(service)
    with pytest.raises(EngineUnavailable) as raised:
        await completion_start(request=request(), caller=CALLER, trace=TRACE)
    answer = engine_api_error(raised.value)
    assert (answer.status, answer.code) == (503, code)
    assert (answer.headers().get("Retry-After"), answer.headers()["x-should-retry"]) == (retry_after, should_retry)
    assert await named_models.installation_state() == state


async def test_a_limit_error_has_its_kind_and_wait(service: World) -> None:
    await worker_of(service)
    caller = Caller(
        key_id=1, public_id="key2", org_id=1, project_id=2, tenant="2", limits=KeyLimits(requests_per_minute=1)
    )
    reader = await completion_start(request=request(), caller=caller, trace=TRACE)
    assert reader.headers["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(LimitExceeded) as raised:
        await completion_start(request=request(), caller=caller, trace=TRACE)
    assert len(await queued_tasks(service)) == 1, "what is refused has no task"
    assert raised.value.kind is LimitKind.REQUESTS
    assert 55 <= raised.value.retry_after_s <= 60
    assert raised.value.headers["x-ratelimit-reset-requests"] in ("1m0s", "60s", "59s")


async def test_text_longer_than_the_context_is_refused_before_it_is_sent(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of 30 MB went through Valkey to a worker, which refused them; twenty of them held 650 MB."""
    service.lease_facts = {"max_model_len": 2048, "longest_token_chars": 16}
    worker = await worker_of(service)
    texts = ({"role": "user", "content": "x" * 40_000},)
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=20_000)
    caller = Caller(key_id=1, public_id="key6", org_id=1, project_id=2, tenant="2", limits=limits)
    generation = replace(request(), messages=texts)
    packed: list[GenerationRequest] = []
    monkeypatch.setattr("chat.relay.state.runs.pack_request", packed.append)
    reader = await completion_start(request=generation, caller=caller, trace=TRACE)
    with pytest.raises(RequestError) as raised:
        await reader.first(timeout_s=5)
    reader.leave()
    assert (raised.value.code, raised.value.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages")
    assert "maximum context length is 2048 tokens" in raised.value.message
    assert (packed, await queued_tasks(service)) == ([], [])
    assert reader.headers["x-ratelimit-remaining-requests"] == "1", (
        "it counts as a request, like one that the worker refuses"
    )
    [record] = await service.records()
    assert (record["status"], record["outcome"], record["error_code"]) == (400, "rejected", "context_length_exceeded")
    assert list(worker._table.live) == []
    await until(lambda: not dispatcher_of_loop().chores.leaves)


async def test_a_full_server_is_503_with_the_reason(service: World) -> None:
    await worker_of(service)
    used = (await service.client.info("memory"))["used_memory"]
    await service.client.config_set("maxmemory", int(used / 0.85))
    await service.client.delete(service.keys.memory)  # that there was enough is known for a moment
    try:
        with pytest.raises(EngineUnavailable, match="memory") as raised:
            await completion_start(request=request(), caller=CALLER, trace=TRACE)
    finally:
        await service.client.config_set("maxmemory", 2**30)
    assert raised.value.code is ErrorCode.OVERLOADED


async def test_playground_users_have_separate_concurrency(service: World, settings: Any) -> None:
    """All signed-in users shared one limit, which detached runs could fill."""
    settings.LIGHTCONE_MAX_LIVE_PER_KEY = 1
    await worker_of(service)
    ada, bob = (Caller(key_id=0, public_id="", org_id=1, project_id=2, tenant=f"2:user:{number}") for number in (1, 2))
    for caller in (ada, bob):
        await completion_start(request=request(), caller=caller, trace=TRACE)
    with pytest.raises(LimitExceeded) as raised:
        await completion_start(request=request(), caller=ada, trace=TRACE)
    assert raised.value.kind == LimitKind.CONCURRENCY


async def test_further_runs_of_a_request_count_only_their_tokens_and_reads_none(service: World) -> None:
    await worker_of(service)
    limits = KeyLimits(requests_per_minute=1, tokens_per_minute=1_000, max_concurrency=3)
    caller = Caller(key_id=1, public_id="key5", org_id=1, project_id=2, tenant="2", limits=limits)
    embedding = {"messages": (), "task": Task.EMBED, "raw": RawPrompt("x" * 400)}
    readers = [await completion_start(request=replace(request(), **embedding), caller=caller, trace=TRACE)]
    reading = replace(request(), messages=(), task=Task.READ, raw=RawPrompt("x" * 4_000))
    readers.append(
        await completion_start(request=replace(request(), **embedding), caller=caller, trace=TRACE, is_further=True)
    )
    readers.append(await completion_start(request=reading, caller=caller, trace=TRACE, is_further=True))
    left = [int(reader.headers["x-ratelimit-remaining-tokens"]) // 100 for reader in readers]
    assert left == [9, 8, 8]
    with pytest.raises(LimitExceeded) as raised:
        await completion_start(request=request(), caller=caller, trace=TRACE, is_further=True)
    assert raised.value.kind is LimitKind.CONCURRENCY
    for reader in readers:
        reader.leave()
    await until(lambda: not dispatcher_of_loop().chores.leaves)


async def test_remaining_limits_can_be_read_without_charge(service: World, settings: Any) -> None:
    await worker_of(service)
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=1_000)
    caller = Caller(key_id=1, public_id="key4", org_id=1, project_id=2, tenant="2", limits=limits)
    full = {
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-requests": "0s",
    }
    for _ in range(3):
        headers = await limits_look(caller=caller)
        assert headers | full == headers
    reader = await completion_start(request=request(), caller=caller, trace=TRACE)
    headers = await limits_look(caller=caller)
    assert headers["x-ratelimit-remaining-requests"] == "1"
    assert set(headers) == set(reader.headers)
    reader.leave()
    assert await limits_look(caller=CALLER) == {}
    await until(lambda: not dispatcher_of_loop().chores.leaves)


async def test_a_request_with_bad_messages_passes_the_limits_and_leaves_nothing_behind(service: World) -> None:
    await worker_of(service)
    limits = KeyLimits(requests_per_minute=2, tokens_per_minute=1_000, max_concurrency=1)
    caller = Caller(key_id=1, public_id="key3", org_id=1, project_id=2, tenant="2", limits=limits)
    bad = {
        "request": replace(request(), messages=()),
        "messages": [5, {"role": "user", "content": "x" * 800}],
        "caller": caller,
        "trace": TRACE,
    }
    headers = await completion_refuse(**bad)
    assert headers["x-ratelimit-remaining-requests"] == "1", "it counts as a request"
    assert 280 < int(headers["x-ratelimit-remaining-tokens"]) < 300, (
        "what was sent is reserved: 200 tokens, and 512 for an answer"
    )
    dispatcher = dispatcher_of_loop()
    assert (await queued_tasks(service), len(dispatcher._readers), await service.records()) == ([], 0, [])
    assert await service.client.zcard(service.keys.admit_live("key3")) == 0
    assert await service.client.zcard(service.keys.queued) == 0
    reader = await completion_start(request=request(), caller=caller, trace=TRACE)
    assert int(reader.headers["x-ratelimit-remaining-tokens"]) > 480, "and the reserved tokens have come back"
    with pytest.raises(LimitExceeded):
        await completion_refuse(**bad)
    reader.leave()
    await until(lambda: not dispatcher.chores.leaves)


async def test_a_client_that_leaves_during_its_admission_leaves_no_run_behind(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script's answer came after the disconnect: the run was not left, and generated without a reader."""
    worker = await worker_of(service)
    runs = dispatcher_of_loop().runs
    admit, is_admitted = runs.admit, asyncio.Event()

    async def admit_without_answer(*arguments: Any, **options: Any) -> Any:
        await admit(*arguments, **options)
        is_admitted.set()
        await asyncio.wait_for(asyncio.Event().wait(), 0.05)

    monkeypatch.setattr(runs, "admit", admit_without_answer)
    generation = request()
    view = asyncio.create_task(completion_start(request=generation, caller=CALLER, trace=TRACE))
    await is_admitted.wait()
    view.cancel()
    await asyncio.gather(view, return_exceptions=True)
    dispatcher = dispatcher_of_loop()
    await until(lambda: not dispatcher.chores.leaves)
    taken = await worker.claims.take(generation.run_id, 1)
    assert taken is not None
    assert taken[0].stop == "disconnected"


async def test_a_client_that_leaves_before_its_refused_run_has_ended_holds_no_budget(
    service: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a task stayed `queued` where nothing looked, and held its reservation for a day."""
    await worker_of(service)
    dispatcher = dispatcher_of_loop()
    admit, is_admitted = dispatcher.runs.admit, asyncio.Event()

    async def admit_without_answer(*arguments: Any, **options: Any) -> Any:
        await admit(*arguments, **options)
        is_admitted.set()
        await asyncio.wait_for(asyncio.Event().wait(), 0.05)

    monkeypatch.setattr(dispatcher.runs, "admit", admit_without_answer)
    meter = BudgetMeter(1, "all", 0, 10_000)
    counter = service.keys.budget(1, "all")
    await service.client.hset(counter, "spent", 0)
    generation = replace(request(), messages=())
    refusal = completion_refuse(
        request=generation, messages=[5], caller=CALLER, trace=TRACE, metering=Metering((), (meter,))
    )
    view = asyncio.create_task(refusal)
    await is_admitted.wait()
    view.cancel()
    await asyncio.gather(view, return_exceptions=True)
    await until(lambda: not dispatcher.chores.leaves)
    assert int(await service.client.hget(counter, "held")) > 0
    service.clock.now = time.time() + WAITED_MS / 1000 + 1
    await service.reaper().turn()
    assert await service.client.hgetall(counter) == {b"spent": b"0", b"held": b"0"}
    assert (service.queued, await service.client.zcard(service.keys.queued)) == ([], 0), "it is not sent to a worker"
    [record] = await service.records()
    assert (record["run_id"], record["outcome"]) == (generation.run_id, "disconnected")


async def test_a_leave_is_applied_after_its_admission(service: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both scripts use different connections; in the wrong order the run would continue without a reader."""
    worker = await worker_of(service)
    dispatcher = dispatcher_of_loop()
    admit, is_begun, may_go_on = dispatcher.runs.admit, asyncio.Event(), asyncio.Event()

    async def admit_late(*arguments: Any, **options: Any) -> Any:
        is_begun.set()
        await may_go_on.wait()
        return await admit(*arguments, **options)

    monkeypatch.setattr(dispatcher.runs, "admit", admit_late)
    generation = request()
    view = asyncio.create_task(completion_start(request=generation, caller=CALLER, trace=TRACE))
    await is_begun.wait()
    view.cancel()
    await asyncio.gather(view, return_exceptions=True)
    await asyncio.sleep(0)
    may_go_on.set()
    await until(lambda: not dispatcher.chores.leaves)
    taken = await worker.claims.take(generation.run_id, 1)
    assert taken is not None
    assert taken[0].stop == "disconnected"


async def test_an_unreachable_valkey_is_503_at_once(service: World, settings: Any) -> None:
    settings.LIGHTCONE_REDIS_URL = "unix:///nonexistent/valkey.sock"
    own = _dispatchers.pop(asyncio.get_running_loop())
    try:
        async with asyncio.timeout(3):
            with pytest.raises(EngineUnavailable):
                await completion_start(request=request(), caller=CALLER, trace=TRACE)
            limits = KeyLimits(requests_per_minute=2)
            assert await limits_look(caller=replace(CALLER, limits=limits)) == {}
    finally:
        _dispatchers[asyncio.get_running_loop()] = own


async def test_refused_requests_are_recorded(service: World) -> None:
    request_rejected_record(
        run_id=run_id_create(),
        caller=None,
        trace=TRACE,
        status=401,
        code="invalid_api_key",
        message="No such key.",
        arrived_at=1000.0,
    )
    dispatcher = dispatcher_of_loop()
    await until(lambda: not dispatcher.chores.records)
    [record] = await service.records()
    assert (record["status"], record["outcome"], record["error_code"]) == (401, "rejected", "invalid_api_key")
    assert record["error_message"] == "No such key."


async def test_a_project_that_stores_nothing_has_records_without_its_callers(service: World) -> None:
    caller = replace(CALLER, stores_nothing=True, keeps_texts=True)
    trace = replace(TRACE, address="192.0.2.1", user_agent="curl", user_label="ann", metadata={"a": "b"})
    request_rejected_record(
        run_id=run_id_create(),
        caller=caller,
        trace=trace,
        status=429,
        code="rate_limit_exceeded",
        message="Too many.",
        arrived_at=1000.0,
    )
    dispatcher = dispatcher_of_loop()
    await until(lambda: not dispatcher.chores.records)
    [record] = await service.records()
    names = ("address", "user_agent", "user_label", "metadata", "error_message")
    assert [record[name] for name in names] == ["", "", "", {}, ""]


async def test_an_unpackable_record_does_not_delay_leaves(service: World) -> None:
    worker = await worker_of(service)
    reader = await completion_start(request=request(), caller=CALLER, trace=TRACE)
    dispatcher = dispatcher_of_loop()
    dispatcher.chores.add_record({"user_agent": "\ud800"})
    await until(lambda: not dispatcher.chores.records)
    reader.leave()
    await until(lambda: not dispatcher.chores.leaves)
    taken = await worker.claims.take(reader.run_id, 1)
    assert taken is not None
    assert taken[0].stop == "disconnected"


async def test_many_concurrent_readers_get_their_own_texts(service: World) -> None:
    worker = await worker_of(service)
    readers = await asyncio.gather(
        *(completion_start(request=request(), caller=CALLER, trace=TRACE) for _ in range(40))
    )
    results = [asyncio.create_task(read_all(reader)) for reader in readers]
    for index, reader in enumerate(readers):
        voice = await service.claim(worker, reader.run_id)
        voice.admit()
        for letter in str(index):
            voice.token(letter)
        voice.end()
    assert [text_of(events) for events in await asyncio.gather(*results)] == [str(index) for index in range(40)]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("loading", "model_loading"),
        ("unloaded", "model_loading"),
        ("failed", "model_load_failed"),
        ("", "model_unloaded"),
    ],
)
async def test_a_run_that_waits_for_its_model_ends_with_what_holds_the_model_up(
    service: World, state: str, code: str
) -> None:
    service.lease_state = "unloaded"
    worker = await worker_of(service)
    reader = await completion_start(request=request(), caller=CALLER, trace=TRACE)
    service.lease_state, service.has_lease = state, bool(state)
    if state:
        await worker.beat()
    else:
        await service.client.delete(service.keys.worker(worker.worker_id))
    seen: list[Waiting] = []

    async def watch() -> None:
        async for waiting in waiting_watch(reader, model=MODEL, timeout_s=60 if state == "failed" else 0.6):
            seen.append(waiting)

    with pytest.raises(EngineUnavailable) as raised:
        await watch()
    assert (raised.value.code, seen[0].state, seen[0].num_before) == (code, state, 0)
    reader.leave()


async def test_a_run_that_waits_for_its_model_goes_on_once_it_is_loaded(service: World) -> None:
    service.lease_state = "loading"
    worker = await worker_of(service)
    first = await completion_start(request=request(), caller=CALLER, trace=TRACE)
    second = await completion_start(request=request(), caller=CALLER, trace=TRACE)
    watch = waiting_watch(second, model=MODEL, timeout_s=60)
    seen = await anext(watch)
    assert (seen.state, seen.fraction, seen.num_before) == ("loading", 0.5, 1)
    service.lease_state = "ready"
    await worker.beat()
    voice = await service.claim(worker, second.run_id)
    voice.admit()
    await worker.flush()
    assert {waiting.state async for waiting in watch} <= {"loading", "ready"}
    assert await admission_await(second, model=MODEL, timeout_s=5) == Admitted(3, 100, 7)
    for reader in (first, second):
        reader.leave()
