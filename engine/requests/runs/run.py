"""One admitted run inside the worker: its choices, its positions, its account. Turns the core's news into events.

Used by `engine.Engine` only, from one thread at a time. It speaks to nobody: the engine sends and publishes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from engine.api import (
    Admitted,
    ChoiceFinished,
    Completed,
    Delta,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    LogprobOptions,
    Outcome,
    Payload,
    PromptScored,
    Timings,
    Usage,
)
from engine.messages import AddSequence, DefineGrammar, SequenceOutput, Thinking
from engine.outputs.pipeline import ChoicePipeline
from engine.outputs.prompt_scores import PromptScores


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ends before its choices do: by somebody's wish (`code` None), or by a failure."""

    outcome: Outcome
    code: ErrorCode | None = None
    message: str = ""
    param: str | None = None


FAILED = Ending(
    Outcome.FAILED, ErrorCode.ENGINE_ERROR, "The engine failed while it generated this answer. Please try again."
)
LOST = Ending(
    Outcome.WORKER_LOST, ErrorCode.WORKER_LOST, "The worker that generated this answer was stopped. Please try again."
)


@dataclass(slots=True, eq=False)
class Choice:
    """One answer. `output_ids` are the tokens that its events have reported; `num_accepted` of them were drafts."""

    seq_id: int
    pipeline: ChoicePipeline
    output_ids: list[int] = field(default_factory=list)
    is_live: bool = True
    num_accepted: int = 0
    num_rejected: int = 0


@dataclass(slots=True, eq=False)
class Run:
    """`position` is the next one. `is_sent`: the core has (or had) the sequences. `ending` is set once, by the first who ends the run."""

    request: GenerationRequest
    prompt_ids: list[int]
    seed: int
    max_tokens: int
    stop_ids: list[int]
    cache_root: bytes
    choices: list[Choice]
    position: int = 0
    is_sent: bool = False
    is_ended: bool = False
    ending: Ending | None = None
    num_cached: int | None = None
    timings: Timings = field(default_factory=lambda: Timings(0.0))
    prompt_text: str | None = None
    prompt_tokens: tuple[str, ...] | None = None
    context_length: int = 0
    bad_word_ids: list[list[int]] = field(default_factory=list)
    thinking: Thinking | None = None
    scores: PromptScores | None = None
    """Until they are reported, where they were asked for."""
    held: list[tuple[Choice, SequenceOutput]] = field(default_factory=list)
    """News that has to wait for them: the first choice computes the scores, and others may be ahead of it."""
    grammar: DefineGrammar | None = None
    draft_ids: list[int] = field(default_factory=list)
    num_deaths: int = 0
    """Cores that died while they had the run."""
    has_more: bool = False
    """The last news has made further `sequences` necessary."""

    def admitted(self) -> Admitted:
        """The first event of the run, with the prompt where the request asks for it."""
        prompt_ids = tuple(self.prompt_ids) if self.request.prompt.returns_ids else None
        return Admitted(
            len(self.prompt_ids), self.max_tokens, self.seed, prompt_ids, self.prompt_text, self.prompt_tokens
        )

    def is_overdue(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.request.deadline_at is not None and self.request.deadline_at <= now

    def live_ids(self) -> list[int]:
        """Sequences that the core still works on."""
        return [choice.seq_id for choice in self.choices if choice.is_live]

    def sequences(self) -> list[AddSequence]:
        """What the core must work on, from where each choice stands. What an earlier core has said and nobody has heard is forgotten."""
        if self.scores is not None:
            self.scores.restart()
            self.held.clear()
        return [
            AddSequence(
                seq_id=choice.seq_id,
                prompt_ids=self.prompt_ids,
                output_ids=list(choice.output_ids),
                sampling=dataclasses.replace(self.request.sampling, seed=self.seed + index),
                stop=self.request.stop,
                logprobs=self._logprobs(index),
                stop_ids=self.stop_ids,
                max_tokens=self.max_tokens,
                cache_root=self.cache_root,
                priority=self.request.priority,
                bad_word_ids=self.bad_word_ids,
                thinking=self.thinking,
                grammar=self.grammar.key if self.grammar else "",
                draft_ids=self.draft_ids,
                group=self._group(),
                tenant=self.request.tenant,
            )
            for index, choice in enumerate(self.choices)
            if choice.is_live
        ]

    def take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """Events of one sequence's news, and of the run's end if this was the last choice."""
        if self.scores is None:
            return self._take(choice, output, now)
        self.scores.add(output.prompt_logprobs or [])
        if not self.scores.is_complete:
            if output.finish in ("aborted", "failed"):
                events = self._take(choice, output, now)
                # NOTE: choices whose end is held have left the core, which says no more of them.
                return events if self.is_ended else [*events, self.end(now)]
            self.held.append((choice, output))
            return []
        events = [self.event(self.scores.payload())]
        news, self.held, self.scores = [*self.held, (choice, output)], [], None
        for held_choice, held_output in news:
            if not self.is_ended:
                events += self._take(held_choice, held_output, now)
        return events

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._note(output, now)
        if output.finish == "failed" and self.ending is None:
            self.ending = self._no_token_left(output.failed_param) if output.failed_param else FAILED
        events = []
        if not choice.pipeline.finished:
            payloads = choice.pipeline.feed(output.token_ids, output.logprobs, output.finish)
            events = [self.event(payload) for payload in payloads]
            if output.token_ids:
                choice.output_ids += events[0].payload.token_ids  # type: ignore[union-attr]  # tokens always make a Delta, first
                choice.num_accepted += min(output.num_accepted, events[0].count)
            choice.num_rejected += output.num_rejected
        if choice.pipeline.finished or output.finish is not None:
            choice.is_live = False
        if (self.ending is not None and self.ending.outcome is Outcome.FAILED) or not self.live_ids():
            events.append(self.end(now))
        return events

    def end(self, now: float) -> Event:
        """The terminal event; nothing follows."""
        self.is_ended = True
        for choice in self.choices:
            choice.is_live = False
        self.timings = dataclasses.replace(self.timings, ended_at=now)
        ending = self.ending or Ending(Outcome.FINISHED)
        if ending.code is None:
            return self.event(Completed(ending.outcome, self.usage(), self.timings))
        return self.event(Failed(ending.code, ending.message, self.usage(), self.timings, ending.outcome, ending.param))

    def event(self, payload: Payload) -> Event:
        """The payload at the run's next position."""
        count = len(payload.token_ids) if isinstance(payload, Delta) else 1
        event = Event(self.position, count, payload)
        self.position += count
        return event

    def usage(self) -> Usage:
        """Exact counts so far."""
        return Usage(
            prompt_tokens=len(self.prompt_ids),
            cached_tokens=self.num_cached or 0,
            completion_tokens=sum(choice.pipeline.num_tokens for choice in self.choices),
            reasoning_tokens=sum(choice.pipeline.num_reasoning_tokens for choice in self.choices),
            accepted_prediction_tokens=sum(choice.num_accepted for choice in self.choices),
            rejected_prediction_tokens=sum(choice.num_rejected for choice in self.choices),
        )

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        """Bring the choices to where an earlier attempt's events left them; returns events that it had not come to log."""
        for event in events:
            payload = event.payload
            if isinstance(payload, Delta):
                choice = self.choices[payload.choice]
                choice.output_ids += payload.token_ids
            elif isinstance(payload, ChoiceFinished):
                self.choices[payload.choice].is_live = False
            elif isinstance(payload, PromptScored):
                self.scores = None
        missing: list[Event] = []
        for choice in self.choices:
            payloads = choice.pipeline.feed(choice.output_ids, finish=self._core_word(choice.output_ids))
            if choice.is_live and choice.pipeline.finished:
                choice.is_live = False
                missing.append(self.event(payloads[-1]))
        return missing

    def _group(self) -> str:
        """The request's group as the core knows it: one tenant's is never another's."""
        tenant, group = self.request.tenant, self.request.group
        return f"{len(tenant)}:{tenant}{group}" if group else ""

    def _logprobs(self, index: int) -> LogprobOptions:
        """What choice number `index` reports; the first one scores the prompt for all, once."""
        options = self.request.logprobs
        return (
            options
            if options.prompt is None or (index == 0 and self.scores is not None)
            else dataclasses.replace(options, prompt=None)
        )

    def _no_token_left(self, param: str) -> Ending:
        """The request itself has forbidden every token. `param`: the core's name for the field, one for grammars of all fields."""
        field = param
        if param == "structured_outputs":
            field = self.request.constraint.param.partition(".")[0] if self.request.constraint else "tool_choice"
        message = f"{field} and the other constraints of this request left no token to choose; relax one of them"
        return Ending(Outcome.FAILED, ErrorCode.INVALID_VALUE, message, param)

    def _core_word(self, output_ids: list[int]) -> str | None:
        """What the core says of the last of these tokens."""
        if output_ids and output_ids[-1] in self.stop_ids and len(output_ids) > self.request.stop.min_tokens:
            return "stop"
        return "length" if len(output_ids) >= self.max_tokens else None

    def _note(self, output: SequenceOutput, now: float) -> None:
        if output.num_cached is not None:
            self.num_cached = output.num_cached if self.num_cached is None else min(self.num_cached, output.num_cached)
        if self.timings.started_at is None and output.started_at is not None:
            self.timings = dataclasses.replace(self.timings, started_at=output.started_at)
        if self.timings.first_token_at is None and output.token_ids:
            self.timings = dataclasses.replace(self.timings, first_token_at=now)
