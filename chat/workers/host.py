"""The worker host: it owns a device and a memory budget, and has one ModelWorker for each model that is loaded.

It loads the model of the settings and pinned ones at once, and others when requests wait for them (`Keys.demand`). A
model stays until it was idle for its time, or until another needs its memory: then the least recently used one goes
that is neither pinned nor at work. A demand that has waited for PATIENCE_S makes a busy model retire: it takes no new
runs and goes when its last one has ended. Loads and unloads happen one after another. A model that is not loaded has a
lease of the host, `unloaded` or `failed`, so that every process sees its state within a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import RedisError

from chat.catalog.fingerprint import FileState, file_states
from chat.relay.commands import task_send
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.runs import LEASE_MS
from chat.relay.valkey import BlockingValkey
from chat.relay.worker.loop_thread import LoopThread
from chat.workers.memory import Resident, gigabytes, room_made
from chat.workers.model import ModelWorker
from chat.workers.offers import Offer
from engine.api import MemoryNeed
from engine.api.errors import EngineError, ModelLoadError
from engine.config import EngineConfig
from engine.core.link import ProcessLink
from engine.loading.maker_defaults import maker_defaults
from engine.model_kind import read_purpose

logger = logging.getLogger(__name__)

TURN_S = 0.25
LEASES_S = 1.0
PATIENCE_S = 10.0
SETTLE_S = 2.0
"""How long a loaded model counts as busy, while the runs that waited for it come."""
LEAVE_POLL_S = 0.05
RETRY_S, MAX_RETRY_S = 60.0, 600.0
"""The pause between two attempts to load a model whose files have not changed; it doubles."""
MAX_CORES_LOST = 3
"""Cores that may die while they load a model before it counts as failed."""
LOOK_S = 2.0
UNLOADED, LOADING, LOADED, LEAVING, FAILED = "unloaded", "loading", "loaded", "leaving", "failed"


class Consumer(Protocol):
    """What brings tasks of models to this process."""

    def start(self, slug: str) -> None:
        """Begin to fetch the tasks of a model; return once they are fetched."""

    def stop(self, slug: str) -> None:
        """Fetch no more tasks of a model; return once none is fetched any more."""

    def has_fetched(self, slug: str) -> bool:
        """Return True while fetched tasks of the model have not been handed over."""


@dataclass
class Hosted:
    """A model of this host."""

    offer: Offer
    slug: str
    lease_id: str
    """Of the lease while it has no worker."""
    stage: str = UNLOADED
    worker: ModelWorker | None = None
    need: MemoryNeed | None = None
    reason: str = ""
    """Why it is not loaded, for the operator."""
    maker_defaults: dict[str, float] | None = None
    kind: str = ""
    """A ModelKind; empty if its files cannot be read."""
    is_wanted: bool = False
    wanted_at: float = 0.0
    used_at: float = 0.0
    ready_at: float = 0.0
    num_cores_lost: int = 0
    retry_at: float = 0.0
    pause_s: float = RETRY_S
    stamp: tuple[FileState, ...] = ()
    """The state of its files when the last load began."""
    looked_at: float = 0.0

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def num_bytes(self) -> int:
        """What it takes of the budget while it has a core."""
        measured = self.worker.memory_bytes if self.worker is not None else 0
        return max(self.need.total_bytes if self.need is not None else 0, measured)

    @property
    def has_core(self) -> bool:
        return self.stage in (LOADING, LOADED, LEAVING)


@dataclass
class _Started:
    """The core that the process has started before the host, and its configuration."""

    config: EngineConfig
    core: ProcessLink | None


class WorkerHost:
    """The models of one worker process. Methods are thread-safe; `start` begins the work in threads of its own.

    `read_offers()` returns the offers, the one to load at the start first; it may raise OSError and django.db.Error.
    `need_of(config)` reads what a model needs, without its weights; raises ModelLoadError. `budget`: bytes.
    """

    def __init__(
        self,
        node: str,
        *,
        first: Offer,
        read_offers: Callable[[], Sequence[Offer]],
        need_of: Callable[[EngineConfig], MemoryNeed],
        consumer: Consumer,
        client: BlockingValkey,
        keys: Keys,
        budget: int,
        started_core: ProcessLink | None = None,
        make_worker: Callable[..., ModelWorker] = ModelWorker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._first = first
        self._read_offers = read_offers
        self._need_of = need_of
        self._consumer = consumer
        self._client: Any = client
        self._keys = keys
        self._budget = budget
        self._started = _Started(first.config, started_core)
        self._make_worker = make_worker
        self._clock = clock
        self._loop = LoopThread("publisher")
        self._lock = threading.RLock()
        self._hosted: dict[str, Hosted] = {}
        self._gone: dict[str, Hosted] = {}
        """Models that are no longer offered and have yet to leave."""
        self._is_stopping = threading.Event()
        self._wake = threading.Event()
        self._epoch: bytes | None = b"unread"
        self._leases_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="host", daemon=True)
        self._offer([first])
        self._want(self._hosted[first.name])

    def start(self) -> None:
        self._thread.start()

    # For tasks and commands.

    def take(self, slug: str, run_id: str, attempt: int) -> None:
        """Hand a run to the worker of its model. If there is none, put the task back and have the model loaded."""
        with self._lock:
            hosted = self._by_slug(slug)
            worker = hosted.worker if hosted is not None and hosted.stage in (LOADED, LEAVING, LOADING) else None
        if worker is not None:
            worker.take(run_id, attempt)
            return
        task_send(run_id, attempt, slug)
        self._ask_again(slug)

    def stop_run(self, run_id: str, outcome: str) -> None:
        """End a run early, whichever model has it."""
        for worker in self._workers():
            worker.stop_run(run_id, outcome)

    def unload(self, name: str) -> None:
        """Unload a model once its runs have ended; a later request loads it again. Ignores others."""
        with self._lock:
            hosted = self._hosted.get(name)
            if hosted is not None:
                hosted.is_wanted = False
                if hosted.stage == LOADED:
                    self._leave(hosted)

    def stats(self) -> dict[str, Any]:
        """Return the counters of each loaded model's engine after a check of its block tables, by model."""
        return {worker.config.model_name: worker.stats() for worker in self._workers()}

    def announce_drain(self) -> None:
        """Load nothing more, and say so in all leases."""
        self._is_stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LEASE_MS / 1000)
        self._drop_leases([hosted.lease_id for hosted in (*self._hosted.values(), *self._gone.values())])
        for worker in self._workers():
            worker.announce_drain()

    def close(self, drain_s: float) -> None:
        """Let the runs of all models end, for at most `drain_s` seconds, and end their cores."""
        deadline = time.monotonic() + drain_s
        threads = [
            threading.Thread(target=worker.close, args=(max(0.0, deadline - time.monotonic()),), daemon=True)
            for worker in self._workers()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._loop.close()

    # The host's own thread.

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                self.turn()
            except Exception:
                logger.exception("a turn of the host failed")
            self._wake.wait(TURN_S)
            self._wake.clear()

    def turn(self) -> None:
        """Look at offers, demands, idle and failed models; begin at most one load or the unloads that it needs."""
        for look in (self._refresh, self._take_demands):
            with _valkey_missed():
                look()
        with self._lock:
            now = self._clock()
            for hosted in self._hosted.values():
                self._look_at(hosted, now)
            self._place(now)
        if self._clock() - self._leases_at >= LEASES_S:
            self._write_leases()

    def _refresh(self) -> None:
        """Read the offers again if the catalogue has changed."""
        epoch = self._client.get(self._keys.configuration_epoch)
        if epoch == self._epoch:
            return
        try:
            offers = self._read_offers()
        except Exception as error:
            # Any error of the database: the models that are known are served meanwhile.
            logger.warning("the catalogue cannot be read, it is tried again: %s", error)
            return
        self._epoch = epoch
        with self._lock:
            self._offer(offers)

    def _offer(self, offers: Sequence[Offer]) -> None:
        """Host these models and no others. One whose configuration has changed is unloaded, and loads with the new."""
        wanted = {offer.name: offer for offer in offers}
        for name, hosted in list(self._hosted.items()):
            offer = wanted.get(name)
            if offer is not None and offer.config == hosted.offer.config:
                is_changed, hosted.offer = offer.adapters != hosted.offer.adapters, offer
                if is_changed and hosted.stage == LOADED and hosted.worker is not None:
                    threading.Thread(target=hosted.worker.adapters_set, args=(offer.adapters,), daemon=True).start()
                continue
            if hosted.stage in (LOADING, LEAVING):
                self._epoch = b"unread"  # looked at again in the next turn
                continue
            is_wanted = hosted.is_wanted or hosted.stage == LOADED
            if hosted.stage == LOADED:
                self._leave(hosted)
                self._gone[hosted.lease_id] = hosted
            else:
                self._drop_leases([hosted.lease_id])
            del self._hosted[name]
            if offer is not None:
                self._add(offer, is_wanted=is_wanted)
        for name, offer in wanted.items():
            if name not in self._hosted:
                self._add(offer)

    def _add(self, offer: Offer, *, is_wanted: bool = False) -> None:
        hosted = Hosted(offer, model_slug(offer.name), f"{self._node}~{secrets.token_hex(4)}")
        hosted.maker_defaults, hosted.kind = _defaults_of(offer.config), _kind_of(offer.config)
        self._hosted[offer.name] = hosted
        if is_wanted:
            self._want(hosted)

    def _take_demands(self) -> None:
        with self._lock:
            waiting = [hosted for hosted in self._hosted.values() if hosted.stage == UNLOADED and not hosted.is_wanted]
        if not waiting:
            return
        pipe = self._client.pipeline(transaction=False)
        for hosted in waiting:
            pipe.lpop(self._keys.demand(hosted.slug))
        for hosted, found in zip(waiting, pipe.execute(), strict=True):
            if found is not None:
                with self._lock:
                    self._want(hosted)

    def _want(self, hosted: Hosted) -> None:
        if not hosted.is_wanted:
            hosted.is_wanted, hosted.wanted_at = True, self._clock()

    def _look_at(self, hosted: Hosted, now: float) -> None:
        if hosted.stage == LOADED and hosted.worker is not None:
            if hosted.worker.has_work or now - hosted.ready_at < SETTLE_S:
                hosted.used_at = now
            elif 0 < hosted.offer.idle_s < now - hosted.used_at and not hosted.offer.is_pinned:
                logger.info("model %s was idle for %.0f s", hosted.name, now - hosted.used_at)
                self._leave(hosted)
        elif hosted.stage == FAILED:
            if now >= hosted.looked_at + LOOK_S:
                hosted.looked_at = now
                if (states := file_states(hosted.offer.config.model_path)) != hosted.stamp:
                    hosted.stamp, hosted.pause_s, hosted.retry_at = states, RETRY_S, now + LOOK_S
            if now >= hosted.retry_at:
                hosted.stage, hosted.reason, hosted.need = UNLOADED, "", None
                if hosted.offer.is_pinned or hosted.name == self._first.name:
                    self._want(hosted)
        elif hosted.stage == UNLOADED and hosted.offer.is_pinned:
            self._want(hosted)

    def _place(self, now: float) -> None:
        """Begin the load that has waited longest and has room, or make room for it."""
        everyone = (*self._hosted.values(), *self._gone.values())
        if any(hosted.stage == LOADING or hosted.stage == LEAVING for hosted in everyone):
            return
        residents = [self._resident(hosted, now) for hosted in everyone if hosted.has_core]
        wanted = [hosted for hosted in self._hosted.values() if hosted.is_wanted and hosted.stage == UNLOADED]
        for hosted in sorted(wanted, key=lambda hosted: hosted.wanted_at):
            if hosted.need is None and (residents or hosted.name != self._first.name):
                self._begin(hosted, self._appraise)
                return
            num_bytes = hosted.need.total_bytes if hosted.need is not None else 0
            leaving = room_made(num_bytes, self._budget, residents)
            if leaving == []:
                self._begin(hosted, self._load)
                return
            if leaving is None and now - hosted.wanted_at > PATIENCE_S:
                retiring = [
                    Resident(one.name, one.num_bytes, self._hosted[one.name].ready_at, not self._is_pinned(one.name))
                    for one in residents
                    if one.name in self._hosted
                ]
                leaving = room_made(num_bytes, self._budget, retiring)
            if leaving:
                for name in leaving:
                    logger.info("model %s makes room for %s", name, hosted.name)
                    self._leave(self._hosted[name])
                return
            busy = ", ".join(one.name for one in residents)
            hosted.reason = f"waits for memory: {gigabytes(num_bytes)} are needed beside {busy}"

    def _resident(self, hosted: Hosted, now: float) -> Resident:
        """Return a loaded model as it is seen now; one at work was used `now` (`_look_at`)."""
        may_leave = hosted.stage == LOADED and not hosted.offer.is_pinned and hosted.used_at < now
        return Resident(hosted.name, hosted.num_bytes, hosted.used_at, may_leave)

    def _is_pinned(self, name: str) -> bool:
        return self._hosted[name].offer.is_pinned

    def _begin(self, hosted: Hosted, work: Callable[[Hosted], None]) -> None:
        hosted.stage, hosted.stamp = LOADING, file_states(hosted.offer.config.model_path)
        threading.Thread(target=self._guarded, args=(hosted, work), name=f"load {hosted.name}", daemon=True).start()

    def _guarded(self, hosted: Hosted, work: Callable[[Hosted], None]) -> None:
        try:
            work(hosted)
        except Exception:
            logger.exception("model %s could not be loaded", hosted.name)
            self._fail(hosted, "The model could not be loaded; the worker's log has the details.")
        self._wake.set()

    # Loading and unloading, in threads of their own.

    def _appraise(self, hosted: Hosted) -> None:
        """Read what a model needs, and refuse one that can never fit, before it is read."""
        try:
            need = self._need_of(hosted.offer.config)
            with self._lock:
                kept = sum(one.num_bytes for one in self._hosted.values() if one.has_core and one.offer.is_pinned)
            if text := need.refusal(self._budget - kept):
                pinned = f" Pinned models keep {gigabytes(kept)} of them." if kept else ""
                raise ModelLoadError(f"{text}{pinned}")
        except ModelLoadError as error:
            logger.error("model %s cannot be served: %s", hosted.name, error.message)
            self._fail(hosted, error.message)
            return
        with self._lock:
            hosted.need, hosted.stage = need, UNLOADED

    def _load(self, hosted: Hosted) -> None:
        config = hosted.offer.config
        if hosted.need is not None and config.device == "cpu":
            config = dataclasses.replace(config, kv_cache_bytes=hosted.need.cache_bytes)
        logger.info("loading model %s", hosted.name)
        worker = self._make_worker(
            config,
            f"{self._node}~{secrets.token_hex(4)}",
            loop=self._loop,
            on_lost=lambda: self._lose(hosted),
            started_core=self._started_core(config),
        )
        with self._lock:
            hosted.worker = worker
        self._drop_leases([hosted.lease_id])
        if worker.load(lambda: self._consumer.start(hosted.slug), adapters=hosted.offer.adapters):
            with self._lock:
                now = self._clock()
                hosted.stage, hosted.ready_at, hosted.used_at, hosted.is_wanted = LOADED, now, now, False
                hosted.reason, hosted.pause_s, hosted.num_cores_lost = "", RETRY_S, 0
            if hosted.need is None and len(self._hosted) > 1:
                self._note_need(hosted)
            return
        hosted.num_cores_lost += worker.has_lost_core
        is_again = worker.has_lost_core and hosted.num_cores_lost < MAX_CORES_LOST
        if is_again:
            with self._lock:
                hosted.stage, hosted.worker = UNLOADED, None
            self._write_leases()
        else:
            self._fail(hosted, worker.reason)
        worker.close(0.0)

    def _note_need(self, hosted: Hosted) -> None:
        """Read what a model needs that was loaded before that was asked, as others are to fit beside it."""
        try:
            hosted.need = self._need_of(hosted.offer.config)
        except ModelLoadError as error:
            logger.warning("what %s needs is not known: %s", hosted.name, error.message)

    def _started_core(self, config: EngineConfig) -> ProcessLink | None:
        """Return the core that the process has started already, once; end it if its configuration is another."""
        core, self._started.core = self._started.core, None
        if core is not None and config != self._started.config:
            core.close(0.0)
            return None
        return core

    def _fail(self, hosted: Hosted, reason: str) -> None:
        with self._lock:
            hosted.stage, hosted.worker, hosted.reason = FAILED, None, reason
            hosted.is_wanted, hosted.num_cores_lost = False, 0
            hosted.retry_at = self._clock() + hosted.pause_s
            hosted.pause_s = min(MAX_RETRY_S, 2 * hosted.pause_s)
        self._write_leases()

    def _leave(self, hosted: Hosted) -> None:
        """Begin to unload a loaded model."""
        hosted.stage = LEAVING
        threading.Thread(target=self._guarded, args=(hosted, self._unload), name=f"unload {hosted.name}").start()

    def _lose(self, hosted: Hosted) -> None:
        """Give up a worker whose cores have died too often; the runs that it hands over wait for the next."""
        with self._lock:
            if hosted.stage == LOADED:
                self._leave(hosted)
                self._want(hosted)

    def _unload(self, hosted: Hosted) -> None:
        """Let the runs of a model end, then end its worker."""
        worker = hosted.worker
        assert worker is not None
        worker.retire()
        self._consumer.stop(hosted.slug)
        while (worker.has_work or self._consumer.has_fetched(hosted.slug)) and not self._is_stopping.is_set():
            time.sleep(LEAVE_POLL_S)
        if self._is_stopping.is_set():
            return  # `close` ends all workers
        with self._lock:
            hosted.worker = None
        self._write_leases()
        worker.close(0.0)
        with self._lock:  # only now is its memory free
            hosted.stage = UNLOADED
            self._gone.pop(hosted.lease_id, None)
        logger.info("model %s is unloaded", hosted.name)
        with _valkey_missed():
            if self._client.llen(self._keys.tasks(hosted.slug)):
                self._ask_again(hosted.slug)

    # Leases and demands.

    def _ask_again(self, slug: str) -> None:
        if not self._client.exists(self._keys.demand(slug)):
            self._client.lpush(self._keys.demand(slug), "1")

    def _write_leases(self) -> None:
        """Renew the leases of models without a worker. Does nothing while Valkey is away."""
        if self._is_stopping.is_set():
            return
        with self._lock:
            without = [(one.lease_id, one.slug, _lease_of(one)) for one in self._hosted.values() if one.worker is None]
        self._leases_at = self._clock()
        pipe = self._client.pipeline(transaction=False)
        for lease_id, slug, fields in without:
            pipe.hset(self._keys.worker(lease_id), mapping=fields)
            pipe.pexpire(self._keys.worker(lease_id), LEASE_MS)
            pipe.sadd(self._keys.workers, lease_id)
            pipe.sadd(self._keys.model_workers(slug), lease_id)
        with _valkey_missed():
            pipe.execute()

    def _drop_leases(self, lease_ids: Sequence[str]) -> None:
        with _valkey_missed():
            for lease_id in lease_ids:
                self._client.delete(self._keys.worker(lease_id))

    def _workers(self) -> list[ModelWorker]:
        with self._lock:
            everyone = (*self._hosted.values(), *self._gone.values())
            return [hosted.worker for hosted in everyone if hosted.worker is not None]

    def _by_slug(self, slug: str) -> Hosted | None:
        everyone = (*self._hosted.values(), *self._gone.values())
        found = [hosted for hosted in everyone if hosted.slug == slug]
        return next((hosted for hosted in found if hosted.worker is not None), found[0] if found else None)


def _lease_of(hosted: Hosted) -> Mapping[str, Any]:
    """Return the lease of a model without a worker; one that is being appraised is loading."""
    states = {FAILED: "failed", LOADING: "loading"}
    need = hosted.need
    return {
        "model": hosted.name,
        "state": states.get(hosted.stage, "unloaded"),
        "phase": "reading what it needs",
        "fraction": "0",
        "reason": hosted.reason,
        "seats": hosted.offer.config.max_num_seqs,
        "max_model_len": need.context if need is not None else 0,
        "memory_bytes": need.total_bytes if need is not None else 0,
        "maker_defaults": json.dumps(hosted.maker_defaults),
        "kind": hosted.kind,
    }


def _defaults_of(config: EngineConfig) -> dict[str, float] | None:
    try:
        return maker_defaults(config.model_path)
    except EngineError:
        return None  # loading will say why


def _kind_of(config: EngineConfig) -> str:
    try:
        return str(read_purpose(config.model_path).kind)
    except EngineError:
        return ""  # loading will say why


@contextlib.contextmanager
def _valkey_missed() -> Iterator[None]:
    """Leave undone what an unavailable Valkey does not take; a later turn does it."""
    try:
        yield
    except (RedisError, OSError) as error:
        logger.warning("Valkey does not answer: %s", error)
