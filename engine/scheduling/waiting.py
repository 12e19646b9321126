"""Sequences that wait for a seat: lower `priority` first, then the tenant that holds the least, then the earlier `arrival`.

Sequences of one group that wait at the same time are served one after the other, as they are likely to share blocks: a newcomer
takes the place of the first of its group. At most GROUP_SIZE share a place, so nobody waits longer than that many times its turn.
A sequence that comes with output goes on where another core, or a round of beams, has left it: it is served before those that have not
begun. A preempted sequence keeps its place, and so returns before those that came later.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import chain

from engine.sequence import Sequence

GROUP_SIZE = 8
FIRST_PLACE = 0
"""Before every arrival."""

GroupKey = tuple[str, int]
"""Group (its name holds the tenant: `messages.AddSequence`) and priority."""

Part = Callable[[str, int], float]
"""How much of the core a tenant holds, as far as it counts at a priority (`fair_share.FairShare.part`)."""


def urgency(sequence: Sequence) -> tuple[int, int, int]:
    """Order of service; smaller is served first. Unique, as arrivals are."""
    return (sequence.priority, sequence.place, sequence.arrival)


class WaitingQueue:
    """A sorted list for each tenant: for a few thousand entries moving pointers is cheaper than a heap that must also forget."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[Sequence]] = {}
        self._count = 0
        self._groups: dict[GroupKey, list[Sequence]] = {}
        """Groups that newcomers may still join: those that wait, since the last of the group got a seat."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._by_tenant.values())

    def tenants(self, priority: int) -> set[str]:
        """Whose first waiting sequence has this priority or a better one."""
        return {tenant for tenant, own in self._by_tenant.items() if own[0].priority <= priority}

    def best_priorities(self) -> dict[str, int]:
        """Of each tenant that has something waiting, the priority of the first."""
        return {tenant: own[0].priority for tenant, own in self._by_tenant.items()}

    def in_turn(self, count: int, part: Part) -> Iterator[Sequence]:
        """At most `count` sequences, best priority first, then of the tenant that holds the smallest `part`, then by urgency.

        Each is chosen when it is asked for, by what tenants hold then; the ones before it, and nobody else, may have got a seat meanwhile.
        """
        if count <= 0:
            return
        if len(self._by_tenant) == 1:
            yield from next(iter(self._by_tenant.values()))[:count]
            return

        def turn(own: list[Sequence]) -> tuple[int, float, int, int, list[Sequence]]:
            first = own[-1]
            return first.priority, part(first.tenant, first.priority), first.place, first.arrival, own

        heap = [turn(own[:count][::-1]) for own in self._by_tenant.values()]
        heapify(heap)
        for _ in range(count):
            if not heap:
                return
            own = heap[0][-1]
            yield own.pop()
            if own:
                heapreplace(heap, turn(own))
            else:
                heappop(heap)

    def arrive(self, sequence: Sequence) -> None:
        """Give a new sequence, whose arrival is the latest, its place, and put it there."""
        sequence.place = FIRST_PLACE if sequence.output_ids else sequence.arrival
        if sequence.request.group and not sequence.output_ids:
            members = self._groups.setdefault(_group_key(sequence), [])
            if len(members) == GROUP_SIZE:
                members.clear()
            members.append(sequence)
            sequence.place = members[0].arrival
        self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """Put a sequence back in its place."""
        insort(self._by_tenant.setdefault(sequence.tenant, []), sequence, key=urgency)
        self._count += 1

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is in the queue."""
        own = self._by_tenant[sequence.tenant]
        index = bisect_left(own, urgency(sequence), key=urgency)
        assert own[index] is sequence
        del own[index]
        if not own:
            del self._by_tenant[sequence.tenant]
        self._count -= 1
        self._groups.pop(_group_key(sequence), None)


def _group_key(sequence: Sequence) -> GroupKey:
    return (sequence.request.group, sequence.priority)
