"""Publisher: from the engine's events to the durable log, and from there to the web processes that read.

One event loop, one object per worker process. Each flush:
  1. cut: all news of a run become one packed entry (neighbouring deltas of a choice join, which bounds a slow Valkey's cost);
  2. write: one pipeline appends every entry to its run's log, id `<attempt>-<last position>`; an end is its script (finish.lua);
  3. announce: one layer message per web process with the entries that were written, `n` counting by one.
Where no run ends, which is nearly always, one script (step.lua) does 2 and 3 in one round trip, over a connection of its own.
The log comes first, always: nothing a client has seen can be missing from it, and a worker that lost its run is refused there
and says nothing. What could not be written stays in memory; `recover` appends it once Valkey is back.

Refuses to know the engine, Celery and Django. Used by chat.worker.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as ValkeySlow

from chat.relay.keys import Keys
from chat.relay.live_run import Entry, LiveRun
from chat.relay.runs import LIVE_LEASE_MS, RUN_LIFE_MS, Claim, LogEntry, Runs, entry_position, watchers_of
from chat.relay.store import Answers, script_text
from chat.relay.valkey_wire import Caller, Refused
from engine.api import Event, Outcome

logger = logging.getLogger(__name__)

LEASE_MS = 5_000
BEAT_S = 1.0
STEP_FLUSH_RUNS = 32
BATCH_FLUSH_S = 0.05
SEND_TIMEOUT_S = 1.0
KEEP_ENDED_S = 10.0
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
BEATS_PER_RENEWAL = 10
LET_GO_TIMEOUT_S = 5.0
AWAY = (ValkeyAway, ValkeySlow, OSError)
STEP = script_text(Path(__file__).parent / "step.lua").encode()
TOO_OLD = "equal or smaller than the target stream top item"


class News(Protocol):
    """New events of one run (engine.engine.RunEvents)."""

    @property
    def run_id(self) -> str: ...
    @property
    def events(self) -> tuple[Event, ...]: ...


class Layer(Protocol):
    """A Channels layer."""

    async def send(self, channel: str, message: dict[str, Any]) -> None: ...
    def serialize(self, message: dict[str, Any]) -> bytes: ...


class Publisher:
    """Holds the worker's runs. `publish` is for any thread; everything else belongs to the loop of `start`.

    `abort(run_id, outcome)` ends a run in the engine; `lease()` gives the fields of the worker's lease, or None when the core
    has shown no sign of life. `flush_mode`: "auto", "step" or "batch". `caller`: for steps in one round trip, where `layer` is one whose
    messages are what Valkey publishes (chat.relay.layer).
    """

    def __init__(
        self,
        *,
        client: Redis,
        keys: Keys,
        layer: Layer,
        worker_id: str,
        slug: str,
        abort: Callable[[str, Outcome], None],
        lease: Callable[[], Mapping[str, Any] | None],
        clock: Callable[[], float] = time.time,
        flush_mode: str = "auto",
        caller: Caller | None = None,
    ) -> None:
        self.worker_id = worker_id
        self._slug = slug
        self.runs = Runs(client, keys, clock)
        self._client: Answers = client
        self._keys = keys
        self._layer = layer
        self._abort = abort
        self._lease = lease
        self._clock = clock
        self._flush_mode = flush_mode
        self._caller = caller
        self._live: dict[str, LiveRun] = {}
        self._ended: dict[str, LiveRun] = {}
        self._dropped: dict[str, asyncio.Event] = {}
        self._dirty: dict[str, LiveRun] = {}
        self._lock = threading.Lock()
        self._sent: dict[str, int] = defaultdict(int)
        self._has_news = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._writing = asyncio.Lock()
        self._has_lost = False
        self._backoff_s = MIN_BACKOFF_S
        self._num_beats = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, beat_s: float = BEAT_S) -> None:
        """Begin to flush and to renew the lease on the running loop; the first renewal is done when this returns, if Valkey is there."""
        self._loop = asyncio.get_running_loop()
        await self.beat_safely()
        self._tasks = [asyncio.create_task(self._flush_forever()), asyncio.create_task(self._beat_forever(beat_s))]

    async def close(self) -> None:
        """Write what waits, give the lease back and stop; the client is closed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()
        try:
            await self._client.delete(self._keys.worker(self.worker_id))
        except RedisError as error:
            logger.warning("lease not given back: %s", error)
        if self._caller is not None:
            self._caller.close()
        await self._client.aclose()

    @property
    def num_live(self) -> int:
        return len(self._live)

    def live_run_ids(self) -> list[str]:
        return list(self._live)

    def publish(self, batch: Iterable[News]) -> None:
        """Take the engine's news; returns at once. Events of runs that are not ours any more are dropped."""
        is_urgent = False
        with self._lock:
            for news in batch:
                run = self._live.get(news.run_id)
                if run is not None:
                    is_urgent = run.add(news.events) or is_urgent
                    self._dirty[news.run_id] = run
                elif news.run_id in self._dropped and news.events[-1].is_terminal:
                    self._call_soon(self._dropped.pop(news.run_id).set)
        self._call_soon(self._wake, is_urgent)

    async def take(self, run_id: str, attempt: int) -> tuple[Claim, list[LogEntry]] | None:
        """Claim a queued run; with it comes what earlier attempts logged. None when it is not to be had."""
        previous = self._live.get(run_id)
        if previous is not None and previous.claim.attempt < attempt:
            self._drop(previous)
        if (gone := self._dropped.get(run_id)) is not None:
            # NOTE: the engine must have let go of the old attempt, or its last events would pass as news of the new one.
            try:
                async with asyncio.timeout(LET_GO_TIMEOUT_S):
                    await gone.wait()
            except TimeoutError:
                return None
        claim = await self.runs.claim(run_id, attempt, self.worker_id)
        if claim is None:
            return None
        log = await self.runs.read_whole_log(run_id) if attempt > 1 else []
        with self._lock:
            self._ended.pop(run_id, None)
            self._live[run_id] = LiveRun(claim, self.worker_id, is_logged=bool(log))
        return claim, log

    async def flush(self) -> None:
        """Cut, write, announce; or, after a loss, try to recover."""
        async with self._writing:
            if self._has_lost and not await self._recover():
                return
            cut = [(run, entry) for run in self._take_dirty() if (entry := run.cut(self._clock())) is not None]
            # Of a run that Valkey has forgotten, only the terminal record is worth writing.
            kept = [(run, entry) for run, entry in cut if not run.is_forgotten or run.ending is not None]
            if kept:
                await self._write_and_announce(kept)

    async def beat(self) -> None:
        """Renew the lease, then look after each run: stop flags, new readers, lost runs, leases of its concurrency."""
        lease = self._lease()
        runs = list(self._live.values())
        pipe = self._client.pipeline(transaction=False)
        if lease is not None:
            name = self._keys.worker(self.worker_id)
            pipe.hset(name, mapping=dict(lease))
            pipe.pexpire(name, LEASE_MS)
            pipe.sadd(self._keys.workers, self.worker_id)
            pipe.sadd(self._keys.model_workers(self._slug), self.worker_id)
        head = len(pipe)
        for run in runs:
            pipe.hgetall(self._keys.meta(run.run_id))
        if self._num_beats % BEATS_PER_RENEWAL == 0:
            self._renew_live(pipe, runs)
        self._num_beats += 1
        answers = await pipe.execute()
        for run, raw in zip(runs, answers[head:], strict=False):
            self._look_after(run, {name.decode(): value for name, value in raw.items()})
        self._forget_ended()

    async def beat_safely(self) -> None:
        """`beat`, where a Valkey that is away only means that there is something to recover."""
        try:
            await self.beat()
        except AWAY as error:
            logger.warning("Valkey does not answer: %s", error)
            self._has_lost = True
            self._wake(True)
        except RedisError:
            logger.exception("heartbeat refused")

    def stop_run(self, run_id: str, outcome: Outcome) -> None:
        """End a live run early; unknown ones are ignored."""
        if run_id in self._live:
            self._abort(run_id, outcome)

    async def hand_over(self) -> list[tuple[str, int]]:
        """Give the lease back and re-queue live runs, if another worker is there to take them: (run id, next attempt) of each.

        From here on the logs refuse what this worker still writes.
        """
        await self.flush()
        others = await self._client.smembers(self._keys.model_workers(self._slug)) if self._live else set()
        ready = [raw for raw in others - {self.worker_id.encode()} if await self._is_ready(raw.decode())]
        if not ready:
            return []
        await self._client.delete(self._keys.worker(self.worker_id))
        handed = []
        for run in list(self._live.values()):
            taken = await self.runs.take_over(run.run_id, self.worker_id)
            self._drop(run)
            if taken is not None:
                handed.append((run.run_id, taken[0]))
        return handed

    async def _is_ready(self, worker_id: str) -> bool:
        return await self._client.hget(self._keys.worker(worker_id), "state") == b"ready"

    # The loop's tasks.

    async def _flush_forever(self) -> None:
        while True:
            await self._has_news.wait()
            if self._is_batching() and not self._is_urgent.is_set():
                try:
                    async with asyncio.timeout(BATCH_FLUSH_S):
                        await self._is_urgent.wait()
                except TimeoutError:
                    pass
            self._has_news.clear()
            self._is_urgent.clear()
            try:
                await self.flush()
            except Exception:
                logger.exception("flush failed")
                self._has_lost = True
            if self._has_lost:
                self._has_news.set()
                await asyncio.sleep(self._backoff_s)
                self._backoff_s = min(MAX_BACKOFF_S, self._backoff_s * 2)

    async def _beat_forever(self, beat_s: float) -> None:
        while True:
            await asyncio.sleep(beat_s)
            await self.beat_safely()

    def _is_batching(self) -> bool:
        return self._flush_mode == "batch" or (self._flush_mode == "auto" and len(self._live) > STEP_FLUSH_RUNS)

    def _wake(self, is_urgent: bool) -> None:
        self._has_news.set()
        if is_urgent:
            self._is_urgent.set()

    def _call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(callback, *arguments)

    # Writing.

    def _take_dirty(self) -> list[LiveRun]:
        with self._lock:
            runs, self._dirty = list(self._dirty.values()), {}
        return runs

    async def _write_and_announce(self, cut: list[tuple[LiveRun, Entry]]) -> None:
        try:
            if self._caller is not None and all(run.ending is None for run, _ in cut):
                written = await self._write_step(self._caller, cut)
            else:
                written = await self._write(cut)
        except AWAY as error:
            logger.warning("Valkey does not answer: %s; %d runs go on in memory", error, len(self._live))
            self._has_lost = True
            return
        if written:
            await self._announce(written)

    async def _write_step(self, caller: Caller, cut: list[tuple[LiveRun, Entry]]) -> list[tuple[LiveRun, Entry]]:
        """Append entries and announce them in one script; return those that are in their logs now and nobody was told of."""
        parts = [b"EVAL", STEP, b"%d" % len(cut), *(self._keys.log(run.run_id).encode() for run, _ in cut), b"%d" % RUN_LIFE_MS]
        for run, entry in cut:
            parts += (run.entry_name(entry).encode(), entry.payload, b"1" if run.is_logged else b"0")
        for channel, message in self._messages(cut):
            parts += (channel.encode(), self._layer.serialize(message))
        answer = await caller.call(*parts)
        if isinstance(answer, Refused):
            logger.error("logs refused: %s", answer)
            self._has_lost = True
            return []
        for run, _ in cut:
            run.is_logged = True
        if answer == b"OK":
            return []
        return [(run, entry) for (run, entry), verdict in zip(cut, answer, strict=True) if self._is_written(run, verdict)]

    async def _write(self, cut: list[tuple[LiveRun, Entry]]) -> list[tuple[LiveRun, Entry]]:
        """Append entries in one pipeline; return those that are in their logs now."""
        pipe = self._client.pipeline(transaction=False)
        for run, entry in cut:
            if run.ending is not None and entry.position == run.ending.position:
                pipe.execute_command("EVAL", *self.runs.finish_command(run.ending))
            else:
                name = self._keys.log(run.run_id)
                pipe.xadd(name, {"e": entry.payload}, id=run.entry_name(entry), nomkstream=run.is_logged)
                if not run.is_logged:
                    pipe.pexpire(name, RUN_LIFE_MS)
                    run.is_logged = True
        answers = await pipe.execute(raise_on_error=False)
        verdicts = [answer for answer in answers if not isinstance(answer, bool | int)]
        return [(run, entry) for (run, entry), answer in zip(cut, verdicts, strict=True) if self._is_written(run, answer)]

    def _is_written(self, run: LiveRun, answer: object) -> bool:
        if isinstance(answer, ResponseError | Refused):
            if TOO_OLD in str(answer):
                self._drop(run)
            else:
                logger.error("log of run %s refused: %s", run.run_id, answer)
                self._has_lost = True
            return False
        if answer is None:
            self._has_lost = True
            return False
        if answer == b"stale":
            self._drop(run)
            return False
        if run.ending is not None and answer in (b"ended", b"again"):
            run.ended_at = self._clock()
            with self._lock:
                self._live.pop(run.run_id, None)
                self._ended[run.run_id] = run
        return True

    async def _announce(self, written: list[tuple[LiveRun, Entry]]) -> None:
        for channel, message in self._messages(written):
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._layer.send(channel, message)
            except (TimeoutError, RedisError, OSError) as error:
                logger.warning("layer message lost: %s", error)

    def _messages(self, written: list[tuple[LiveRun, Entry]]) -> list[tuple[str, dict[str, object]]]:
        """Channel and message per web process. It is a hint: a lost one is found by its number, or by the readers' sweep."""
        deltas: dict[str, list[list[object]]] = defaultdict(list)
        for run, entry in written:
            for channel in run.claim.watchers.values():
                deltas[channel].append([run.run_id, run.claim.attempt, entry.position, entry.payload])
        messages: list[tuple[str, dict[str, object]]] = []
        for channel, items in deltas.items():
            self._sent[channel] += 1
            messages.append((channel, {"type": "lc.step", "worker": self.worker_id, "n": self._sent[channel], "deltas": items}))
        return messages

    # After a loss.

    async def _recover(self) -> bool:
        """Compare the last id of each log with memory and append what is missing; false while Valkey is away."""
        runs = [*self._live.values(), *self._ended.values()]
        try:
            await self.beat()
            pipe = self._client.pipeline(transaction=False)
            for run in runs:
                pipe.hmget(self._keys.meta(run.run_id), "state", "attempt")
                pipe.xrevrange(self._keys.log(run.run_id), count=1)
            answers = await pipe.execute()
        except AWAY:
            return False
        self._has_lost = False
        self._backoff_s = MIN_BACKOFF_S
        missing: list[tuple[LiveRun, Entry]] = []
        for run, (state, attempt), last in zip(runs, answers[0::2], answers[1::2], strict=True):
            missing += self._missing(run, state, attempt, last)
        if missing:
            logger.info("Valkey is back: %d entries of %d runs written again", len(missing), len({run.run_id for run, _ in missing}))
            await self._write_and_announce(missing)
        return not self._has_lost

    def _missing(self, run: LiveRun, state: bytes | None, attempt: bytes | None, last: list[Any]) -> list[tuple[LiveRun, Entry]]:
        """Entries of the run that its log lacks. A run of another attempt is dropped; one that Valkey has forgotten is ended."""
        if attempt is None:
            if run.ending is None and not run.is_forgotten:
                run.is_forgotten = True
                self._abort(run.run_id, Outcome.FAILED)
            return [(run, run.entries[-1])] if run.ending is not None else []
        if int(attempt) != run.claim.attempt:
            self._drop(run)
            return []
        if state == b"ended":
            return [] if run.is_settled or run.ending is None else [(run, run.entries[-1])]
        run.is_logged = bool(last)
        last_attempt, last_position = entry_position(last[0][0]) if last else (0, -1)
        if last_attempt < run.claim.attempt:
            last_position = -1
        return [(run, entry) for entry in run.entries if entry.position > last_position]

    def _drop(self, run: LiveRun) -> None:
        """Forget a run that is not ours any more, and end it in the engine. Nobody is told: its new owner speaks."""
        with self._lock:
            self._dirty.pop(run.run_id, None)
            self._ended.pop(run.run_id, None)
            if self._live.pop(run.run_id, None) is None:
                return
            if run.ending is None:
                self._dropped[run.run_id] = asyncio.Event()
        logger.info("run %s is not ours any more", run.run_id)
        self._abort(run.run_id, Outcome.STOPPED)

    # Looking after runs.

    def _renew_live(self, pipe: Any, runs: list[LiveRun]) -> None:
        lease_end = int(self._clock() * 1000) + LIVE_LEASE_MS
        for run in runs:
            pipe.zadd(self._keys.admit_live(run.claim.caller), {run.run_id: lease_end}, xx=True)
            pipe.zadd(self._keys.model_live(self._slug), {run.run_id: lease_end}, xx=True)

    def _look_after(self, run: LiveRun, meta: Mapping[str, bytes]) -> None:
        if not meta:
            return
        if int(meta["attempt"]) != run.claim.attempt:
            self._drop(run)
            return
        run.claim.watchers = watchers_of(meta)
        if meta["stop"]:
            self.stop_run(run.run_id, Outcome(meta["stop"].decode()))

    def _forget_ended(self) -> None:
        horizon = self._clock() - KEEP_ENDED_S
        for run in [run for run in self._ended.values() if run.ended_at is not None and run.ended_at < horizon]:
            del self._ended[run.run_id]
