"""One admitted run inside the worker: its choices, positions and token counts. Turns outputs of the core into events.

Used by one thread at a time. A run sends and publishes nothing itself: the engine does.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    EmbedOptions,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    LogprobOptions,
    Outcome,
    Payload,
    PromptScored,
    SamplingParams,
    StopRules,
    Timings,
    Usage,
)
from engine.inputs.images import PromptMedia
from engine.messages import AddAdapter, AddSequence, DefineGrammar, SequenceOutput, Thinking
from engine.outputs.pipeline import ChoicePipeline
from engine.outputs.prompt_scores import PromptScores


@dataclass(frozen=True, slots=True)
class Termination:
    """Why a run ends before its choices do: it was stopped (`code` None), or it failed."""

    outcome: Outcome
    code: ErrorCode | None = None
    message: str = ""
    param: str | None = None


FAILED = Termination(
    Outcome.FAILED, ErrorCode.ENGINE_ERROR, "The engine failed while it generated this answer. Please try again."
)
LOST = Termination(
    Outcome.WORKER_LOST, ErrorCode.WORKER_LOST, "The worker that generated this answer was stopped. Please try again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A checked request with all that follows from it and the model.

    A request that generates nothing leaves the fields about generated tokens, `seed` and below, at their defaults.
    """

    request: GenerationRequest
    prompt_ids: list[int]
    cache_root: bytes
    context_length: int
    """Positions per sequence of the model that serves the run."""
    second_start: int = 0
    """As `AddSequence.second_start`, and the next two as there."""
    embed: EmbedOptions | None = None
    score_ids: list[int] | None = None
    adapter: AddAdapter | None = None
    media: PromptMedia = PromptMedia()
    prompt_text: str | None = None
    """The text of the prompt, and below the texts of its tokens, if the request asks for them."""
    prompt_tokens: tuple[str, ...] | None = None
    seed: int = 0
    max_tokens: int = 0
    stop_ids: list[int] = field(default_factory=list)
    bad_word_ids: list[list[int]] = field(default_factory=list)
    draft_ids: list[int] = field(default_factory=list)
    thinking: Thinking | None = None
    grammar: DefineGrammar | None = None


@dataclass(slots=True, eq=False)
class Choice:
    """One answer of a run."""

    seq_id: int
    pipeline: ChoicePipeline
    output_ids: list[int] = field(default_factory=list)
    """Tokens that its events have reported."""
    is_live: bool = True
    num_accepted: int = 0
    """How many of `output_ids` were drafts."""
    num_rejected: int = 0


@dataclass(slots=True, eq=False)
class Run:
    """A request whose choices are independent of each other; other runs subclass it."""

    prepared: PreparedRequest
    choices: list[Choice]
    position: int = 0
    """The position of the next event."""
    scores: PromptScores | None = None
    """Log-probabilities of the prompt, until they are reported; None if they were not requested."""
    timings: Timings = field(init=False)
    is_sent: bool = False
    """A core has, or had, the sequences."""
    is_ended: bool = False
    termination: Termination | None = None
    """Set once, by the first cause that ends the run early."""
    num_cached: int | None = None
    held: list[tuple[Choice, SequenceOutput]] = field(default_factory=list)
    """Outputs that wait for `scores`: the first choice computes these, and the others may be ahead of it."""
    num_deaths: int = 0
    """Cores that died while they had the run."""
    needs_core: bool = False
    """The last output has made further `sequences` necessary."""

    def __post_init__(self) -> None:
        self.timings = Timings(self.request.arrived_at)

    @property
    def request(self) -> GenerationRequest:
        return self.prepared.request

    @property
    def run_id(self) -> str:
        return self.request.run_id

    def admitted(self) -> Admitted:
        """Return the first payload of the run, with the prompt if the request asks for it."""
        prepared = self.prepared
        return Admitted(
            len(prepared.prompt_ids),
            prepared.max_tokens,
            prepared.seed,
            tuple(prepared.prompt_ids) if self.request.prompt.returns_ids else None,
            prepared.prompt_text,
            prepared.prompt_tokens,
        )

    def is_overdue(self, now: float) -> bool:
        return self.request.deadline_at is not None and self.request.deadline_at <= now

    def live_ids(self) -> list[int]:
        """Return the sequences that the core still works on."""
        return [choice.seq_id for choice in self.choices if choice.is_live]

    def sequences(self) -> list[AddSequence]:
        """Return what a core must compute from now on. Drops outputs of an earlier core that are no events yet."""
        prepared = self.prepared
        if self.scores is not None:
            self.scores.restart()
            self.held.clear()
        return [
            AddSequence(
                seq_id=choice.seq_id,
                prompt_ids=prepared.prompt_ids,
                output_ids=list(choice.output_ids),
                sampling=dataclasses.replace(self.request.sampling, seed=prepared.seed + index),
                stop=self.request.stop,
                logprobs=self._logprobs(index),
                stop_ids=prepared.stop_ids,
                max_tokens=prepared.max_tokens,
                cache_root=prepared.cache_root,
                priority=self.request.priority,
                bad_word_ids=prepared.bad_word_ids,
                thinking=prepared.thinking,
                grammar=prepared.grammar.key if prepared.grammar else "",
                draft_ids=prepared.draft_ids,
                group=self._group(),
                tenant=self.request.tenant,
                second_start=prepared.second_start,
                embed=prepared.embed,
                score_ids=prepared.score_ids,
                adapter_id=prepared.adapter.adapter_id if prepared.adapter else 0,
                media=list(prepared.media.spans),
            )
            for index, choice in enumerate(self.choices)
            if choice.is_live
        ]

    def take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """Return the events of one output, and the end of the run if this was the last choice."""
        if self.scores is None:
            return self._take(choice, output, now)
        self.scores.add(output.prompt_logprobs or [])
        if not self.scores.is_complete:
            if output.finish in ("aborted", "failed"):
                events = self._take(choice, output, now)
                # NOTE: choices whose end is held have left the core, which reports no more of them.
                return events if self.is_ended else [*events, self.end(now)]
            self.held.append((choice, output))
            return []
        events = [self.event(self.scores.payload())]
        outputs, self.held, self.scores = [*self.held, (choice, output)], [], None
        for held_choice, held_output in outputs:
            if not self.is_ended:
                events += self._take(held_choice, held_output, now)
        return events

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._record(output, now)
        if output.finish == "failed" and self.termination is None:
            self.termination = self._no_token_left(output.failed_param) if output.failed_param else FAILED
        events = []
        if not choice.pipeline.finished:
            payloads = choice.pipeline.feed(output.token_ids, output.logprobs, output.finish)
            events = [self.event(payload) for payload in payloads]
            if output.token_ids:
                # tokens always make a Delta, and it comes first
                choice.output_ids += events[0].payload.token_ids  # type: ignore[union-attr]
                choice.num_accepted += min(output.num_accepted, events[0].count)
            choice.num_rejected += output.num_rejected
        if choice.pipeline.finished or output.finish is not None:
            choice.is_live = False
        if (self.termination is not None and self.termination.outcome is Outcome.FAILED) or not self.live_ids():
            events.append(self.end(now))
        return events

    def end(self, now: float) -> Event:
        """End the run and return its last event."""
        self.is_ended = True
        for choice in self.choices:
            choice.is_live = False
        self.timings = dataclasses.replace(self.timings, ended_at=now)
        cause = self.termination or Termination(Outcome.FINISHED)
        if cause.code is None:
            return self.event(Completed(cause.outcome, self.usage(), self.timings))
        return self.event(Failed(cause.code, cause.message, self.usage(), self.timings, cause.outcome, cause.param))

    def event(self, payload: Payload) -> Event:
        """Return the payload as the event at the next position, and move on."""
        count = len(payload.token_ids) if isinstance(payload, Delta) else 1
        event = Event(self.position, count, payload)
        self.position += count
        return event

    def usage(self) -> Usage:
        """Return the exact counts so far."""
        return Usage(
            prompt_tokens=len(self.prepared.prompt_ids),
            cached_tokens=self.num_cached or 0,
            completion_tokens=sum(choice.pipeline.num_tokens for choice in self.choices),
            reasoning_tokens=sum(choice.pipeline.num_reasoning_tokens for choice in self.choices),
            accepted_prediction_tokens=sum(choice.num_accepted for choice in self.choices),
            rejected_prediction_tokens=sum(choice.num_rejected for choice in self.choices),
            audio_tokens=self.prepared.media.num_tokens.get("audio", 0),
            image_tokens=self.prepared.media.num_tokens.get("image", 0),
            video_tokens=self.prepared.media.num_tokens.get("video", 0),
        )

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        """Bring the choices to where the events of an earlier attempt left them; return events that it did not log."""
        for event in events:
            payload = event.payload
            if isinstance(payload, Delta):
                self.choices[payload.choice].output_ids += payload.token_ids
            elif isinstance(payload, ChoiceFinished):
                self.choices[payload.choice].is_live = False
            elif isinstance(payload, PromptScored):
                self.scores = None
        missing: list[Event] = []
        for choice in self.choices:
            payloads = choice.pipeline.feed(choice.output_ids, finish=self._finish_of(choice.output_ids))
            if choice.is_live and choice.pipeline.finished:
                choice.is_live = False
                missing.append(self.event(payloads[-1]))
        return missing

    def _group(self) -> str:
        """Return the group of the request as the core knows it; groups of two tenants never have the same name."""
        tenant, group = self.request.tenant, self.request.group
        return f"{len(tenant)}:{tenant}{group}" if group else ""

    def _logprobs(self, index: int) -> LogprobOptions:
        """Return the options of choice number `index`: only the first choice scores the prompt, once for all."""
        options = self.request.logprobs
        if options.prompt is None or (index == 0 and self.scores is not None):
            return options
        return dataclasses.replace(options, prompt=None)

    def _no_token_left(self, param: str) -> Termination:
        """Return the failure of a request that has forbidden every token.

        `param`: the core's name for the field; all fields that make grammars have one name.
        """
        field = param
        if param == "structured_outputs":
            field = self.request.constraint.param.partition(".")[0] if self.request.constraint else "tool_choice"
        message = f"{field} and the other constraints of this request left no token to choose; relax one of them"
        return Termination(Outcome.FAILED, ErrorCode.INVALID_VALUE, message, param)

    def _finish_of(self, output_ids: list[int]) -> str | None:
        """Return the `SequenceOutput.finish` that the core gives with the last of these tokens."""
        if output_ids and output_ids[-1] in self.prepared.stop_ids and len(output_ids) > self.request.stop.min_tokens:
            return "stop"
        return "length" if len(output_ids) >= self.prepared.max_tokens else None

    def _record(self, output: SequenceOutput, now: float) -> None:
        if output.num_cached is not None:
            self.num_cached = output.num_cached if self.num_cached is None else min(self.num_cached, output.num_cached)
        if self.timings.started_at is None and output.started_at is not None:
            self.timings = dataclasses.replace(self.timings, started_at=output.started_at)
        if self.timings.first_token_at is None and output.token_ids:
            self.timings = dataclasses.replace(self.timings, first_token_at=now)


def prompt_only(sequence: AddSequence, logprobs: LogprobOptions) -> AddSequence:
    """Return a sequence that computes its prompt, without the options that concern generated tokens."""
    return dataclasses.replace(
        sequence,
        sampling=SamplingParams(temperature=0.0, seed=0),
        stop=StopRules(),
        logprobs=logprobs,
        max_tokens=1,
        bad_word_ids=[],
        draft_ids=[],
        thinking=None,
        grammar="",
    )
