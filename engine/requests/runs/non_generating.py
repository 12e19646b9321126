"""Runs that end with their prompt: it is tokenised only, becomes a vector or a score, or is computed for its scores."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from engine.api import (
    Admitted,
    ChoiceFinished,
    Embedded,
    Event,
    FinishReason,
    LogprobOptions,
    Payload,
    Scored,
    Task,
    Usage,
)
from engine.messages import AddSequence, SequenceOutput
from engine.requests.runs.buffered import BufferedRun
from engine.requests.runs.run import FAILED, Choice, Run, prompt_only


@dataclass(eq=False, kw_only=True)
class TokenizeRun(Run):
    """A run that only renders and tokenises its prompt: it has no choices, uses no tokens and ends at once."""

    def admitted(self) -> Admitted:
        return dataclasses.replace(super().admitted(), context_length=self.prepared.context_length)

    def usage(self) -> Usage:
        return Usage()


@dataclass(eq=False, kw_only=True)
class EmbedRun(Run):
    """A run of one sequence whose prompt becomes a vector or a score; after a takeover anew, unless that is logged."""

    def sequences(self) -> list[AddSequence]:
        return [prompt_only(sequence, LogprobOptions()) for sequence in super().sequences()]

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        for choice in self.choices:
            choice.is_live = not any(isinstance(event.payload, Embedded | Scored) for event in events)
        return []

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """Return the vector and the end. Drops a vector that comes too late, and fails for one that is not finite."""
        self._record(output, now)
        choice.is_live = False
        vector = output.vector
        if self.termination is None and (vector is None or not all(map(math.isfinite, vector))):
            self.termination = FAILED
        if vector is None or self.termination is not None:
            return [self.end(now)]
        is_score = self.request.task is Task.SCORE
        return [self.event(Scored(vector[0]) if is_score else Embedded(tuple(vector))), self.end(now)]


@dataclass(eq=False, kw_only=True)
class PromptRun(BufferedRun):
    """A run that computes its prompt, scores it if asked to, and generates nothing (`StopRules.max_tokens` 0).

    One sequence serves all choices. The token that the core draws after the prompt is dropped.
    """

    def sequences(self) -> list[AddSequence]:
        return [
            prompt_only(sequence, dataclasses.replace(sequence.logprobs, enabled=False, token_ids=()))
            for sequence in super().sequences()
        ]

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._record(dataclasses.replace(output, token_ids=[]), now)
        if output.finish is None:
            return []
        choice.is_live = False
        if self.termination is None and output.finish == "failed":
            self.termination = FAILED
        ends: list[Payload] = [ChoiceFinished(index, FinishReason.LENGTH) for index in range(self.request.num_choices)]
        return [*(self.release(ends) if self.termination is None else []), self.end(now)]
