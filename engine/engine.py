"""Engine: what a worker process holds. Takes requests, publishes events, owns the core. Imports no torch.

`submit` renders, tokenises and checks in the caller's thread, then hands sequences to the core. One receiver thread turns what the
core sampled into events and publishes them, once per step; it also starts the core anew when it dies, with every unfinished sequence
where it stood. Runs whose deadline has passed are ended by a thread that waits for the next one (deadlines.py).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from engine.api import (
    Admitted,
    Delta,
    EngineError,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    Outcome,
    Rejected,
    Usage,
)
from engine.api.errors import EngineUnavailable
from engine.config import EngineConfig
from engine.core.link import CoreLink, LinkClosed
from engine.core.supervisor import Connect, CoreRestarter, Progress, connect_core
from engine.inputs.limits import ContextLimits
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import Renderer
from engine.messages import (
    AbortSequences,
    AnnounceSteps,
    CoreFailed,
    CoreStats,
    FromCore,
    Heartbeat,
    QueryStats,
    SequenceOutput,
    StepResult,
    StepStarted,
)
from engine.outputs.parsing import OutputParsing
from engine.requests.deadlines import Deadlines
from engine.requests.prepare import Admission
from engine.requests.runs.run import FAILED, LOST, Choice, Ending, Run
from engine.slow_work import SlowWork
from engine.structured.registry import AnswerGrammars
from engine.tokenizers.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

STATS_TIMEOUT_S = 5.0
MAX_DEATHS = 2
"""So many cores may die with a run in the step that they die of; then it fails."""
LEAVE_S = 5.0
"""What a core may take to end its runs and leave when the engine closes."""


@dataclass(frozen=True, slots=True)
class RunEvents:
    """New events of one run, in order of position."""

    run_id: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """What an earlier attempt logged of a run, complete and in order. `next_position` None: right after the last event."""

    events: tuple[Event, ...]
    next_position: int | None = None

    @property
    def position(self) -> int:
        if self.next_position is not None:
            return self.next_position
        return self.events[-1].start + self.events[-1].count if self.events else 0

    @property
    def admitted(self) -> Admitted | None:
        return next((event.payload for event in self.events if isinstance(event.payload, Admitted)), None)

    @property
    def usage(self) -> Usage:
        """What the logged events account for."""
        num_prompt_tokens = self.admitted.num_prompt_tokens if self.admitted else 0
        return Usage(
            num_prompt_tokens,
            0,
            sum(len(event.payload.token_ids) for event in self.events if isinstance(event.payload, Delta)),
        )


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. `state`: "loading", "ready", "restarting", "draining", "failed" or "closed". Counters since the core's start.

    `longest_token_chars`: no token stands for more characters; 0 until the tokenizer is there.
    """

    state: str
    num_runs: int
    num_restarts: int
    max_model_len: int
    heartbeat_at: float | None
    core: CoreStats | None
    longest_token_chars: int = 0


Publish = Callable[[list[RunEvents]], None]


class Engine:
    """One model, served by one core. Methods are thread-safe.

    `publish` is called with the news of a step from the receiver thread, and with the first event of a run from the thread that
    submits it; it must not block for long. `on_restarted` is called from the receiver thread when another core serves in place of a dead
    one; it must not block. `on_failed` is called once, from the receiver thread, when cores have died too often and the engine takes no
    more runs: what it does not give to another engine fails when it returns.
    """

    def __init__(
        self,
        config: EngineConfig,
        publish: Publish,
        *,
        on_restarted: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
        connect: Connect = connect_core,
        clock: Callable[[], float] = time.time,
        renderer: Renderer | None = None,
    ) -> None:
        self._config = config
        self._publish = publish
        self._on_restarted = on_restarted
        self._on_failed = on_failed
        self._starter = CoreRestarter(config, connect, clock)
        self._clock = clock
        self._deadlines = Deadlines(clock, self._end_due)
        self._renderer = renderer
        self._state = "loading"
        self._changed = threading.Condition()
        """Guards the state, the link and the two tables; notified when a run ends."""
        self._taking = threading.RLock()
        """Held while runs take news or are ended, and these are published. Taken before `_changed`, never while that is held."""
        self._runs: dict[str, Run] = {}
        self._by_seq_id: dict[int, tuple[Run, Choice]] = {}
        self._heartbeat_at: float | None = None
        self._longest_token_chars = 0
        self._in_step: list[int] = []
        """Sequences in the step that the core is computing, if it announces them."""
        self._asking = threading.Lock()
        self._core_stats: CoreStats | None = None
        self._has_answer = threading.Event()
        self._last_ending: Ending | None = None
        """Set when the receiver has left: how a run ends that is handed over after that."""
        self._link: CoreLink
        self._admission: Admission
        self._processor: PromptProcessor
        self._forms: AnswerGrammars
        self._limits: ContextLimits
        self._receiver: threading.Thread | None = None

    @property
    def state(self) -> str:
        """As in `EngineStats`, without asking the core."""
        return self._state

    @property
    def heartbeat_at(self) -> float | None:
        """When the core last gave a sign of life (unix seconds); it does so once a second, during a long step too."""
        return self._heartbeat_at

    def start(self, progress: Progress | None = None) -> None:
        """Load the model and wait until it is ready; `progress(phase, fraction)`. Raises ModelLoadError."""
        self._link = self._starter.connect()
        processor = None
        try:
            tokenizer = Tokenizer.from_path(self._config.model_path)
            self._longest_token_chars = tokenizer.longest_token_chars
            work = SlowWork()
            parsing = OutputParsing(tokenizer, self._config.tool_parser, self._config.reasoning_parser)
            self._forms = AnswerGrammars(self._config.model_path, parsing.tool_format, self._config.structured, work)
            processor = self._processor = PromptProcessor(tokenizer, self._renderer, work)
            self._admission = Admission(self._config, tokenizer, processor, parsing, self._forms)
            self._limits = self._starter.await_ready(self._link, progress)
        except Exception:
            self._state = "failed"
            if processor is not None:
                processor.close()
            self._link.close(0.0)
            raise
        if self._starter.has_processes:
            self._forms.warm()
        self._state = "ready"
        self._receiver = threading.Thread(target=self._receive, name="engine-receiver", daemon=True)
        self._receiver.start()

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        """Admit or reject a run; either is published before this returns. Raises EngineUnavailable while it takes no runs."""
        self._check_available()
        resume = resume or Resume(())
        try:
            known, position = self._num_known(), resume.position
            run = self._admission.run(
                request, self._limits, num_known=known, position=position, admitted=resume.admitted
            )
        except EngineError as error:
            is_admitted = resume.admitted is not None
            failed = Failed(error.code, error.message, resume.usage, param=error.param)
            refusal = failed if is_admitted else Rejected(error.code, error.message, error.param)
            self._publish([RunEvents(request.run_id, (Event(resume.position, 1, refusal),))])
            return
        events = [] if resume.admitted else [run.event(run.admitted())]
        events += run.replay(resume.events)
        if not run.live_ids():
            events.append(run.end(self._clock()))
        else:
            self._register(run)
        if events:
            self._publish([RunEvents(request.run_id, tuple(events))])
        if not run.is_ended:
            self._send_run(run)

    def abort(self, run_id: str, outcome: Outcome) -> None:
        """End a run early; Completed with `outcome` and the exact usage is published. Unknown and ended runs are ignored."""
        with self._changed:
            run = self._runs.get(run_id)
            if run is not None:
                self._end_early(run, Ending(outcome))

    def stats(self, check_integrity: bool = False) -> EngineStats:
        """A snapshot; counters are asked of the core, and are None when it does not answer. `check_integrity` verifies its blocks too."""
        core = self._ask_core(QueryStats(check_integrity)) if self._state in ("ready", "draining") else None
        context = self._limits.max_model_len if self._state not in ("loading", "failed") else 0
        num_restarts, longest = self._starter.num_restarts, self._longest_token_chars
        return EngineStats(self._state, len(self._runs), num_restarts, context, self._heartbeat_at, core, longest)

    def close(self, drain_s: float = 0.0) -> None:
        """Take no more runs, let live ones end for up to `drain_s`, fail the rest as lost, and end the core. Idempotent."""
        with self._changed:
            if self._receiver is None or self._state == "closed":
                return
            self._state = "draining" if self._state != "failed" else "failed"
            self._changed.wait_for(lambda: not self._runs, drain_s)
            for run in list(self._runs.values()):
                self._end_early(run, LOST)
            self._changed.wait_for(lambda: not self._runs, LEAVE_S if self._runs else 0)
            self._starter.close()
            link = self._link
        link.close(LEAVE_S)
        self._receiver.join(LEAVE_S)
        self._deadlines.close()
        self._processor.close()
        self._forms.close()
        self._state = "closed"

    # Submitting

    def _check_available(self) -> None:
        state = self._state
        if state == "ready" or state == "restarting":
            return
        if state == "loading":
            raise EngineUnavailable(ErrorCode.MODEL_LOADING, "the model is being loaded; try again later")
        raise EngineUnavailable(ErrorCode.OVERLOADED, "the engine takes no more requests")

    def _num_known(self) -> Counter[str]:
        """How many sequences each tenant has with the core."""
        with self._changed:
            return Counter(run.request.tenant for run, _ in self._by_seq_id.values())

    def _register(self, run: Run) -> None:
        with self._changed:
            self._check_available()
            if run.request.run_id in self._runs:
                raise EngineUnavailable(ErrorCode.INVALID_VALUE, "the run is already being served")
            self._runs[run.request.run_id] = run
            for choice in run.choices:
                if choice.is_live:
                    self._by_seq_id[choice.seq_id] = (run, choice)
        if run.request.deadline_at is not None:
            self._deadlines.note(run.request.run_id, run.request.deadline_at)

    def _send_run(self, run: Run) -> None:
        """Hand a registered run to the core; if that is gone, its restart does. A run that was ended meanwhile goes too, then its abort."""
        with self._changed:
            run.is_sent = True
            ending = self._last_ending
            if ending is None:
                self._send_sequences(run)
        if ending is not None:
            self._end_runs([run], ending)

    def _send_sequences(self, run: Run) -> None:
        try:
            for message in (*self._forms.before(run.grammar), *run.sequences(), *self._forms.after(run.grammar)):
                self._link.send(message)
            if run.ending is not None:
                self._link.send(AbortSequences(run.live_ids()))
        except LinkClosed:
            logger.info("run %s waits for the core to come back", run.request.run_id)

    def _end_early(self, run: Run, ending: Ending) -> None:
        """Note why a run ends; the core's answer to the abort ends it. Called with the lock held."""
        if run.ending is not None:
            return
        run.ending = ending
        if run.is_sent:
            self._send_abort(run.live_ids())

    def _end_due(self, run_ids: list[str]) -> None:
        """End those of the runs that are still there and past their deadlines, without waiting for a core that is deep in a step."""
        now, ending = self._clock(), Ending(Outcome.TIMED_OUT)
        with self._taking:
            with self._changed:
                due = [run for run in filter(None, map(self._runs.get, run_ids)) if run.is_overdue(now)]
                for run in due:
                    self._end_early(run, ending)
            self._end_runs([run for run in due if run.is_sent], ending)

    def _send_abort(self, seq_ids: list[int]) -> None:
        try:
            self._link.send(AbortSequences(seq_ids))
        except LinkClosed:
            logger.info("%d sequences are aborted by the loss of the core", len(seq_ids))

    def _ask_core(self, question: QueryStats) -> CoreStats | None:
        with self._asking:
            self._has_answer.clear()
            self._core_stats = None
            try:
                self._link.send(question)
            except LinkClosed:
                return None
            self._has_answer.wait(STATS_TIMEOUT_S)
            return self._core_stats

    # Receiving: everything below runs on the receiver thread

    def _receive(self) -> None:
        """Handle the core's messages until the engine closes or the core cannot be brought back."""
        while True:
            try:
                message = self._link.receive()
            except LinkClosed:
                if self._starter.is_closing or not self._restart():
                    break
                continue
            try:
                self._handle(message)
            except Exception:
                logger.exception("a message of the core could not be handled")
        if self._state == "failed":
            self._on_failed()
        self._end_all(LOST if self._starter.is_closing else FAILED)

    def _handle(self, message: FromCore) -> None:
        match message:
            case StepResult(outputs):
                self._take_step(outputs)
            case StepStarted(seq_ids):
                self._in_step = seq_ids
            case Heartbeat(_, step_s):
                self._heartbeat_at = self._clock()
                self._end_overdue()
                if 0 < self._config.step_timeout_s < step_s:
                    logger.error("a step of the core has lasted %.0f s; ending it", step_s)
                    self._link.close(0.0)
            case CoreStats():
                self._core_stats = message
                self._has_answer.set()
            case CoreFailed(text, detail):
                logger.error("the core cannot go on: %s\n%s", text, detail)
                self._link.close(0.0)

    def _take_step(self, outputs: list[SequenceOutput]) -> None:
        """Publish the news of one step, all runs at once, and have the core drop what a stop string has ended."""
        with self._taking:
            self._take_outputs(outputs)

    def _take_outputs(self, outputs: list[SequenceOutput]) -> None:
        self._in_step = []
        now = self._clock()
        news: dict[str, list[Event]] = {}
        surplus: list[int] = []
        for output in outputs:
            found = self._by_seq_id.get(output.seq_id)
            if found is None:
                continue
            run, choice = found
            position = run.position
            try:
                events = run.take(choice, output, now)
            except Exception:
                logger.exception("run %s fails: its output could not be processed", run.request.run_id)
                run.ending, run.position = FAILED, position
                events = [run.end(now)]
            if events:
                news.setdefault(run.request.run_id, []).extend(events)
            if not choice.is_live and output.finish is None:
                surplus.append(output.seq_id)
            self._forget_ended(run, choice, surplus)
            if run.has_more and not run.is_ended:
                self._send_run(run)
        if surplus:
            self._send_abort(surplus)
        if news:
            self._publish([RunEvents(run_id, tuple(events)) for run_id, events in news.items()])

    def _forget_ended(self, run: Run, choice: Choice, surplus: list[int]) -> None:
        if choice.is_live:
            return
        with self._changed:
            self._by_seq_id.pop(choice.seq_id, None)
            if not run.is_ended:
                return
            others = [other.seq_id for other in run.choices if other.seq_id in self._by_seq_id]
            surplus += others
            for seq_id in others:
                del self._by_seq_id[seq_id]
            self._runs.pop(run.request.run_id, None)
            self._changed.notify_all()
        self._log_end(run)

    def _end_overdue(self) -> None:
        """Find also what a clock that was set has made overdue."""
        with self._changed:
            run_ids = list(self._runs)
        self._end_due(run_ids)

    def _end_all(self, ending: Ending) -> None:
        """End every run; there is no core any more. A run whose admission is just being published is ended by its own thread."""
        with self._changed:
            self._last_ending = ending
            sent = [run for run in self._runs.values() if run.is_sent]
        self._end_runs(sent, ending)

    def _end_runs(self, runs: list[Run], ending: Ending | None) -> None:
        """Publish the end of runs without asking the core. Runs that have ended meanwhile are left alone."""
        with self._taking:
            ended = [run for run in runs if self._forget_run(run)]
            news = []
            for run in ended:
                run.ending = run.ending or ending
                news.append(RunEvents(run.request.run_id, (run.end(self._clock()),)))
                self._log_end(run)
            if news:
                self._publish(news)

    def _forget_run(self, run: Run) -> bool:
        """Take a run out of the tables; False if it has left them."""
        with self._changed:
            if self._runs.get(run.request.run_id) is not run:
                return False
            del self._runs[run.request.run_id]
            for choice in run.choices:
                self._by_seq_id.pop(choice.seq_id, None)
            self._changed.notify_all()
        return True

    def _log_end(self, run: Run) -> None:
        usage, timings = run.usage(), run.timings
        logger.info(
            "run %s %s: %d prompt tokens (%d cached), %d completion tokens, %.3f s",
            run.request.run_id,
            run.ending.outcome if run.ending else Outcome.FINISHED,
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            (timings.ended_at or timings.arrived_at) - timings.arrived_at,
        )

    # The core's life

    def _restart(self) -> bool:
        """Have a core started in place of the dead one and give it what is unfinished; False if there will be none."""
        with self._changed:
            self._state = "restarting" if self._state != "draining" else "draining"
        self._end_suspects()
        replaced = self._starter.replace(self._end_without_core)
        if replaced is None:
            with self._changed:
                self._state = "failed" if self._state == "restarting" else self._state
            return False
        self._take_over(*replaced)
        self._on_restarted()
        return True

    def _end_suspects(self) -> None:
        """Fail the runs of the step that a core has died of, if they have survived a death before: one of them may kill every core."""
        with self._changed:
            sent = [run for run in self._runs.values() if run.is_sent]
            for run in sent:
                run.num_deaths += 1
            suspects = [
                run
                for run in sent
                if run.num_deaths >= MAX_DEATHS and not set(self._in_step).isdisjoint(run.live_ids())
            ]
        self._in_step = []
        if suspects:
            logger.error(
                "the core has died %d times with the same runs in its step; %d fail", MAX_DEATHS, len(suspects)
            )
        self._end_runs(suspects, FAILED)

    def _end_without_core(self) -> None:
        """End what is overdue or was stopped while no core is there to be asked."""
        now = self._clock()
        with self._changed:
            sent = [run for run in self._runs.values() if run.is_sent]
            for run in sent:
                if run.is_overdue(now):
                    run.ending = run.ending or Ending(Outcome.TIMED_OUT)
            over = [run for run in sent if run.ending is not None]
        self._end_runs(over, None)

    def _take_over(self, link: CoreLink, limits: ContextLimits) -> None:
        with self._changed:
            if self._starter.is_closing:
                link.close(0.0)
                return
            self._link, self._limits, self._heartbeat_at = link, limits, self._clock()
            self._forms.restart()
            self._state = "ready" if self._state == "restarting" else self._state
            sent = [run for run in self._runs.values() if run.is_sent]
            ended = [run for run in sent if run.ending is not None]
            with contextlib.suppress(LinkClosed):  # seen again when it is received from
                link.send(AnnounceSteps())
            for run in sent:
                if run.ending is None:
                    self._send_sequences(run)
        self._end_runs(ended, None)
