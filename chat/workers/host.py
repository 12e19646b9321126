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
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chat.catalog.fingerprint import file_states
from chat.relay.commands import task_send
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.runs import LEASE_MS
from chat.relay.valkey import BlockingValkey
from chat.relay.worker.loop_thread import LoopThread
from chat.workers.host_messages import HostMessages, valkey_missed
from chat.workers.host_report import HostReporter
from chat.workers.hosted import (
    FAILED,
    LEAVING,
    LOADED,
    LOADING,
    LOOK_S,
    NOTHING,
    STEADY_S,
    UNLOADED,
    Consumer,
    Facts,
    Hosted,
    facts_of,
    lease_of,
)
from chat.workers.memory import gigabytes
from chat.workers.model import ModelWorker
from chat.workers.offers import Offer
from chat.workers.placement import Room, pinned_bytes
from engine.api import MemoryNeed
from engine.api.errors import ModelLoadError
from engine.config import EngineConfig
from engine.core.link import ProcessLink

logger = logging.getLogger(__name__)

TURN_S = 0.25
LEASES_S = 1.0
SETTLE_S = 2.0
"""How long a loaded model counts as busy, while the runs that waited for it come."""
LEAVE_POLL_S = 0.05
SEND_BACK_S = 1.0
MAX_CORES_LOST = 3
"""Cores that may die while they load a model before it counts as failed."""


@dataclass
class _Started:
    """The core that the process has started before the host, and its configuration."""

    config: EngineConfig
    core: ProcessLink | None


class WorkerHost:
    """The models of one worker process. Methods are thread-safe; `start` begins the work in threads of its own.

    `read_offers()` returns the offers, the one to load at the start first; it may raise OSError and django.db.Error.
    `need_of(config)` reads what a model needs, without its weights; raises ModelLoadError. `budget`: bytes.
    `is_bounded`: it was set by somebody, so the first model must fit it too, which is read before it is loaded.
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
        is_bounded: bool = False,
        started_core: ProcessLink | None = None,
        make_worker: Callable[..., ModelWorker] = ModelWorker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._first = first
        self._read_offers = read_offers
        self._need_of = need_of
        self._consumer = consumer
        self._messages = HostMessages(client, keys)
        self._room = Room(budget, first.name, is_bounded)
        self._started = _Started(first.config, started_core)
        self._make_worker = make_worker
        self._clock = clock
        self._loop = LoopThread("publisher")
        self._lock = threading.RLock()
        self._hosted: dict[str, Hosted] = {}
        self._gone: dict[str, Hosted] = {}
        """Models that are no longer offered and have yet to leave."""
        self._closing: list[ModelWorker] = []
        """Workers that no model has any more and whose cores have yet to end."""
        self._is_stopping = threading.Event()
        self._is_draining = False
        self._draining = threading.Lock()
        self._leases = threading.Lock()
        """Held while leases are written or dropped, so that none outlives what it says."""
        self._reporter = HostReporter(node, device=first.config.device, budget=budget)
        self._wake = threading.Event()
        self._epoch: bytes | None = b"unread"
        self._leases_at = float("-inf")
        self._threads = [
            threading.Thread(target=self._run, args=(turn,), name=name, daemon=True)
            for name, turn in (("host", self.turn), ("host offers", self.refresh))
        ]
        self._offer([first], {first.name: facts_of(first.config)})
        self._hosted[first.name].want(self._clock())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._reporter.watch, args=(self._is_stopping,), daemon=True).start()

    # For tasks and commands.

    def take(self, slug: str, run_id: str, attempt: int) -> None:
        """Hand a run to the worker of its model. If there is none, put the task back and have the model loaded."""
        with self._lock:
            hosted = self._by_slug(slug)
            worker = hosted.worker if hosted is not None else None
        if worker is not None and worker.is_serving:
            worker.take(run_id, attempt)
            return
        self._is_stopping.wait(SEND_BACK_S)  # this process may fetch it again
        task_send(run_id, attempt, slug)
        self._messages.ask(slug)

    def stop_run(self, run_id: str, outcome: str) -> None:
        """End a run early, whichever model has it."""
        for worker in self._workers():
            worker.stop_run(run_id, outcome)

    def unload(self, name: str) -> None:
        """Unload a model once it is loaded and its runs have ended; a later request loads it again. Ignores others."""
        with self._lock:
            hosted = self._hosted.get(name)
            if hosted is not None:
                hosted.is_wanted = False
                if hosted.stage == LOADED:
                    self._leave(hosted)

    def reload(self, name: str) -> None:
        """Load a model anew with the present settings and files once its runs have ended. Ignores others."""
        with self._lock:
            hosted = self._hosted.get(name)
            if hosted is not None and hosted.stage == LOADED:
                self._leave(hosted)
                hosted.want(self._clock())

    def drain(self, is_draining: bool) -> None:
        """Take no new runs and load nothing until this is taken back; live runs go on. Returns at once."""
        with self._lock:
            self._is_draining = is_draining
            loaded = [hosted for hosted in self._hosted.values() if hosted.stage == LOADED]
        self._leases_at = float("-inf")
        self._wake.set()
        for hosted in loaded:
            self._in_thread(hosted, self._follow_drain)

    def stats(self) -> dict[str, Any]:
        """Return the counters of each loaded model's engine after a check of its block tables, by model."""
        return {worker.config.model_name: worker.stats() for worker in self._workers()}

    def announce_drain(self) -> None:
        """Load nothing more, and say so in all leases."""
        self._is_stopping.set()
        self._wake.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(LEASE_MS / 1000)
        with self._lock:
            lease_ids = [hosted.lease_id for hosted in (*self._hosted.values(), *self._gone.values())]
        self._messages.drop(lease_ids)
        self._messages.leave(self._node)
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

    def _run(self, turn: Callable[[], None]) -> None:
        while not self._is_stopping.is_set():
            try:
                turn()
            except Exception:
                logger.exception("a turn of the host failed")
            self._wake.wait(TURN_S)
            self._wake.clear()

    def turn(self) -> None:
        """Look at demands, idle and failed models; begin at most one load, or the unloads that it needs."""
        if not self._is_draining:
            with valkey_missed():
                self._take_demands()
        with self._lock:
            now = self._clock()
            for hosted in self._hosted.values():
                self._look_at(hosted, now)
            has_begun = not self._is_draining and self._place(now)
        if has_begun or self._clock() - self._leases_at >= LEASES_S:
            self._write_leases()

    def refresh(self) -> None:
        """Read what has changed of the catalogue and of files. It may take as long as the database, or slow disks."""
        with valkey_missed():
            self._read_changed_offers()
        self._look_at_files()

    def _read_changed_offers(self) -> None:
        epoch = self._messages.epoch()
        if epoch == self._epoch:
            return
        try:
            offers = self._read_offers()
        except Exception as error:
            # Any error of the database: the models that are known are served meanwhile.
            logger.warning("the catalogue cannot be read, it is tried again: %s", error)
            return
        self._epoch = epoch
        known = {hosted.offer.config for hosted in list(self._hosted.values())}
        facts = {offer.name: facts_of(offer.config) for offer in offers if offer.config not in known}
        with self._lock:
            self._offer(offers, facts)

    def _look_at_files(self) -> None:
        """Look at the files of each model every LOOK_S. The lock is not held while disks are asked."""
        now = self._clock()
        with self._lock:
            due = [(one, one.stamp) for one in self._hosted.values() if now >= one.looked_at + LOOK_S]
        for hosted, stamp in due:
            states = file_states(hosted.offer.config.model_path)
            with self._lock:
                hosted.looked_at = now
                if hosted.stamp is stamp:  # no load has begun meanwhile
                    hosted.compare(states, now)

    def _offer(self, offers: Sequence[Offer], facts: Mapping[str, Facts]) -> None:
        """Host these models and no others. One whose configuration has changed is unloaded, and loads with the new."""
        wanted = {offer.name: offer for offer in offers}
        for name, hosted in list(self._hosted.items()):
            offer = wanted.get(name)
            if offer is not None and offer.config == hosted.offer.config:
                is_changed, hosted.offer = offer.adapters != hosted.offer.adapters, offer
                if is_changed and hosted.stage == LOADED and hosted.worker is not None:
                    self._set_adapters(hosted, hosted.worker)
                continue
            if hosted.stage in (LOADING, LEAVING):
                self._epoch = b"unread"  # looked at again in the next turn
                continue
            is_wanted = hosted.is_wanted or hosted.stage == LOADED
            if hosted.stage == LOADED:
                if hosted.worker is not None:
                    hosted.worker.outdated = "settings"
                self._leave(hosted)
                self._gone[hosted.lease_id] = hosted
            else:
                self._messages.drop([hosted.lease_id])
            del self._hosted[name]
            if offer is not None:
                self._add(offer, facts.get(name, NOTHING), is_wanted=is_wanted)
        for name, offer in wanted.items():
            if name not in self._hosted:
                self._add(offer, facts.get(name, NOTHING))

    def _add(self, offer: Offer, facts: Facts, *, is_wanted: bool = False) -> None:
        hosted = Hosted(offer, model_slug(offer.name), f"{self._node}~{secrets.token_hex(4)}")
        hosted.maker_defaults, hosted.kind, hosted.modalities = facts
        self._hosted[offer.name] = hosted
        if is_wanted:
            hosted.want(self._clock())

    def _take_demands(self) -> None:
        """Take what is asked for. What is loaded, or about to be, was asked for before: that is forgotten."""
        with self._lock:
            slugs = [hosted.slug for hosted in self._hosted.values() if hosted.stage != LEAVING]
        asked = self._messages.demands(slugs)
        with self._lock:
            now = self._clock()
            for hosted in self._hosted.values():
                if hosted.slug in asked and hosted.stage in (UNLOADED, FAILED):
                    hosted.retry_at = now  # requests do not ask for one that has failed, people do
                    hosted.want(now)

    def _look_at(self, hosted: Hosted, now: float) -> None:
        if hosted.stage == LOADED and hosted.worker is not None:
            if now - hosted.ready_at > STEADY_S:
                hosted.num_lost = 0
            if hosted.need is None and len(self._hosted) > 1 and not hosted.is_noted:
                hosted.is_noted = True
                threading.Thread(target=self._note_need, args=(hosted,), daemon=True).start()
            if hosted.worker.has_work or now - hosted.ready_at < SETTLE_S:
                hosted.used_at = now
            elif 0 < hosted.offer.idle_s < now - hosted.used_at and not hosted.offer.is_pinned:
                logger.info("model %s was idle for %.0f s", hosted.name, now - hosted.used_at)
                self._leave(hosted)
        elif hosted.stage == FAILED and now >= hosted.retry_at:
            hosted.stage, hosted.need = UNLOADED, None
            if hosted.offer.is_pinned or hosted.name == self._first.name:
                hosted.want(now)
        elif hosted.stage == UNLOADED and hosted.offer.is_pinned:
            hosted.want(now)

    def _place(self, now: float) -> bool:
        """Begin the load that has waited longest and has room, or make room for it; return whether one has begun."""
        next_one = self._room.placement(self._hosted.values(), self._gone.values(), now)
        for name in next_one.leaving:
            logger.info("model %s makes room for %s", name, next_one.waiting)
            self._leave(self._hosted[name])
        if next_one.appraise is not None:
            return self._begin(next_one.appraise, self._appraise)
        return next_one.load is not None and self._begin(next_one.load, self._load)

    def _begin(self, hosted: Hosted, work: Callable[[Hosted], None]) -> bool:
        hosted.stage = LOADING
        self._in_thread(hosted, work)
        return True

    def _in_thread(self, hosted: Hosted, work: Callable[[Hosted], None]) -> None:
        threading.Thread(target=self._guarded, args=(hosted, work), name=f"host {hosted.name}", daemon=True).start()

    def _guarded(self, hosted: Hosted, work: Callable[[Hosted], None]) -> None:
        worker = None
        try:
            work(hosted)
        except Exception:
            logger.exception("model %s could not be loaded or unloaded", hosted.name)
            worker = hosted.worker
            self._fail(hosted, "The model could not be loaded or unloaded; the worker's log has the details.")
        if worker is not None:
            with contextlib.suppress(Exception):  # the first failure is logged
                worker.close(0.0)
        self._wake.set()

    # Loading and unloading, in threads of their own.

    def _appraise(self, hosted: Hosted) -> None:
        """Read what a model needs, and refuse one that can never fit, before it is read."""
        hosted.stamp = file_states(hosted.offer.config.model_path)
        try:
            need = self._need_of(hosted.offer.config)
            with self._lock:
                kept = pinned_bytes(self._hosted.values())
            if text := need.refusal(self._room.budget - kept):
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
        stamp, hosted.stamp = hosted.stamp, file_states(config.model_path)
        if hosted.need is not None and hosted.stamp != stamp:  # what it needs was read of other files
            with self._lock:
                hosted.need, hosted.stage = None, UNLOADED
            return
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
        with self._leases:
            with self._lock:
                hosted.worker = worker
            self._messages.drop([hosted.lease_id])
        if worker.load(lambda: self._consumer.start(hosted.slug), adapters=lambda: hosted.offer.adapters):
            with self._lock:
                is_still_wanted = hosted.is_wanted
                hosted.have_loaded(self._clock())
                if worker.is_lost:
                    self._lose(hosted)
                elif not is_still_wanted:  # it was unloaded meanwhile
                    self._leave(hosted)
                else:
                    self._set_adapters(hosted, worker)
            if self._is_draining:
                self._follow_drain(hosted)
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
        except Exception as error:
            # Also one of the system, as where there is no memory for another process: the model is served all the same.
            logger.warning("what %s needs is not known: %s", hosted.name, error)

    def _set_adapters(self, hosted: Hosted, worker: ModelWorker) -> None:
        """Let a loaded model have the adapters of its offer."""
        read = lambda: hosted.offer.adapters  # noqa: E731  # read when its turn comes, as offers change
        threading.Thread(target=worker.adapters_set, args=(read,), daemon=True).start()

    def _started_core(self, config: EngineConfig) -> ProcessLink | None:
        """Return the core that the process has started already, once; end it if its configuration is another."""
        core, self._started.core = self._started.core, None
        if core is not None and config != self._started.config:
            core.close(0.0)
            return None
        return core

    def _fail(self, hosted: Hosted, reason: str) -> None:
        with self._lock:
            hosted.have_failed(reason, self._clock())
        self._write_leases()

    def _leave(self, hosted: Hosted) -> None:
        """Begin to unload a loaded model."""
        hosted.stage = LEAVING
        self._in_thread(hosted, self._unload)

    def _follow_drain(self, hosted: Hosted) -> None:
        """Let a loaded model drain, or take runs again, as the host does at this moment."""
        with self._draining:
            worker = hosted.worker
            if worker is None or hosted.stage != LOADED:
                return
            if self._is_draining:
                worker.announce_drain()
                self._consumer.stop(hosted.slug)
            else:
                self._consumer.start(hosted.slug)
                worker.resume()

    def _lose(self, hosted: Hosted) -> None:
        """Give up a worker whose cores have died too often; the runs that it hands over wait for the next."""
        with self._lock:
            if hosted.stage == LOADED:
                hosted.have_lost_cores(self._clock())
                self._leave(hosted)
                hosted.want(self._clock())

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
            self._closing.append(worker)
        self._write_leases()
        worker.close(0.0)
        with self._lock:  # only now is its memory free
            self._closing.remove(worker)
            hosted.stage = UNLOADED
            self._gone.pop(hosted.lease_id, None)
        logger.info("model %s is unloaded", hosted.name)
        with valkey_missed():
            if self._messages.has_tasks(hosted.slug):
                self._messages.ask(hosted.slug)

    def _write_leases(self) -> None:
        """Renew the leases of models without a worker. Does nothing while Valkey is away."""
        if self._is_stopping.is_set():
            return
        with self._leases:
            with self._lock:
                is_draining, names, everyone = self._is_draining, list(self._hosted), list(self._hosted.values())
                waiting = [one for one in everyone if one.worker is None]
                without = [(one.lease_id, one.slug, lease_of(one, is_draining=is_draining)) for one in waiting]
                held_bytes = sum(one.num_bytes for one in (*everyone, *self._gone.values()) if one.has_core)
            self._leases_at = self._clock()
            self._messages.write(
                without,
                lambda pipe, keys: self._reporter.write(
                    pipe, keys, names, held_bytes=held_bytes, is_draining=is_draining
                ),
            )

    def _workers(self) -> list[ModelWorker]:
        with self._lock:
            everyone = (*self._hosted.values(), *self._gone.values())
            return [*(hosted.worker for hosted in everyone if hosted.worker is not None), *self._closing]

    def _by_slug(self, slug: str) -> Hosted | None:
        everyone = (*self._hosted.values(), *self._gone.values())
        found = [hosted for hosted in everyone if hosted.slug == slug]
        return next((hosted for hosted in found if hosted.worker is not None), found[0] if found else None)
