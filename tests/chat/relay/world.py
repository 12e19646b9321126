"""A worker side and a web side in one event loop, over a real Valkey, with a scripted engine."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from chat.relay.reaper import Reaper
from chat.relay.state.keys import Keys, model_slug, run_id_create
from chat.relay.state.meters import Cost, Measure, Period, Rate, Scope, ScopeKind
from chat.relay.state.runs import AdmissionRequest, AdmissionResult, Claim, Runs
from chat.relay.state.usage_stream import UsageStream
from chat.relay.token_layer import TokenLayer
from chat.relay.valkey import ValkeyLine, valkey_connect, valkey_connect_blocking
from chat.relay.web.chores import Refusals
from chat.relay.web.dispatcher import Dispatcher
from chat.relay.web.reader import RunReader
from chat.relay.worker.publisher import Publisher
from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    Event,
    FinishReason,
    GenerationRequest,
    Outcome,
    Payload,
    Timings,
    Usage,
)

MODEL = "tiny"
ABOUT = {"arrived_at": 1000.0, "dialect": "lightcone", "route": "/v1/chat/completions", "model": MODEL, "metadata": {}}


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class LossyLayer:
    """A channel layer in memory; `drops(message)` decides which messages are lost."""

    def __init__(self) -> None:
        self.queues: dict[str, asyncio.Queue[dict[str, Any]]] = defaultdict(asyncio.Queue)
        self.drops: Callable[[dict[str, Any]], bool] = lambda message: False
        self.sent: list[dict[str, Any]] = []
        self._num_channels = 0

    async def new_channel(self, prefix: str = "") -> str:
        self._num_channels += 1
        return f"{prefix}{self._num_channels}"

    def serialize(self, message: dict[str, Any]) -> bytes:
        raise NotImplementedError("this layer is not Valkey's")

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if not self.drops(message):
            self.queues[channel].put_nowait(message)

    async def receive(self, channel: str) -> dict[str, Any]:
        return await self.queues[channel].get()


@dataclass(frozen=True, slots=True)
class FakeEvents:
    run_id: str
    events: tuple[Event, ...]


class Voice:
    """The scripted engine's side of one run: payloads in, numbered events out."""

    def __init__(self, publisher: Publisher, claim: Claim, position: int = 0) -> None:
        self.publisher = publisher
        self.claim = claim
        self.position = position
        self.num_tokens = 0

    def say(self, *payloads: Payload) -> None:
        events = []
        for payload in payloads:
            count = len(payload.token_ids) if isinstance(payload, Delta) else 1
            events.append(Event(self.position, count, payload))
            self.position += count
        self.publisher.publish([FakeEvents(self.claim.run_id, tuple(events))])

    def admit(self) -> None:
        self.say(Admitted(3, 100, 7))

    def token(self, text: str) -> None:
        self.num_tokens += 1
        self.say(Delta(0, (self.num_tokens,), text))

    def end(self, outcome: Outcome = Outcome.FINISHED) -> None:
        usage = Usage(3, 0, self.num_tokens)
        self.say(
            ChoiceFinished(0, FinishReason.STOP), Completed(outcome, usage, Timings(1000.0, 1000.1, 1000.2, 1000.3))
        )


class World:
    """Everything of one deployment. `aborted`: the runs that the engine was told to abort, in order."""

    def __init__(self, url: str, deployment: str) -> None:
        self.url = url
        self.clock = Clock()
        self.keys = Keys(deployment)
        self.clients: list[Redis] = []
        self.client = self.connect()
        self.runs = Runs(self.client, self.keys, self.clock)
        self.layer: Any = LossyLayer()
        self.aborted: list[tuple[str, Outcome]] = []
        self.stops: list[tuple[str, str, str]] = []
        self.refusals = Refusals()
        self.queued: list[tuple[str, int, str]] = []
        self.publishers: list[Publisher] = []
        self.dispatchers: list[Dispatcher] = []
        self.lease_state = "ready"
        self.lease_facts: dict[str, Any] = {}
        self.has_lease = True
        self.on_lost: Callable[[], None] = lambda: None
        self.on_abort: Callable[[str, Outcome], None] = lambda run_id, outcome: None

    def lease(self) -> dict[str, Any] | None:
        if not self.has_lease:
            return None
        counters = dict.fromkeys(("max_model_len", "num_live", "num_running", "num_waiting"), 0)
        words = {"model": MODEL, "state": self.lease_state, "phase": "", "fraction": "0.5", "reason": "", "seats": 4}
        return words | counters | self.lease_facts

    def connect(self) -> Redis:
        client = valkey_connect(self.url)
        self.clients.append(client)
        return client

    async def close(self) -> None:
        for dispatcher in self.dispatchers:
            await dispatcher.close()
        for publisher in self.publishers:
            await publisher.close()
        if isinstance(self.layer, TokenLayer):
            await self.layer.close()
        for client in self.clients:
            await client.aclose(close_connection_pool=True)

    async def worker(self, worker_id: str = "model@here~1", *, beat_s: float = 3600.0) -> Publisher:
        """Return a publisher with a lease, whose heartbeat the test triggers.

        Over Valkey's layer it writes steps in one round trip.
        """

        def abort(run_id: str, outcome: Outcome) -> None:
            self.aborted.append((run_id, outcome))
            self.on_abort(run_id, outcome)

        publisher = Publisher(
            client=self.connect(),
            keys=self.keys,
            layer=self.layer,
            worker_id=worker_id,
            slug=model_slug(MODEL),
            abort=abort,
            lease=self.lease,
            clock=self.clock,
            line=None if isinstance(self.layer, LossyLayer) else ValkeyLine(self.url),
        )
        await publisher.start(beat_s=beat_s)
        self.publishers.append(publisher)
        return publisher

    async def web(self, *, sweep_s: float = 3600.0, layer: Any = None) -> Dispatcher:
        """Return a dispatcher that sweeps on demand or at a gap in message numbers."""

        async def send_stop(worker_id: str, run_id: str, outcome: str) -> None:
            self.stops.append((worker_id, run_id, outcome))
            for publisher in self.publishers:
                publisher.stop_run(run_id, Outcome(outcome))

        dispatcher = Dispatcher(
            client=self.connect(),
            keys=self.keys,
            layer=layer or self.layer,
            lease_client=valkey_connect_blocking(self.url),
            send_stop=send_stop,
            refusals=self.refusals,
            clock=self.clock,
        )
        await dispatcher.start(sweep_s=sweep_s)
        self.dispatchers.append(dispatcher)
        return dispatcher

    def reaper(self) -> Reaper:
        async def send_task(run_id: str, attempt: int, slug: str) -> None:
            self.queued.append((run_id, attempt, slug))

        async def send_stop(worker_id: str, run_id: str, outcome: str) -> None:
            self.stops.append((worker_id, run_id, outcome))

        return Reaper(client=self.client, keys=self.keys, clock=self.clock, send_task=send_task, send_stop=send_stop)

    def admission(self, **changes: Any) -> AdmissionRequest:
        request = GenerationRequest(
            run_id=run_id_create(at_s=self.clock()),
            model=MODEL,
            messages=({"role": "user", "content": "hi"},),
            arrived_at=1000.0,
        )
        figures = {"requests_per_minute": 0, "tokens_per_minute": 0, "reserved_tokens": 10, "max_live": 64}
        figures |= {name: changes.pop(name) for name in figures if name in changes}
        rates = (
            Rate(Measure.REQUESTS, Period.MINUTE, figures["requests_per_minute"]),
            Rate(Measure.TOKENS, Period.MINUTE, figures["tokens_per_minute"]),
        )
        limits = tuple(rate for rate in rates if rate.limit)
        key = Scope(ScopeKind.KEY, changes.pop("caller", "key1"), rates=limits, max_live=figures["max_live"])
        values: dict[str, Any] = {
            "request": request,
            "about": ABOUT,
            "scopes": (key,),
            "cost": Cost(1, figures["reserved_tokens"]),
            "max_waiting": 100,
        }
        return AdmissionRequest(**{**values, **changes})

    async def admit(self, dispatcher: Dispatcher, **changes: Any) -> tuple[RunReader, AdmissionResult]:
        admission = self.admission(**changes)
        reader = dispatcher.reader(admission.request.run_id)
        verdict = await self.runs.admit(admission, web_id=dispatcher.web_id, channel=dispatcher.channel)
        reader.is_started = verdict.decision == "go"
        return reader, verdict

    async def admit_with_worker(self, dispatcher: Dispatcher) -> tuple[RunReader, AdmissionResult]:
        """Return an admitted run that no worker has claimed."""
        await self.worker("first@x~0")
        reader, verdict = await self.admit(dispatcher)
        assert verdict.decision == "go", verdict
        return reader, verdict

    async def run(self, dispatcher: Dispatcher, publisher: Publisher, **changes: Any) -> tuple[RunReader, Voice]:
        """An admitted and claimed run."""
        reader, verdict = await self.admit(dispatcher, **changes)
        assert verdict.decision == "go", verdict
        return reader, await self.claim(publisher, reader.run_id)

    async def claim(self, publisher: Publisher, run_id: str, attempt: int = 1) -> Voice:
        taken = await publisher.claims.take(run_id, attempt)
        assert taken is not None
        claim, log = taken
        return Voice(publisher, claim, log[-1].position + 1 if log else 0)

    async def records(self) -> list[dict[str, Any]]:
        """Return terminal records written since the last call."""
        stream = UsageStream(self.client, self.keys)
        assert await stream.lock()
        batch = await stream.read(block_ms=None)
        await stream.done([entry_id for entry_id, _ in batch])
        await stream.unlock()
        return [record for _, record in batch]


async def read_all(reader: RunReader, timeout_s: float = 10.0) -> list[Event]:
    """Read events from the first to the last, without Admitted."""
    async with asyncio.timeout(timeout_s):
        await reader.first()
        return [event async for event in reader]


def text_of(events: list[Event]) -> str:
    return "".join(event.payload.text for event in events if isinstance(event.payload, Delta | ChoiceFinished))


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Give the loop turns until something that it does on its own has happened."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # what is awaited has no event of its own
            await asyncio.sleep(0)
