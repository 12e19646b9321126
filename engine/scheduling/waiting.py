"""Sequences that wait for a seat: lower `priority` first, then the earlier `arrival`.

Sequences of one group that wait at the same time are served one after the other, as they are likely to share blocks: a newcomer
takes the place of the first of its group. At most GROUP_SIZE share a place, so nobody waits longer than that many times its turn.
A sequence that comes with output goes on where another core, or a round of beams, has left it: it is served before those that have not
begun. A preempted sequence keeps its place, and so returns before those that came later.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from engine.sequence import Sequence

GROUP_SIZE = 8
FIRST_PLACE = 0
"""Before every arrival."""

GroupKey = tuple[str, int]
"""Group (its name holds the tenant: `messages.AddSequence`) and priority."""


def urgency(sequence: Sequence) -> tuple[int, int, int]:
    """Order of service; smaller is served first. Unique, as arrivals are."""
    return (sequence.priority, sequence.place, sequence.arrival)


class WaitingQueue:
    """A sorted list: for a few thousand entries moving pointers is cheaper than a heap that must also forget."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._groups: dict[GroupKey, list[Sequence]] = {}
        """Groups that newcomers may still join: those that wait, since the last of the group got a seat."""

    def __len__(self) -> int:
        return len(self._sequences)

    def first(self, count: int) -> list[Sequence]:
        """Return the `count` most urgent sequences, best first."""
        return self._sequences[:count]

    def arrive(self, sequence: Sequence) -> None:
        """Give a new sequence, whose arrival is the latest, its place, and put it there."""
        sequence.place = FIRST_PLACE if sequence.output_ids else sequence.arrival
        if sequence.group and not sequence.output_ids:
            members = self._groups.setdefault(_group_key(sequence), [])
            if len(members) == GROUP_SIZE:
                members.clear()
            members.append(sequence)
            sequence.place = members[0].arrival
        self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """Put a sequence back in its place."""
        insort(self._sequences, sequence, key=urgency)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        index = bisect_left(self._sequences, urgency(sequence), key=urgency)
        assert self._sequences[index] is sequence
        del self._sequences[index]
        self._groups.pop(_group_key(sequence), None)


def _group_key(sequence: Sequence) -> GroupKey:
    return (sequence.group, sequence.priority)
