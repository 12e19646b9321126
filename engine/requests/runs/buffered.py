"""Runs whose answers are known only when all of them have ended; they publish nothing of a choice before."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from engine.api import ChoiceFinished, Delta, Event, Payload, PromptScored
from engine.messages import AddSequence, SequenceOutput
from engine.requests.runs.run import Choice, Run


@dataclass(eq=False, kw_only=True)
class BufferedRun(Run):
    """A run that starts anew after a takeover and publishes only what is not logged: its answers are the same."""

    num_logged: int = 0
    """Positions of choices that are in the log."""

    def replay(self, events: tuple[Event, ...]) -> list[Event]:
        for event in events:
            if isinstance(event.payload, PromptScored):
                self.scores = None
            elif isinstance(event.payload, Delta | ChoiceFinished):
                self.num_logged += event.count
        return []

    def release(self, payloads: list[Payload]) -> list[Event]:
        """Return the events of buffered payloads, without those that are logged already."""
        events, place = [], 0
        for payload in payloads:
            place += len(payload.token_ids) if isinstance(payload, Delta) else 1
            if place > self.num_logged:
                events.append(self.event(payload))
        return events


@dataclass(eq=False, kw_only=True)
class RankedRun(BufferedRun):
    """A run that reports those of its choices with the best mean log-probability per token, best first (`best_of`)."""

    num_reported: int
    logprob_sums: dict[int, float] = field(default_factory=dict)
    buffered: dict[int, list[Delta | ChoiceFinished]] = field(default_factory=dict)
    """As `logprob_sums` by index of choice."""

    def sequences(self) -> list[AddSequence]:
        """Return the usual sequences, with the log-probability of every token."""
        return [
            dataclasses.replace(sequence, logprobs=dataclasses.replace(sequence.logprobs, enabled=True))
            for sequence in super().sequences()
        ]

    def _take(self, choice: Choice, output: SequenceOutput, now: float) -> list[Event]:
        position, num_before = self.position, len(choice.output_ids)
        payloads = [event.payload for event in super()._take(choice, output, now)]
        self.position = position
        index = self.choices.index(choice)
        new = (output.logprobs or [])[: len(choice.output_ids) - num_before]
        self.logprob_sums[index] = self.logprob_sums.get(index, 0.0) + sum(entry.logprob for entry in new)
        ends: list[Payload] = []
        for payload in payloads:
            if isinstance(payload, Delta | ChoiceFinished):
                self.buffered.setdefault(index, []).append(payload)
            else:
                ends.append(payload)
        if not ends:
            return []
        events = self.release(self._ranked()) if self.termination is None else []
        return events + [self.event(payload) for payload in ends]

    def _ranked(self) -> list[Payload]:
        """Return the payloads of the best choices, numbered by rank."""
        ranks = sorted(self.buffered, key=lambda index: (-self._mean(index), index))[: self.num_reported]
        return [
            dataclasses.replace(payload, choice=rank)
            for rank, index in enumerate(ranks)
            for payload in self.buffered[index]
        ]

    def _mean(self, index: int) -> float:
        return self.logprob_sums[index] / max(len(self.choices[index].output_ids), 1)
