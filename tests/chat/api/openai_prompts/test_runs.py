"""Several runs of one request: started as there is room, ended together after a disconnect, refusal or failure."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle

import pytest

from chat.access.keys import Caller, KeyLimits
from chat.api.answering import multi_run, pipeline
from chat.api.answering.multi_run import group_start
from chat.api.answering.pipeline import Accepted
from chat.api.openai.dialect import TEXT_COMPLETIONS
from chat.catalog import named_models
from chat.errors import ApiError
from chat.generation.completions import LimitExceeded, RequestTrace
from chat.generation.limits import LimitKind
from engine.api import Admitted, EngineUnavailable, ErrorCode, Event, Failed, RequestError
from tests.chat.api.conftest import ADMITTED, MODEL, completed, delta, finished
from tests.chat.api.openai_prompts.test_text_completions import ROUTE
from tests.chat.api.test_leaving_clients import Connection

CALLER = Caller(key_id=1, public_id="testing0001", org_id=1, project_id=1, tenant="1")
SCRIPT = [ADMITTED, delta("x"), finished(), completed()]


class HeldReader:
    """A reader fed by the test that notes when it is left."""

    def __init__(self) -> None:
        self.headers = {"x-ratelimit-remaining-tokens": "7"}
        self.items: asyncio.Queue = asyncio.Queue()
        self.waits_for_model = False
        self.has_left = False
        self.position = 1

    async def first(self, *, timeout_s=None):
        item = await self.items.get()
        if isinstance(item, Exception):
            raise item
        assert isinstance(item, Admitted)
        return item

    def __aiter__(self):
        return self

    async def __anext__(self):
        item = await self.items.get()
        if item is StopAsyncIteration:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        event = Event(self.position, 1, item)
        self.position += 1
        if event.is_terminal:
            self.items.put_nowait(StopAsyncIteration)
        return event

    def leave(self) -> None:
        self.has_left = True

    def play(self, *items) -> None:
        for item in items:
            self.items.put_nowait(item)


class Service:
    """A service whose readers the test feeds. `refuse`: the errors of the next starts, None for a success."""

    def __init__(self) -> None:
        self.readers: list[HeldReader] = []
        self.requests = []
        self.rejected = []
        self.refuse: list[Exception | None] = []
        self.has_started = asyncio.Event()

    async def start(self, *, request, caller, trace, **_):
        error = self.refuse.pop(0) if self.refuse else None
        if error is not None:
            raise error
        self.requests.append(request)
        self.readers.append(HeldReader())
        self.has_started.set()
        return self.readers[-1]

    async def started(self, number: int) -> None:
        async with asyncio.timeout(5):
            while len(self.readers) < number:
                self.has_started.clear()
                await self.has_started.wait()


@pytest.fixture
def service(scripted, monkeypatch):
    made = Service()
    monkeypatch.setattr(pipeline, "completion_start", made.start)
    monkeypatch.setattr(pipeline, "request_rejected_record", lambda **record: made.rejected.append(record))
    return made


@asynccontextmanager
async def begun(count: int, caller: Caller = CALLER, batch_id: str = "", **fields):
    parsed = TEXT_COMPLETIONS.parse({"prompt": [str(number) for number in range(count)], **fields})
    trace = RequestTrace("prompts", ROUTE, False, batch_id=batch_id)
    group = await group_start(Accepted(caller, parsed, trace, 0.0, 10, "r"))
    try:
        yield group
    finally:
        group.leave()


@pytest.fixture(autouse=True)
def _no_deadline(monkeypatch):
    """Wait for admissions without a deadline."""

    async def wait(run):
        return await run.reader.first()

    monkeypatch.setattr(multi_run, "admission_wait", wait)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def limit(kind: LimitKind = LimitKind.CONCURRENCY, *, retry_after_s: int = 2) -> LimitExceeded:
    return LimitExceeded(kind, "slow down", retry_after_s=retry_after_s, headers={})


async def collect(group) -> list[tuple[int, str]]:
    taken = []
    async with asyncio.timeout(5):
        while not group.is_over:
            index, update = await group.next()
            taken.append((index, type(update if isinstance(update, Admitted) else update.payload).__name__))
    return taken


async def test_events_of_all_runs_keep_their_order_in_time(service):
    async with begun(2) as group:
        await service.started(2)
        first, second = service.readers
        second.play(*SCRIPT)
        await settle()
        first.play(*SCRIPT)
        assert await collect(group) == [
            (index, name) for index in (1, 0) for name in ("Admitted", "Delta", "ChoiceFinished", "Completed")
        ]
        assert group.headers == {"x-ratelimit-remaining-tokens": "7"}
    assert first.has_left
    assert second.has_left


async def test_a_request_uses_at_most_half_of_the_keys_concurrency(service):
    """The next run starts as one ends."""
    caller = replace(CALLER, limits=KeyLimits(max_concurrency=5))
    async with begun(4, caller) as group:
        await service.started(2)
        await settle()
        assert len(service.readers) == 2
        service.readers[1].play(*SCRIPT)
        await service.started(3)
        service.readers[0].play(*SCRIPT)
        await service.started(4)
        service.readers[2].play(*SCRIPT)
        service.readers[3].play(*SCRIPT)
        taken = await collect(group)
        assert sorted({index for index, _ in taken}) == [0, 1, 2, 3]


async def test_all_runs_are_answered_by_the_model_that_the_name_led_to_first(service, monkeypatch):
    """A weighted alias chose a model for each prompt anew, so one answer mixed two models."""
    models = cycle([replace(MODEL, name=name, alias="canary") for name in ("one", "two")])

    async def resolve(*, name, caller=None):
        return next(models)

    monkeypatch.setattr(named_models, "model_resolve_async", resolve)
    async with begun(4) as group:
        await service.started(4)
        assert len({run.model.name for run in group.runs}) == 1
        assert len({request.model for request in service.requests}) == 1


async def test_a_run_refused_by_a_limit_waits_for_another_to_end(service):
    service.refuse = [None, limit(), EngineUnavailable(ErrorCode.OVERLOADED, "full")]
    async with begun(2) as group:
        await settle()
        assert len(service.readers) == 1
        service.readers[0].play(*SCRIPT)
        await settle()
        assert len(service.readers) == 1, "refused once more, and nothing is left to wait for"
        with pytest.raises(ApiError) as refused:
            await collect(group)
    assert refused.value.code == "overloaded"
    assert [record["status"] for record in service.rejected] == [503]


async def test_a_refused_run_of_a_batch_is_retried(service):
    """Finished runs of the line are kept even if none is running."""
    service.refuse = [None, limit(retry_after_s=0), limit(retry_after_s=0)]
    async with begun(2, batch_id="batch_1") as group:
        await settle()
        service.readers[0].play(*SCRIPT)
        await service.started(2)
        service.readers[1].play(*SCRIPT)
        assert len(await collect(group)) == 8


async def test_a_refused_run_starts_once_there_is_room(service):
    service.refuse = [None, limit()]
    async with begun(2) as group:
        await settle()
        service.readers[0].play(*SCRIPT)
        await service.started(2)
        service.readers[1].play(*SCRIPT)
        assert len(await collect(group)) == 8
    assert service.rejected == []


async def test_a_stream_starts_while_a_limited_run_still_waits(service):
    service.refuse = [None, limit()]
    async with begun(2) as group:
        await settle()
        service.readers[0].play(ADMITTED, delta("x"))
        async with asyncio.timeout(5):
            await group.admissions(1)
        service.readers[0].play(finished(), completed())
        await service.started(2)
        service.readers[1].play(*SCRIPT)
        assert len(await collect(group)) == 8


async def test_a_refused_first_run_refuses_the_request(service):
    service.refuse = [limit(LimitKind.REQUESTS)]
    with pytest.raises(ApiError) as refused:
        async with begun(2):
            pass
    assert refused.value.status == 429
    assert service.readers == []


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (RequestError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "too long", "prompt.1"), "context_length_exceeded"),
        (EngineUnavailable(ErrorCode.WORKER_LOST, "lost"), "worker_lost"),
        (RuntimeError("a defect"), "internal_error"),
    ],
    ids=str,
)
async def test_a_refused_prompt_refuses_the_request_and_ends_its_other_runs(api, service, ending, code):
    async def play():
        await service.started(3)
        service.readers[1].play(ending)
        service.readers[0].play(ADMITTED)

    playing = asyncio.create_task(play())
    response = await api.post(ROUTE, json={"prompt": ["a", "b", "c"]})
    await playing
    assert response.json()["error"]["code"] == code
    assert response.headers["x-ratelimit-remaining-tokens"] == "7"
    assert all(reader.has_left for reader in service.readers)


async def test_a_failure_in_the_middle_of_a_stream_ends_all_runs(api, service):
    async def play():
        await service.started(2)
        service.readers[0].play(ADMITTED, delta("x"))
        service.readers[1].play(ADMITTED)
        await settle()
        service.readers[1].play(Failed(ErrorCode.ENGINE_ERROR, "broken"))

    playing = asyncio.create_task(play())
    response = await api.post(ROUTE, json={"prompt": ["a", "b"], "stream": True})
    await playing
    assert response.status_code == 200
    assert '"engine_error"' in response.text
    assert response.text.endswith("data: [DONE]\n\n")
    assert all(reader.has_left for reader in service.readers)


async def test_a_stream_begins_when_every_prompt_is_admitted(api, service):
    async def play():
        await service.started(2)
        service.readers[0].play(*SCRIPT)
        await settle()
        service.readers[1].play(RequestError(ErrorCode.INVALID_VALUE, "prompt.1 is wrong", "prompt.1"))

    playing = asyncio.create_task(play())
    response = await api.post(ROUTE, json={"prompt": ["a", "b"], "stream": True})
    await playing
    assert (response.status_code, response.json()["error"]["param"]) == (400, "prompt.1")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("admits", [False, True])
async def test_a_disconnect_ends_all_runs(service, stream, admits):
    connection = Connection({"prompt": ["a", "b"], "stream": stream})
    connection.scope |= {"path": ROUTE, "raw_path": ROUTE.encode()}
    task = connection.start()
    await service.started(2)
    for reader in service.readers:
        reader.play(*([ADMITTED, delta("x")] if admits else []))
    await settle()
    connection.leave()
    async with asyncio.timeout(5):
        await task
    assert all(reader.has_left for reader in service.readers)


async def test_a_run_starting_during_a_disconnect_is_ended(service):
    async with begun(2) as group:
        assert len(service.readers) == 1
        group.leave()
        await settle()
        assert len(service.readers) == 1
    assert service.readers[0].has_left


async def test_a_slow_client_buffers_few_events(service, monkeypatch):
    monkeypatch.setattr(multi_run, "MAX_UPDATES", 4)
    async with begun(1) as group:
        reader = service.readers[0]
        reader.play(ADMITTED, *(delta("x") for _ in range(20)), finished(), completed())
        await settle()
        assert reader.items.qsize() >= 16
        assert len(await collect(group)) == 23
