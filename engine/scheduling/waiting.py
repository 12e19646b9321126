"""The waiting queue: lower `priority` first, then the tenant with the smallest share, then the earlier `arrival`.

Sequences of one group that wait at the same time are served one after the other, as they are likely to share blocks: a
new one takes the place of the first of its group. At most GROUP_SIZE share a place, so no sequence waits longer than
that many times its turn. A sequence that comes with output, of another core or a round of beam search, is served before
those that have not begun. A preempted sequence keeps its place, and so runs again before those that came later.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import chain

from engine.api.errors import EngineUnavailable, ErrorCode
from engine.sequence import Sequence

GROUP_SIZE = 8
FIRST_PLACE = 0
"""Before every arrival."""

GroupKey = tuple[str, int]
"""Group (its name contains the tenant: `messages.AddSequence`) and priority."""

ShareOf = Callable[[str, int], float]
"""The dominant share of a tenant at a priority (`fair_share.FairShare.dominant_share`)."""


def urgency(sequence: Sequence) -> tuple[int, int, int]:
    """Return the key of the order of service; smaller is first. Unique, as arrivals are."""
    return (sequence.priority, sequence.place, sequence.arrival)


class WaitingQueue:
    """A sorted list per tenant: for a few thousand entries moving pointers is cheaper than a heap with removal."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, list[Sequence]] = {}
        self._count = 0
        self._groups: dict[GroupKey, list[Sequence]] = {}
        """Groups that new sequences may join: a group is closed when one of its sequences leaves the queue."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return chain.from_iterable(self._by_tenant.values())

    def tenants(self, priority: int) -> set[str]:
        """Return the tenants whose first waiting sequence has this priority or a better one."""
        return {tenant for tenant, own in self._by_tenant.items() if own[0].priority <= priority}

    def best_priorities(self) -> dict[str, int]:
        """Return the priority of the first waiting sequence of each tenant."""
        return {tenant: own[0].priority for tenant, own in self._by_tenant.items()}

    def in_turn(self, count: int, share_of: ShareOf) -> Iterator[Sequence]:
        """Yield at most `count` sequences in their turn.

        Each is chosen when the iterator is advanced, by the shares of that moment. Only sequences that it has yielded
        may leave the queue meanwhile.
        """
        if count <= 0:
            return
        if len(self._by_tenant) == 1:
            yield from next(iter(self._by_tenant.values()))[:count]
            return

        def turn(own: list[Sequence]) -> tuple[int, float, int, int, list[Sequence]]:
            first = own[-1]
            return first.priority, share_of(first.tenant, first.priority), first.place, first.arrival, own

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
        """Add a new sequence, whose arrival is the latest, and give it its place."""
        sequence.place = FIRST_PLACE if sequence.output_ids else sequence.arrival
        if sequence.request.group and not sequence.output_ids:
            members = self._groups.setdefault(_group_key(sequence), [])
            if len(members) == GROUP_SIZE:
                members.clear()
            members.append(sequence)
            sequence.place = members[0].arrival
        self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        insort(self._by_tenant.setdefault(sequence.tenant, []), sequence, key=urgency)
        self._count += 1

    def remove(self, sequence: Sequence) -> None:
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


def check_place(num_known: Mapping[str, int], tenant: str, count: int, max_waiting: int, max_num_seqs: int) -> None:
    """Refuse `count` sequences of a tenant if the queue is full. Raises EngineUnavailable.

    Called by the worker before it sends a request, and by the scheduler. `num_known`: sequences that wait or run, by
    tenant. The bound includes `max_num_seqs`, also while fewer run: all that a dead core was running comes back at
    once. A full queue still takes a tenant up to its equal share, so no tenant can fill it for the others. It may
    therefore exceed the bound: by a half at most for the second tenant, by a third for the third, and so on.
    """
    most = max_waiting + max_num_seqs
    own = num_known.get(tenant, 0)
    num_tenants = len(num_known) + (tenant not in num_known)
    if sum(num_known.values()) + count > most and own + count > most // num_tenants:
        bound = f"{max_waiting} requests may wait"
        message = f"the queue is full ({bound}), and this project has its share of it; try again later"
        raise EngineUnavailable(ErrorCode.OVERLOADED, message)
