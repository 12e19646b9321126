"""Sequences that wait for a seat: lower `priority` first, then the earlier `arrival`.

A preempted sequence keeps its arrival, and so returns before those that came later.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from engine.sequence import Sequence


def urgency(sequence: Sequence) -> tuple[int, int]:
    """Order of service; smaller is served first. Unique, as arrivals are."""
    return (sequence.priority, sequence.arrival)


class WaitingQueue:
    """A sorted list: for a few thousand entries moving pointers is cheaper than a heap that must also forget."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def first(self, count: int) -> list[Sequence]:
        """Return the `count` most urgent sequences, best first."""
        return self._sequences[:count]

    def add(self, sequence: Sequence) -> None:
        """Put a sequence in its place."""
        insort(self._sequences, sequence, key=urgency)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        index = bisect_left(self._sequences, urgency(sequence), key=urgency)
        assert self._sequences[index] is sequence
        del self._sequences[index]
