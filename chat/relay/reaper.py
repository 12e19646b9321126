"""The reaper: ends the runs that dead processes leave behind, or queues them for another worker.

Each turn does the following. A lock lets one reaper work at a time.
  workers without a lease         queue their runs for the next attempt; after three attempts, end them as `worker_lost`
  web processes without a lease   leave all their runs, as their clients were cut off
  runs queued for 30 s            send the task again if a worker is ready (the claim makes duplicates harmless)
  runs queued for 6 s             end those without a task, whose client left before its web process ended them;
                                  ask for their model again if a worker could load it and none does
  runs queued for 90 s            end them if no worker of the model lives or loads; sooner at their own deadline
  unread runs                     end them when their grace time is over
It runs in the maintenance worker rather than in web processes, whose loops should serve requests alone.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chat.relay.state.keys import Keys
from chat.relay.state.records import pack_events, terminal_record, usage_of
from chat.relay.state.runs import MAX_ATTEMPTS, RunCompletion, Runs
from chat.relay.valkey import Answers, lock_hold
from engine.api import ErrorCode, Event, Failed, Outcome, Rejected

logger = logging.getLogger(__name__)

LOCK_MS = 3_000
QUEUED_MS = 30_000
ORPHANED_MS = 90_000
"""How long a run waits for a worker while none is alive. The supervisor restarts a dead worker after up to 30 s, and
seconds later its lease says `loading`."""
WAITED_MS = 6_000
"""Runs that have waited for less than this are not checked."""
QUIET_AFTER_LOSS_S = 6.0
COMING_STATES = frozenset({"ready", "loading", "unloaded", "draining"})
"""States of workers that may still take queued runs; the successor of a draining worker does."""
GONE_MESSAGE = "The request was given up before a worker took it."
TIMED_OUT_MESSAGE = "The request took longer than its time limit, as no worker could go on with it."
LOST_MESSAGE = "The worker of this request was lost and no other could finish it; please send the request again."


class Reaper:
    """`send_task(run_id, attempt, slug)` queues a run; `send_stop(worker_id, run_id, outcome)` tells a worker."""

    def __init__(
        self,
        *,
        client: Redis,
        keys: Keys,
        clock: Callable[[], float],
        send_task: Callable[[str, int, str], Awaitable[None]],
        send_stop: Callable[[str, str, str], Awaitable[None]],
    ) -> None:
        self.runs = Runs(client, keys, clock)
        self._client: Answers = client
        self._keys = keys
        self._clock = clock
        self._send_task = send_task
        self._send_stop = send_stop
        self._token = secrets.token_hex(8).encode()
        self._quiet_until = 0.0

    async def turn(self) -> None:
        """Do one round, unless another reaper has the lock or Valkey has just recovered: leases are renewed first."""
        try:
            has_lock = await lock_hold(self._client, self._keys.reaper, self._token, LOCK_MS)
            if not has_lock or self._clock() < self._quiet_until:
                return
            await self._reap_workers()
            await self._reap_webs()
            await self._reap_queue()
            await self._reap_unread()
        except (RedisError, OSError):
            self._quiet_until = self._clock() + QUIET_AFTER_LOSS_S
            raise

    async def _reap_workers(self) -> None:
        for raw in await self._client.smembers(self._keys.workers):
            worker_id = raw.decode()
            if await self._client.exists(self._keys.worker(worker_id)):
                continue
            for run in await self._client.smembers(self._keys.worker_runs(worker_id)):
                taken = await self.runs.take_over(run.decode(), worker_id)
                if taken is not None:
                    logger.warning("run %s taken from lost worker %s", run.decode(), worker_id)
                    await self._queue_again(run.decode(), *taken)
            if not await self._client.exists(self._keys.worker_runs(worker_id)):
                await self._client.srem(self._keys.workers, worker_id)

    async def _reap_webs(self) -> None:
        for raw in await self._client.smembers(self._keys.webs):
            web_id = raw.decode()
            if await self._client.exists(self._keys.web(web_id)):
                continue
            for run in await self._client.smembers(self._keys.web_runs(web_id)):
                worker_id = await self.runs.leave(run.decode(), web_id, Outcome.INTERRUPTED)
                if worker_id:
                    await self._send_stop(worker_id, run.decode(), Outcome.INTERRUPTED.value)
            await self._client.srem(self._keys.webs, web_id)

    async def _reap_queue(self) -> None:
        now_ms = int(self._clock() * 1000)
        states_of: dict[str, set[str]] = {}
        for raw, queued_at_ms in await self._client.zrangebyscore(
            self._keys.queued, "-inf", now_ms - WAITED_MS, withscores=True
        ):
            run_id = raw.decode()
            meta = self._keys.meta(run_id)
            state, *facts = await self._client.hmget(
                meta, "state", "attempt", "slug", "deadline_ms", "stop", "has_task"
            )
            if state != b"queued":
                await self._client.zrem(self._keys.queued, run_id)
                continue
            attempt, slug, deadline_ms = int(facts[0]), facts[1].decode(), int(facts[2] or 0)
            if facts[4] == b"0":
                outcome = Outcome((facts[3] or b"").decode() or Outcome.INTERRUPTED)
                await self._end(run_id, attempt, ErrorCode.OVERLOADED, GONE_MESSAGE, outcome)
                continue
            if slug not in states_of:
                states_of[slug] = await self._worker_states(slug)
            states, stop = states_of[slug], (facts[3] or b"").decode()
            if stop and "ready" not in states:
                await self._end(run_id, attempt, ErrorCode.OVERLOADED, GONE_MESSAGE, Outcome(stop))
            elif "ready" in states:
                if queued_at_ms <= now_ms - QUEUED_MS:
                    await self._client.zadd(self._keys.queued, {run_id: now_ms}, xx=True)
                    await self._queue_again(run_id, attempt, slug)
            elif 0 < deadline_ms <= now_ms:
                await self._end(run_id, attempt, ErrorCode.INFERENCE_TIMEOUT, TIMED_OUT_MESSAGE, Outcome.TIMED_OUT)
            elif "unloaded" in states and "loading" not in states:
                await self._ask_for(slug)
            elif not states & COMING_STATES and queued_at_ms <= now_ms - ORPHANED_MS:
                await self._end_as_lost(run_id, attempt)

    async def _ask_for(self, slug: str) -> None:
        """Ask for a model again: the worker that had taken the demand is gone."""
        if not await self._client.exists(self._keys.demand(slug)):
            await self._client.lpush(self._keys.demand(slug), "1")

    async def _reap_unread(self) -> None:
        for raw in await self._client.zrangebyscore(self._keys.unread, "-inf", int(self._clock() * 1000)):
            worker_id = await self.runs.stop(raw.decode(), Outcome.DISCONNECTED.value)
            if worker_id:
                await self._send_stop(worker_id, raw.decode(), Outcome.DISCONNECTED.value)

    async def _queue_again(self, run_id: str, attempt: int, slug: str) -> None:
        if attempt > MAX_ATTEMPTS:
            await self._end_as_lost(run_id, attempt)
        else:
            await self._send_task(run_id, attempt, slug)

    async def _worker_states(self, slug: str) -> set[str]:
        workers = await self._client.smembers(self._keys.model_workers(slug))
        states = [await self._client.hget(self._keys.worker(worker.decode()), "state") for worker in workers]
        return {state.decode() for state in states if state is not None}

    async def _end_as_lost(self, run_id: str, attempt: int) -> None:
        await self._end(run_id, attempt, ErrorCode.WORKER_LOST, LOST_MESSAGE, Outcome.WORKER_LOST)

    async def _end(self, run_id: str, attempt: int, code: ErrorCode, message: str, outcome: Outcome) -> None:
        """End a run without a worker: write an error event, and the terminal record with the logged usage."""
        meta = await self._client.hgetall(self._keys.meta(run_id))
        log = await self.runs.read_whole_log(run_id)
        events = [event for entry in log for event in entry.events()]
        position = log[-1].position + 1 if log else 0
        payload: Failed | Rejected = Rejected(code, message)
        if events:
            payload = Failed(code, message, usage_of(events), None, outcome)
        about = json.loads(meta[b"about"])
        record = terminal_record(
            about, payload, run_id=run_id, attempts=min(attempt, MAX_ATTEMPTS), worker="", ended_at=self._clock()
        )
        record["outcome"] = outcome.value
        reply = await self.runs.finish(
            RunCompletion(
                run_id=run_id,
                attempt=attempt,
                position=position,
                payload=pack_events([Event(position, 1, payload)]),
                record=record,
                slug=meta[b"slug"].decode(),
            )
        )
        logger.warning("run %s ended as %s after attempt %d: %s", run_id, outcome.value, attempt, reply)
