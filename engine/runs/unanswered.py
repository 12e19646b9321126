"""Runs that end with their prompt: one that is only read, and one whose prompt becomes a vector."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from engine.api import Admitted, Embedded, Event, LogprobOptions, SamplingParams, StopRules, Usage
from engine.messages import AddSequence, SequenceOutput
from engine.runs.run import FAILED, Choice, Run


@dataclass(eq=False, kw_only=True)
class ReadRun(Run):
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
