"""The model worker: one engine and one publisher, for one loaded model. chat.workers.host has one for each.

1. The worker takes a lease in the state `loading` and loads the engine.
2. Once the model is loaded, the lease says `ready` and the tasks of `model.<slug>` come to it. If loading fails, the
   lease says `failed`, with the reason, until the host closes the worker.
3. On stop it drains: it takes no new runs; live ones end or, after LIGHTCONE_DRAIN_S, move to another worker. Before
   its model is unloaded it retires: its lease says `unloaded`, and new runs wait until a worker loads the model again.
4. If cores die too often, the worker hands its runs over, even to one that has yet to start, and calls `on_lost`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from channels.layers import get_channel_layer
from django.conf import settings

from chat.catalog.fingerprint import file_states
from chat.errors import INTERNAL_MESSAGE
from chat.relay.commands import task_send
from chat.relay.state.keys import Keys, model_slug
from chat.relay.state.records import usage_of
from chat.relay.state.runs import Claim, LogEntry, NotNow
from chat.relay.state.workers import CORE_COUNTERS
from chat.relay.valkey import ValkeyLine, valkey_connect
from chat.relay.worker.loop_thread import LoopThread
from chat.relay.worker.publisher import Publisher
from chat.workers.memory import process_memory
from chat.workers.pace import LoadProgress, Pace, pace_between
from chat.workers.running_settings import running_settings
from engine.api import Admitted, Completed, EngineError, ErrorCode, Event, Failed, Outcome, Payload, Rejected, Timings
from engine.config import EngineConfig
from engine.core.link import ProcessLink
from engine.core.supervisor import CoreLost
from engine.engine import Engine, EngineStats, Resume, RunEvents
from engine.loading.maker_defaults import maker_defaults

logger = logging.getLogger(__name__)

HEARTBEAT_FRESH_S = 3.0
WATCH_S = 1.0
DRAIN_POLL_S = 0.05
SEND_BACK_S = 1.0
HAND_OVER_S = 10.0
Adapters = Iterable[tuple[str, str]]
"""Name and path of each."""
SERVED_STATES = frozenset({"ready", "draining", "unloaded"})
"""States of a worker that has loaded its model."""


class ModelWorker:
    """A worker of one model that claims runs, submits them and maintains its lease. Methods are thread-safe.

    `loop` runs the publisher. `on_lost` is called when the cores have died too often: it must have `close` called.
    `started_core`: a core of this configuration, which the engine takes instead of starting one.
    """

    def __init__(
        self,
        config: EngineConfig,
        worker_id: str,
        *,
        loop: LoopThread,
        on_lost: Callable[[], None] = lambda: None,
        started_core: ProcessLink | None = None,
        make_engine: Callable[..., Engine] = Engine,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.worker_id = worker_id
        self.slug = model_slug(config.model_name)
        self._clock = clock
        self._started_at = clock()
        self._state, self._reason = "loading", ""
        self._progress = LoadProgress(clock)
        self._pace = Pace()
        self._settings = json.dumps(running_settings(config))
        self._total_bytes = sum(num_bytes for _, num_bytes, _ in file_states(config.model_path))
        self.outdated = ""
        """What has changed since it was loaded: `settings` or `files`; empty: nothing."""
        self.has_lost_core = False
        """The core died while it loaded the model."""
        self.memory_bytes = 0
        """Of the core, as it was measured last."""
        self._maker_defaults: dict[str, float] | None = None
        self._stats: EngineStats | None = None
        self._setting_adapters = threading.Lock()
        self._closing = threading.Event()
        self._on_lost = on_lost
        self._is_leaving = False
        self._has_left = threading.Event()
        self._loop = loop
        self._publisher = self._loop.call(self._make_publisher())
        self._engine = make_engine(
            config,
            self._publisher.publish,
            on_restarted=self._renew_soon,
            on_failed=self._leave,
            started_core=started_core,
        )
        self._loop.call(self._publisher.start())

    @property
    def state(self) -> str:
        return self._state

    @property
    def reason(self) -> str:
        """Why the model could not be loaded; empty otherwise."""
        return self._reason

    @property
    def has_work(self) -> bool:
        """Whether it has runs, or is about to."""
        return self._publisher.has_work

    @property
    def core_pid(self) -> int | None:
        """The process id of the core; None before it is started."""
        return self._engine.core_pid

    @property
    def is_lost(self) -> bool:
        """Whether its cores have died too often, so that it takes nothing more."""
        return self._is_leaving

    @property
    def is_serving(self) -> bool:
        """Whether its engine takes runs."""
        return self._engine.state in ("ready", "restarting", "draining")

    def load(self, on_loaded: Callable[[], None], adapters: Callable[[], Adapters] = tuple) -> bool:
        """Load the engine, call `on_loaded` and become `ready`; return False if that fails.

        A failure becomes the state `failed`, except the death of the core, which may not be the model's fault.
        """
        try:
            self._maker_defaults = maker_defaults(self.config.model_path)
            self._engine.start(self._note_progress)
            self.adapters_set(adapters)
            on_loaded()
        except CoreLost as error:
            logger.error("the model %s is not loaded: %s", self.config.model_name, error.message)
            self.has_lost_core, self._reason = True, error.message
            return False
        except EngineError as error:
            logger.error("the model %s cannot be served: %s", self.config.model_name, error.message)
            self._set_state("failed", error.message)
            return False
        except Exception:
            logger.exception("the model %s cannot be served", self.config.model_name)
            self._set_state("failed", "The model could not be loaded; the worker's log has the details.")
            return False
        self._stats = self._engine.stats()  # the first lease that says `ready` has the context
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()
        self._set_state("ready")
        logger.info("model %s is ready after %.1f s", self.config.model_name, self._clock() - self._started_at)
        return True

    def adapters_set(self, adapters: Callable[[], Adapters]) -> None:
        """Let the engine have these LoRA adapters and no others; one that cannot be loaded is left out and logged.

        They are read when those before are set, so the last of several changes stays.
        """
        with self._setting_adapters:
            wanted = {name: str(Path(path).absolute()) for name, path in adapters()}
            held = {adapter.name: adapter.path for adapter in self._engine.adapters()}
            for name, path in held.items():
                if wanted.get(name) != path:
                    self._engine.remove_adapter(name)
            for name, path in wanted.items():
                if held.get(name) != path:
                    try:
                        self._engine.add_adapter(name, Path(path))
                    except EngineError as error:
                        logger.error("adapter %s:%s is not served: %s", self.config.model_name, name, error.message)

    def take(self, run_id: str, attempt: int) -> None:
        """Claim the run and submit it. Blocks, so it must not run on the publisher's loop."""
        try:
            taken = self._loop.call(self._publisher.claims.take(run_id, attempt))
        except NotNow:
            self._send_back(run_id, attempt)
            return
        if taken is None:
            return
        claim, log = taken
        resume = _resume_of(log)
        if claim.stop:
            timings = Timings(claim.request.arrived_at, ended_at=self._clock())
            self._end(claim, resume, Completed(Outcome(claim.stop), usage_of(resume.events), timings))
            return
        try:
            self._engine.submit(claim.request, resume if attempt > 1 else None)
        except EngineError as error:
            if self._engine.state != "failed":  # then it goes to another worker, with the others
                self._end(claim, resume, Rejected.by(error))
        except Exception:
            logger.exception("run %s could not be submitted", run_id)
            self._end(claim, resume, Rejected(ErrorCode.INTERNAL_ERROR, INTERNAL_MESSAGE))
        if self._publisher.is_letting_go(run_id):
            # Another worker took the run over during the submit. The first abort came too early for the engine,
            # and the next attempt waits until the engine has let go of this one.
            self._engine.abort(run_id, Outcome.STOPPED)

    def stop_run(self, run_id: str, outcome: str) -> None:
        self._publisher.stop_run(run_id, Outcome(outcome))

    def stats(self) -> dict[str, Any]:
        """Return the engine's counters and the result of its integrity check. Waits for the core's current step."""
        return {"num_live": self._publisher.num_live, **dataclasses.asdict(self._engine.stats(check_integrity=True))}

    def announce_drain(self) -> None:
        """Write `draining` into the lease, so that no web process admits further runs for this worker."""
        if self._state in ("loading", "ready") and not self._is_leaving:
            self._set_state("draining")

    def resume(self) -> None:
        """Take runs again after `announce_drain`."""
        if self._state == "draining" and self._stats is not None and not self._is_leaving:
            self._set_state("ready")

    def close(self, drain_s: float) -> None:
        """Drain: wait for live runs, hand over the rest if another worker can take them, and end the engine."""
        if self._is_leaving:
            self._has_left.wait(HAND_OVER_S)
        else:
            self.announce_drain()
            deadline = time.monotonic() + drain_s
            while self._publisher.has_work and time.monotonic() < deadline:
                time.sleep(DRAIN_POLL_S)
            self._hand_over(to_anyone=False)
        self._closing.set()
        self._engine.close(0.0)
        self._loop.call(self._publisher.close())

    def retire(self) -> None:
        """Let the lease say `unloaded`, so that new runs wait; those that it has, or will claim, go on."""
        self._set_state("unloaded")

    def _leave(self) -> None:
        """Shut down after too many core deaths, for the engine, which then fails the runs that were not handed over.

        1. Have the worker closed, so that it takes no more tasks.
        2. Give up the lease, so that it can claim no more runs, and queue the live ones again.
        """
        logger.error(
            "the engine's core died repeatedly: this worker hands over %d runs and leaves", self._publisher.num_live
        )
        self._is_leaving = True
        self._on_lost()
        self._hand_over(to_anyone=True)
        self._has_left.set()

    def _hand_over(self, *, to_anyone: bool) -> None:
        try:
            for run_id, attempt in self._loop.call(self._publisher.hand_over(to_anyone=to_anyone), HAND_OVER_S):
                task_send(run_id, attempt, self.slug)
        except Exception as error:
            # Any error of the broker or Valkey: the reaper finds the runs that were not handed over.
            logger.warning("live runs were not handed over: %s", error)

    def _send_back(self, run_id: str, attempt: int) -> None:
        """Put the task of a run back into the queue, after a pause if this worker may fetch it again."""
        if not self._is_leaving:
            self._closing.wait(SEND_BACK_S)
        task_send(run_id, attempt, self.slug)

    def lease(self) -> Mapping[str, Any] | None:
        """Return the fields of the lease; None once the worker gives up, or if its core is busy without a heartbeat."""
        if self._is_leaving or (self._state in SERVED_STATES and self._engine.state == "failed"):
            return None
        core = self._stats.core if self._stats else None
        state = self._state
        if state in SERVED_STATES:
            if self._engine.state == "restarting":
                state = "loading"
                self._progress.note("starting again", 0.0)
            elif self._publisher.num_live and not self._has_heartbeat():
                return None
        return {
            "model": self.config.model_name,
            "state": state,
            "phase": self._progress.phase,
            "fraction": f"{self._progress.fraction:.3f}",
            "seconds_left": f"{self._progress.seconds_left:.1f}",
            "total_bytes": self._total_bytes,
            "settings": self._settings,
            "outdated": self.outdated,
            "beat_at": self._clock(),
            "input_per_s": f"{self._pace.input_per_s:.2f}",
            "output_per_s": f"{self._pace.output_per_s:.2f}",
            "step_ms": f"{self._pace.step_ms:.2f}",
            "reason": self._reason,
            "seats": self.config.max_num_seqs,
            "max_model_len": self._stats.max_model_len if self._stats else 0,
            "longest_token_chars": self._stats.longest_token_chars if self._stats else 0,
            "computed_by": self._stats.computed_by if self._stats else "",
            "kind": self._stats.kind if self._stats else "",
            "maker_defaults": json.dumps(self._maker_defaults),
            "modalities": json.dumps(self._stats.modalities if self._stats else None),
            "started_at": self._started_at,
            "num_live": self._publisher.num_live,
            "memory_bytes": self.memory_bytes,
            **{name: getattr(core, name) if core else 0 for name in CORE_COUNTERS},
        }

    async def _make_publisher(self) -> Publisher:
        return Publisher(
            client=valkey_connect(settings.LIGHTCONE_REDIS_URL),
            keys=Keys(settings.LIGHTCONE_DEPLOYMENT),
            layer=get_channel_layer("tokens"),
            worker_id=self.worker_id,
            slug=self.slug,
            abort=lambda run_id, outcome: self._engine.abort(run_id, outcome),
            lease=self.lease,
            clock=self._clock,
            flush_mode=settings.LIGHTCONE_LOG_FLUSH,
            line=ValkeyLine(settings.LIGHTCONE_REDIS_URL),
        )

    def _has_heartbeat(self) -> bool:
        at = self._engine.heartbeat_at
        return at is None or self._clock() - at < HEARTBEAT_FRESH_S

    def _note_progress(self, phase: str, fraction: float) -> None:
        self._progress.note(phase, fraction)

    def _set_state(self, state: str, reason: str = "") -> None:
        """Change the state and write the lease at once, as other processes decide by it."""
        self._state, self._reason = state, reason
        self._loop.call(self._publisher.beat_safely())

    def _renew_soon(self) -> None:
        """Write the lease in the background: no request may be refused as `loading` once the core is back."""
        self._loop.spawn(self._publisher.beat_safely())

    def _watch(self) -> None:
        """Refresh the engine's counters, off the publisher's loop: a query may take as long as the longest step."""
        looked_at = time.monotonic()
        while not self._closing.wait(WATCH_S):
            before, self._stats = self._stats, self._engine.stats()
            now = time.monotonic()
            self._pace = pace_between(before.core if before else None, self._stats.core, now - looked_at)
            looked_at = now
            pid = self._engine.core_pid
            self.memory_bytes = (pid and process_memory(pid)) or self.memory_bytes

    def _end(self, claim: Claim, resume: Resume, payload: Completed | Rejected) -> None:
        """Publish the end of a run that the engine never accepted. After an admission a rejection is a failure."""
        payloads: list[Payload] = [payload]
        if resume.admitted is None and isinstance(payload, Completed):
            payloads.insert(0, Admitted(0, 0, 0))
        elif resume.admitted is not None and isinstance(payload, Rejected):
            payloads = [Failed(payload.code, payload.message, usage_of(resume.events))]
        events = tuple(Event(resume.position + index, 1, item) for index, item in enumerate(payloads))
        self._publisher.publish([RunEvents(claim.run_id, events)])


def _resume_of(log: list[LogEntry]) -> Resume:
    """Return what earlier attempts logged. The last entry is the `begin` of this attempt, which covers one position."""
    events = tuple(event for entry in log for event in entry.events())
    return Resume(events, log[-1].position + 1 if log else 0)
