"""Engine: what a worker process holds. Takes requests, publishes events, owns the core. Imports no torch.

`submit` renders, tokenises and checks in the caller's thread, then hands sequences to the core. One receiver thread
turns the outputs of the core into events and publishes them, once per step. When the core dies that thread starts
another one, with every unfinished sequence where it stood. Another thread ends runs at their deadlines.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.api import (
    AdapterInfo,
    EngineError,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    ModelLoadError,
    Outcome,
    Rejected,
)
from engine.api.errors import EngineUnavailable
from engine.api.model import ModelKind
from engine.config import EngineConfig
from engine.core.link import LinkClosed, ProcessLink
from engine.core.supervisor import Connect, CoreRestarter, Progress
from engine.inputs.images import MediaReader
from engine.inputs.limits import ContextLimits
from engine.inputs.processor import PromptProcessor
from engine.inputs.rendering import Renderer
from engine.inputs.sound import SoundReader
from engine.messages import (
    AbortSequences,
    AdapterLoaded,
    AddAdapter,
    AnnounceSteps,
    CoreFailed,
    CoreStats,
    ForgetMedia,
    FromCore,
    Heartbeat,
    QueryStats,
    RemoveAdapter,
    StepResult,
    StepStarted,
    ToCore,
)
from engine.model_kind import ModelPurpose, read_purpose
from engine.outputs.parsing import OutputParsing
from engine.requests.prepare import RequestPreparer, Resume
from engine.requests.runs.run import FAILED, LOST, Run, Termination
from engine.requests.served_adapters import ServedAdapters
from engine.requests.served_runs import Deadlines, Publish, RunEvents, ServedRuns
from engine.slow_work import SlowWork
from engine.structured.registry import AnswerGrammars
from engine.tokenizers.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

STATS_TIMEOUT_S = 5.0
CLOSE_S = 5.0
"""Time for a core to end its runs and leave when the engine closes."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. Counters begin at the core's start."""

    state: str
    """One of "loading", "ready", "restarting", "draining", "failed" and "closed"."""
    num_runs: int
    num_restarts: int
    max_model_len: int
    core: CoreStats | None
    longest_token_chars: int = 0
    """No token stands for more characters; 0 until the tokenizer is loaded."""
    computed_by: str = ""
    """Which form each part of the model runs in; empty until it is loaded."""
    kind: str = ""
    """A ModelKind; empty until the model is loaded."""
    modalities: list[str] = field(default_factory=list)
    """What messages may have beside text: "image", "video"."""


class Engine:
    """One model, served by one core. Methods are thread-safe."""

    def __init__(
        self,
        config: EngineConfig,
        publish: Publish,
        *,
        on_restarted: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
        connect: Connect = ProcessLink,
        started_core: ProcessLink | None = None,
        clock: Callable[[], float] = time.time,
        renderer: Renderer | None = None,
    ) -> None:
        """`publish` takes the events of a step; the thread that submits a run calls it with the run's first event.

        `on_restarted` is called when another core serves in place of a dead one. `on_failed` is called once, when cores
        have died too often and the engine takes no more runs; runs that it does not move to another engine fail when it
        returns. The receiver thread calls all three, and none may block for long. `connect` starts a core, except the
        first one if it is given.
        """
        self._config = config
        self._on_restarted = on_restarted
        self._on_failed = on_failed
        self._restarter = CoreRestarter(config, connect, clock, started_core)
        self._clock = clock
        self._renderer = renderer
        self._state = "loading"
        self._changed = threading.Condition()
        """Guards the state, the link and the table of runs; notified when a run ends."""
        self._runs = ServedRuns(publish, clock, self._changed, send=self._send_run, abort=self._send_abort)
        self._adapters = ServedAdapters(self._changed, self._send_adapter)
        self._deadlines = Deadlines(clock, self._runs.end_due)
        self._heartbeat_at: float | None = None
        self._longest_token_chars = 0
        self._in_step: list[int] = []
        """Sequences in the step that the core is computing, if it announces them."""
        self._stats_requested = threading.Lock()
        self._core_stats: CoreStats | None = None
        self._stats_arrived = threading.Event()
        self._last_termination: Termination | None = None
        """Set when the receiver has left: how a run ends that is submitted after that."""
        self._link: ProcessLink
        self._preparer: RequestPreparer
        self._processor: PromptProcessor
        self._grammars: AnswerGrammars
        self._limits: ContextLimits
        self._purpose = ModelPurpose()
        self._sounds: SoundReader | None = None
        self._receiver: threading.Thread | None = None

    @property
    def state(self) -> str:
        """The state as in `EngineStats`, without a question to the core."""
        return self._state

    @property
    def core_pid(self) -> int | None:
        """The process id of the core; None before it is started."""
        link = getattr(self, "_link", None)
        return None if link is None else link.pid

    @property
    def heartbeat_at(self) -> float | None:
        """When the last heartbeat of the core came (unix seconds); it sends one a second, also during a long step."""
        return self._heartbeat_at

    def start(self, progress: Progress | None = None) -> None:
        """Load the model and wait until it is ready; `progress(phase, fraction)`. Raises ModelLoadError."""
        self._link = self._restarter.connect()
        processor = None
        try:
            tokenizer = Tokenizer.from_path(self._config.model_path)
            self._longest_token_chars = tokenizer.longest_token_chars
            work = SlowWork()
            self._purpose = read_purpose(self._config.model_path, self._config.projector)
            parsing = OutputParsing(tokenizer, self._config.tool_parser, self._config.reasoning_parser)
            self._grammars = AnswerGrammars(self._config.model_path, parsing.tool_format, self._config.structured, work)
            media = (
                MediaReader(
                    *(self._config.model_path, work, self._config.media, self._purpose),
                    on_cpu=self._config.device == "cpu",
                    projector=self._config.projector,
                )
                if self._purpose.modalities
                else None
            )
            processor = self._processor = PromptProcessor(tokenizer, self._renderer, work, self._purpose, media)
            if self._purpose.speech is not None:
                self._sounds = SoundReader(tokenizer, self._purpose.speech, work, self._config.media)
            self._preparer = RequestPreparer(
                *(self._config, tokenizer, processor, parsing, self._grammars, self._adapters, self._purpose),
                sounds=self._sounds,
            )
            self._limits = self._restarter.await_ready(self._link, progress)
        except Exception:
            self._state = "failed"
            if processor is not None:
                processor.close()
            if self._sounds is not None:
                self._sounds.close()
            self._link.close(0.0)
            raise
        if self._restarter.has_processes and self._purpose.kind is ModelKind.CHAT:
            self._grammars.warm()
        self._state = "ready"
        self._receiver = threading.Thread(target=self._receive, name="engine-receiver", daemon=True)
        self._receiver.start()

    def submit(self, request: GenerationRequest, resume: Resume | None = None) -> None:
        """Admit or reject a run; either is published before this returns. Raises EngineUnavailable."""
        self._check_available()
        resume = resume or Resume()
        try:
            run = self._preparer.prepare(request, self._limits, resume, self._runs.num_sequences())
        except EngineError as error:
            failed = Failed(error.code, error.message, resume.usage, param=error.param)
            refusal = failed if resume.admitted is not None else Rejected.by(error)
            self._runs.publish([RunEvents(request.run_id, (Event(resume.position, 1, refusal),))])
            return
        events = [] if resume.admitted else [run.event(run.admitted())]
        events += run.replay(resume.events)
        if not run.live_ids():
            events.append(run.end(self._clock()))
        else:
            self._register(run)
        if events:
            self._runs.publish([RunEvents(request.run_id, tuple(events))])
        if not run.is_ended:
            self._send_run(run)

    def abort(self, run_id: str, outcome: Outcome) -> None:
        """End a run early, with Completed of this `outcome` and the exact usage. Ignores unknown and ended runs."""
        with self._changed:
            run = self._runs.get(run_id)
            if run is not None:
                self._runs.terminate(run, Termination(outcome))

    def add_adapter(self, name: str, path: Path | str) -> AdapterInfo:
        """Load a LoRA adapter, a folder as PEFT saves it, while requests are served; wait until it can be named.

        Requests name it in `GenerationRequest.adapter`. It survives the restart of the core. Raises RequestError for a
        name that is taken or is none, ModelLoadError for a folder that is not served, and EngineUnavailable.
        """
        self._check_available()
        if self._purpose.is_encoder or self._purpose.speech is not None:
            raise ModelLoadError(f"{path}: adapters are served beside decoders of text alone, which this model is not")
        return self._adapters.add(name, Path(path))

    def remove_adapter(self, name: str) -> None:
        """Take no more requests for an adapter; those that it has end with it. Raises RequestError if it is unknown."""
        self._adapters.remove(name)

    def adapters(self) -> tuple[AdapterInfo, ...]:
        """Return the adapters that requests may name, in the order in which they were added."""
        return self._adapters.listed()

    def stats(self, check_integrity: bool = False) -> EngineStats:
        """Return a snapshot, with `core` None if it does not answer; `check_integrity` also verifies its blocks."""
        core = self._ask_core(QueryStats(check_integrity)) if self._state in ("ready", "draining") else None
        is_loaded = self._state not in ("loading", "failed")
        context, computed_by = (self._limits.max_model_len, self._limits.computed_by) if is_loaded else (0, "")
        num_restarts, longest = self._restarter.num_restarts, self._longest_token_chars
        kind = str(self._purpose.kind) if is_loaded else ""
        purpose = (kind, self._purpose.modalities)
        return EngineStats(self._state, len(self._runs), num_restarts, context, core, longest, computed_by, *purpose)

    def close(self, drain_s: float = 0.0) -> None:
        """Take no more runs, let live ones end for `drain_s`, fail the rest as lost, and end the core. Idempotent."""
        with self._changed:
            if self._receiver is None or self._state == "closed":
                return
            self._state = "draining" if self._state != "failed" else "failed"
            self._changed.wait_for(lambda: not self._runs, drain_s)
            for run in self._runs:
                self._runs.terminate(run, LOST)
            self._changed.wait_for(lambda: not self._runs, CLOSE_S if self._runs else 0)
            self._restarter.close()
            link = self._link
        link.close(CLOSE_S)
        self._receiver.join(CLOSE_S)
        self._deadlines.close()
        self._processor.close()
        if self._sounds is not None:
            self._sounds.close()
        self._grammars.close()
        self._state = "closed"

    # Submitting

    def _check_available(self) -> None:
        if self._state == "loading":
            raise EngineUnavailable(ErrorCode.MODEL_LOADING, "the model is being loaded; try again later")
        if self._state not in ("ready", "restarting"):
            raise EngineUnavailable(ErrorCode.OVERLOADED, "the engine takes no more requests")

    def _register(self, run: Run) -> None:
        with self._changed:
            self._check_available()
            self._runs.add(run)
        if run.request.deadline_at is not None:
            self._deadlines.add(run.run_id, run.request.deadline_at)

    def _send_run(self, run: Run) -> None:
        """Hand a registered run to the core, or leave it to the restart of the core."""
        with self._changed:
            run.is_sent = True
            termination = self._last_termination
            if termination is None:
                self._send_sequences(run)
        if termination is not None:
            self._runs.end([run], termination)

    def _send_sequences(self, run: Run) -> None:
        grammar, adapter = run.prepared.grammar, run.prepared.adapter
        media = run.prepared.media.definitions
        messages: list[ToCore] = [*self._grammars.definitions(grammar), *self._adapters.definition(adapter), *media]
        messages += run.sequences()
        messages += [*self._grammars.evictions(grammar), *self._adapters.removal(adapter)]
        if media:
            messages.append(ForgetMedia([item.key for item in media]))
        try:
            for message in messages:
                self._link.send(message)
            if run.termination is not None:  # it was ended meanwhile
                self._link.send(AbortSequences(run.live_ids()))
        except LinkClosed:
            logger.info("run %s waits for the core to come back", run.run_id)

    def _send_abort(self, seq_ids: list[int]) -> None:
        try:
            self._link.send(AbortSequences(seq_ids))
        except LinkClosed:
            logger.info("%d sequences are aborted by the loss of the core", len(seq_ids))

    def _send_adapter(self, message: AddAdapter | RemoveAdapter) -> None:
        with contextlib.suppress(LinkClosed):  # the core that comes next is sent all adapters
            self._link.send(message)

    def _ask_core(self, question: QueryStats) -> CoreStats | None:
        with self._stats_requested:
            self._stats_arrived.clear()
            self._core_stats = None
            try:
                self._link.send(question)
            except LinkClosed:
                return None
            self._stats_arrived.wait(STATS_TIMEOUT_S)
            return self._core_stats

    # Receiving: everything below runs on the receiver thread

    def _receive(self) -> None:
        """Handle the messages of the core until the engine closes or no core can be started any more."""
        while True:
            try:
                message = self._link.receive()
            except LinkClosed:
                if self._restarter.is_closing or not self._restart():
                    break
                continue
            try:
                self._handle(message)
            except Exception:
                logger.exception("a message of the core could not be handled")
        self._adapters.close()
        if self._state == "failed":
            self._on_failed()
        with self._changed:  # a run whose admission is being published ends when it is sent
            termination = self._last_termination = LOST if self._restarter.is_closing else FAILED
            sent = self._runs.sent()
        self._runs.end(sent, termination)

    def _handle(self, message: FromCore) -> None:
        match message:
            case StepResult(outputs):
                self._in_step = []
                self._runs.take(outputs)
            case StepStarted(seq_ids):
                self._in_step = seq_ids
            case Heartbeat(step_s):
                self._heartbeat_at = self._clock()
                self._runs.end_overdue()
                if 0 < self._config.step_timeout_s < step_s:
                    logger.error("a step of the core has lasted %.0f s; ending it", step_s)
                    self._link.close(0.0)
            case AdapterLoaded():
                self._adapters.take(message)
            case CoreStats():
                self._core_stats = message
                self._stats_arrived.set()
            case CoreFailed(text, detail):
                logger.error("the core cannot go on: %s\n%s", text, detail)
                self._link.close(0.0)

    def _restart(self) -> bool:
        """Start a core in place of the dead one and give it all unfinished runs; False if there will be none."""
        with self._changed:
            self._state = "restarting" if self._state != "draining" else "draining"
        suspects, self._in_step = self._in_step, []
        self._runs.end_suspects(suspects)
        replaced = self._restarter.replace(self._runs.end_without_core)
        if replaced is None:
            with self._changed:
                self._state = "failed" if self._state == "restarting" else self._state
            return False
        self._use(*replaced)
        self._on_restarted()
        return True

    def _use(self, link: ProcessLink, limits: ContextLimits) -> None:
        """Go on with a new core."""
        with self._changed:
            if self._restarter.is_closing:
                link.close(0.0)
                return
            self._link, self._limits, self._heartbeat_at = link, limits, self._clock()
            self._grammars.forget_all()
            self._state = "ready" if self._state == "restarting" else self._state
            sent = self._runs.sent()
            stopped = [run for run in sent if run.termination is not None]
            with contextlib.suppress(LinkClosed):  # the next receive() finds that out again
                link.send(AnnounceSteps())
                for definition in self._adapters.restart():
                    link.send(definition)
            for run in sent:
                if run.termination is None:
                    self._send_sequences(run)
        self._runs.end(stopped, None)
