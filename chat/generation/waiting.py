"""Wait until a worker has admitted a run, and say meanwhile what the run waits for: its model, or its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from redis.exceptions import RedisError

from chat.generation.limits import unready_error
from chat.relay.state.keys import model_slug
from chat.relay.state.workers import STATE_ORDER, WorkerLease
from chat.relay.web.dispatcher import dispatcher_of_loop
from chat.relay.web.reader import RunReader
from engine.api import Admitted, EngineUnavailable, ErrorCode

LOOK_S = 0.5
LAST_S = 0.1
READY = "ready"
COMPUTING_STATES = ("ready", "draining")
FAILED = "failed"
"""The state of a model that ends the wait of its runs. A model without a worker does not: it may get another."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run waits for."""

    state: str
    """Of its model: `unloaded` (the load has not begun), `loading`, `draining` or `ready` (the run waits its turn)."""
    phase: str
    """Of loading."""
    fraction: float
    """The progress of loading, 0..1."""
    num_before: int
    """Runs of the same model that began to wait earlier."""


async def admission_await(reader: RunReader, *, model: str, timeout_s: float) -> Admitted:
    """Wait until the run is admitted. Raises EngineError, also once its model cannot be loaded."""
    if not reader.waits_for_model:
        return await reader.first(timeout_s=timeout_s)
    async for _ in waiting_watch(reader, model=model, timeout_s=timeout_s, counts_places=False):
        pass
    return await reader.first(timeout_s=0)


async def waiting_watch(
    reader: RunReader, *, model: str, timeout_s: float, counts_places: bool = True
) -> AsyncIterator[Waiting]:
    """Yield what the run waits for, about twice a second, until its first event is there.

    Raises EngineUnavailable after `timeout_s`, and once its model cannot be loaded.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + timeout_s
    has_failed = False
    while not await reader.has_begun(min(LOOK_S, max(0.0, until - clock()))):
        seen = await _waiting(reader.run_id, model, counts_places)
        if seen is None:  # Valkey does not answer, of which the reader takes care
            await asyncio.sleep(LAST_S)
            continue
        # A first look may be older than the run.
        if (seen.state == FAILED and has_failed) or (clock() >= until and seen.state != READY):
            raise reader.give_up(unready_error(model, seen.state, seen.fraction))
        if clock() >= until and not await reader.has_begun(LAST_S):
            text = f"No worker took the request within {timeout_s:g} s; please try again."
            raise reader.give_up(EngineUnavailable(ErrorCode.OVERLOADED, text))
        has_failed = seen.state == FAILED
        yield seen


async def model_is_away(model: str) -> bool:
    """Return True if no worker computes for the model, as when its core has died and is started again."""
    try:
        leases = await dispatcher_of_loop().workers_seen()
    except (RedisError, OSError):
        return False
    return not any(lease.state in COMPUTING_STATES for lease in leases if lease.model == model)


async def _waiting(run_id: str, model: str, counts_places: bool) -> Waiting | None:
    dispatcher = dispatcher_of_loop()
    try:
        leases = [lease for lease in await dispatcher.workers_seen() if lease.model == model]
        num_before = await dispatcher.place_in_queue(run_id, model_slug(model)) if counts_places else 0
    except (RedisError, OSError):
        return None
    best = min(leases, key=_rank, default=None)
    if best is None:
        return Waiting("", "", 0.0, num_before)
    return Waiting(best.state, best.phase, best.fraction, num_before)


def _rank(lease: WorkerLease) -> int:
    return STATE_ORDER.index(lease.state)
