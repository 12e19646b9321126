"""The runs that the engine serves: their table, the events that the outputs of a step become, and how runs end.

A thread ends runs at their deadlines. The engine also looks at each heartbeat of the core; these are a second apart.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.api import ErrorCode, Event, Outcome
from engine.api.errors import EngineUnavailable
from engine.messages import SequenceOutput
from engine.requests.runs.run import FAILED, Choice, Run, Termination

logger = logging.getLogger(__name__)

MAX_DEATHS = 2
"""A run fails when so many cores have died while they had it, the last of them in a step with it."""
LONGEST_WAIT_S = 60.0
"""After this time the thread of the deadlines reads the clock again, which may have been set."""


@dataclass(frozen=True, slots=True)
class RunEvents:
    """New events of one run, in order of position."""

    run_id: str
    events: tuple[Event, ...]


Publish = Callable[[list[RunEvents]], None]


class ServedRuns:
    """The unfinished runs of an engine, by run id and by the ids of their sequences. Methods are thread-safe.

    `changed` guards the table and is notified when a run ends; its lock must be reentrant. A run is in the table before
    it `is_sent`. Only runs that are sent are ended here: one whose admission is just being published is ended by the
    thread that submits it.
    """

    def __init__(
        self,
        publish: Publish,
        clock: Callable[[], float],
        changed: threading.Condition,
        *,
        send: Callable[[Run], None],
        abort: Callable[[list[int]], None],
    ) -> None:
        """`send` hands the sequences of a run to the core, `abort` has the core drop sequences."""
        self.publish = publish
        self._clock = clock
        self._changed = changed
        self._send = send
        self._abort = abort
        self._updating = threading.RLock()
        """Held while runs take outputs or end, and while events are published. Taken before `changed`, never after."""
        self._runs: dict[str, Run] = {}
        self._by_seq_id: dict[int, tuple[Run, Choice]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        """Iterate over the runs of this moment."""
        with self._changed:
            return iter(list(self._runs.values()))

    def get(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def sent(self) -> list[Run]:
        """Return the runs that a core has, or had."""
        return [run for run in self if run.is_sent]

    def num_sequences(self) -> Counter[str]:
        """Count the sequences with the core, by tenant."""
        with self._changed:
            return Counter(run.request.tenant for run, _ in self._by_seq_id.values())

    def add(self, run: Run) -> None:
        """Add a run. Raises EngineUnavailable if its id is being served."""
        with self._changed:
            if run.run_id in self._runs:
                raise EngineUnavailable(ErrorCode.INVALID_VALUE, "the run is already being served")
            self._runs[run.run_id] = run
            for choice in run.choices:
                if choice.is_live:
                    self._by_seq_id[choice.seq_id] = (run, choice)

    def take(self, outputs: list[SequenceOutput]) -> None:
        """Publish the events of one step in one call, and have the core drop sequences that a stop string has ended."""
        with self._updating:
            now = self._clock()
            events: dict[str, list[Event]] = {}
            surplus: list[int] = []
            for output in outputs:
                found = self._by_seq_id.get(output.seq_id)
                if found is None:
                    continue
                run, choice = found
                if new := self._take_output(run, choice, output, now):
                    events.setdefault(run.run_id, []).extend(new)
                if not choice.is_live and output.finish is None:
                    surplus.append(output.seq_id)
                self._remove_ended(run, choice, surplus)
                if run.needs_core and not run.is_ended:
                    self._send(run)
            if surplus:
                self._abort(surplus)
            if events:
                self.publish([RunEvents(run_id, tuple(new)) for run_id, new in events.items()])

    def terminate(self, run: Run, termination: Termination) -> None:
        """Record why a run ends early and abort it in the core, whose answer ends it; the first cause counts."""
        with self._changed:
            if run.termination is not None:
                return
            run.termination = termination
            if run.is_sent:
                self._abort(run.live_ids())

    def end_due(self, run_ids: list[str]) -> None:
        """End those of the runs that are past their deadlines, without waiting for a core that is deep in a step."""
        now, termination = self._clock(), Termination(Outcome.TIMED_OUT)
        with self._updating:
            with self._changed:
                due = [run for run in filter(None, map(self._runs.get, run_ids)) if run.is_overdue(now)]
                for run in due:
                    self.terminate(run, termination)
            self.end([run for run in due if run.is_sent], termination)

    def end_overdue(self) -> None:
        """End all runs that are past their deadlines, also by a change of the clock."""
        self.end_due([run.run_id for run in self])

    def end_without_core(self) -> None:
        """End the runs that became overdue or were stopped while there is no core to ask."""
        now = self._clock()
        with self._changed:
            sent = self.sent()
            for run in sent:
                if run.is_overdue(now):
                    run.termination = run.termination or Termination(Outcome.TIMED_OUT)
            stopped = [run for run in sent if run.termination is not None]
        self.end(stopped, None)

    def end_suspects(self, seq_ids: list[int]) -> None:
        """Count the death of a core, and fail runs of its last step, `seq_ids`, that had survived a death before."""
        with self._changed:
            sent = self.sent()
            for run in sent:
                run.num_deaths += 1
            blamed = [run for run in sent if not set(seq_ids).isdisjoint(run.live_ids())]
            suspects = [run for run in blamed if run.num_deaths >= MAX_DEATHS]
        if suspects:
            text = "the core has died %d times with the same runs in its step; %d fail"
            logger.error(text, MAX_DEATHS, len(suspects))
        self.end(suspects, FAILED)

    def end(self, runs: list[Run], termination: Termination | None) -> None:
        """Publish the end of runs without asking the core. Runs that have ended meanwhile are left alone."""
        with self._updating:
            ended = [run for run in runs if self._remove(run)]
            events = []
            for run in ended:
                run.termination = run.termination or termination
                events.append(RunEvents(run.run_id, (run.end(self._clock()),)))
                _log_end(run)
            if events:
                self.publish(events)

    def _take_output(self, run: Run, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """Return the events of an output; a run that cannot process it fails."""
        position = run.position
        try:
            return run.take(choice, output, now)
        except Exception:
            logger.exception("run %s fails: its output could not be processed", run.run_id)
            run.termination, run.position = FAILED, position
            return [run.end(now)]

    def _remove_ended(self, run: Run, choice: Choice, surplus: list[int]) -> None:
        """Remove an ended choice, and its run if that has ended; add sequences left over to `surplus`."""
        if choice.is_live:
            return
        with self._changed:
            self._by_seq_id.pop(choice.seq_id, None)
            if not run.is_ended:
                return
            surplus += [other.seq_id for other in run.choices if other.seq_id in self._by_seq_id]
            self._remove(run)
        _log_end(run)

    def _remove(self, run: Run) -> bool:
        """Take a run out of the table; False if it has left."""
        with self._changed:
            if self._runs.get(run.run_id) is not run:
                return False
            del self._runs[run.run_id]
            for choice in run.choices:
                self._by_seq_id.pop(choice.seq_id, None)
            self._changed.notify_all()
        return True


def _log_end(run: Run) -> None:
    usage, timings = run.usage(), run.timings
    logger.info(
        "run %s %s: %d prompt tokens (%d cached), %d completion tokens, %.3f s",
        run.run_id,
        run.termination.outcome if run.termination else Outcome.FINISHED,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        (timings.ended_at or timings.arrived_at) - timings.arrived_at,
    )


class Deadlines:
    """The deadlines of runs. A thread, which the first one starts, calls `on_due(run_ids)`, also of ended runs."""

    def __init__(self, clock: Callable[[], float], on_due: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._waiting: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def add(self, run_id: str, deadline_at: float) -> None:
        """Add a deadline (unix seconds). Thread-safe."""
        with self._changed:
            heapq.heappush(self._waiting, (deadline_at, run_id))
            if self._waiting[0][1] == run_id:
                self._changed.notify()
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._watch, name="engine-deadlines", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Report nothing more. Idempotent."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while due := self._next_due():
            try:
                self._on_due(due)
            except Exception:
                logger.exception("%d runs could not be ended at their deadlines", len(due))

    def _next_due(self) -> list[str]:
        """Wait for the next runs that are due; return none after `close`."""
        with self._changed:
            while not self._is_closing:
                now = self._clock()
                due = []
                while self._waiting and self._waiting[0][0] <= now:
                    due.append(heapq.heappop(self._waiting)[1])
                if due:
                    return due
                self._changed.wait(min(self._waiting[0][0] - now, LONGEST_WAIT_S) if self._waiting else None)
        return []
