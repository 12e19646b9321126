"""Runs that end with their prompt: one that is only read, one whose prompt becomes a vector, one that is computed for its scores."""

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
    SamplingParams,
    StopRules,
    Usage,
)
from engine.messages import AddSequence, SequenceOutput
from engine.requests.runs.buffered import BufferedRun
from engine.requests.runs.run import FAILED, Choice, Run


@dataclass(eq=False, kw_only=True)
class TokenizeRun(Run):
    """Admitted and completed at once: it has no choices, and uses nothing."""

    def admitted(self) -> Admitted:
        return dataclasses.replace(super().admitted(), context_length=self.context_length)

    def usage(self) -> Usage:
        return Usage()


@dataclass(eq=False, kw_only=True)
class EmbedRun(Run):
    """Has one sequence, which ends with its prompt. After a takeover it starts anew, unless the vector is in the log."""

    def sequences(self) -> list[AddSequence]:
        return [
            dataclasses.replace(
                sequence,
                sampling=SamplingParams(temperature=0.0, seed=0),
                stop=StopRules(),
                logprobs=LogprobOptions(),
                max_tokens=1,
                embed=self.request.embed,
            )
            for sequence in super().sequences()
        ]

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        for choice in self.choices:
            choice.is_live = not any(isinstance(event.payload, Embedded) for event in events)
        return []

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        """The vector and the end; a vector that came too late is not told, and one of other than numbers is a failure."""
        self._note(output, now)
        choice.is_live = False
        vector = output.vector
        if self.ending is None and (vector is None or not all(map(math.isfinite, vector))):
            self.ending = FAILED
        embedded = [self.event(Embedded(tuple(vector)))] if vector is not None and self.ending is None else []
        return [*embedded, self.end(now)]


@dataclass(eq=False, kw_only=True)
class PromptRun(BufferedRun):
    """Computes the prompt of a request for no tokens (`StopRules.max_tokens` 0), and scores it where that is asked for.

    Has one sequence for all choices, which end as soon as the prompt is computed. The core draws a token behind it, which is nobody's.
    """

    def sequences(self) -> list[AddSequence]:
        """Nothing that the request wants of its tokens matters to this one."""
        return [
            dataclasses.replace(
                sequence,
                sampling=SamplingParams(temperature=0.0, seed=0),
                stop=StopRules(),
                logprobs=dataclasses.replace(sequence.logprobs, enabled=False, token_ids=()),
                max_tokens=1,
                bad_word_ids=[],
                thinking=None,
                grammar="",
            )
            for sequence in super().sequences()
        ]

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        self._note(dataclasses.replace(output, token_ids=[]), now)
        if output.finish is None:
            return []
        choice.is_live = False
        if self.ending is None and output.finish == "failed":
            self.ending = FAILED
        ends: list[Payload] = [ChoiceFinished(index, FinishReason.LENGTH) for index in range(self.request.num_choices)]
        return [*(self.release(ends) if self.ending is None else []), self.end(now)]
