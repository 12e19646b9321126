"""Runs that end with their prompt: it is only tokenised, becomes a vector, or is computed for its log-probabilities."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from engine.api import Admitted, ChoiceFinished, Embedded, Event, FinishReason, LogprobOptions, Payload, Usage
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
    """A run of one sequence whose prompt becomes a vector; after a takeover anew, unless the vector is in the log."""

    def sequences(self) -> list[AddSequence]:
        sequences = [prompt_only(sequence, LogprobOptions()) for sequence in super().sequences()]
        return [dataclasses.replace(sequence, embed=self.request.embed) for sequence in sequences]

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        for choice in self.choices:
            choice.is_live = not any(isinstance(event.payload, Embedded) for event in events)
        return []

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """Return the vector and the end. Drops a vector that comes too late, and fails for one that is not finite."""
        self._record(output, now)
        choice.is_live = False
        vector = output.vector
        if self.termination is None and (vector is None or not all(map(math.isfinite, vector))):
            self.termination = FAILED
        embedded = [self.event(Embedded(tuple(vector)))] if vector is not None and self.termination is None else []
        return [*embedded, self.end(now)]


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
