"""Who makes room for a waiting sequence: those of worse priority, and then those of tenants above an equal share of seats and blocks.

At a priority only sequences of that priority and better ones count: what a tenant has computed behind all others is not held against it.
Pure questions, asked by the scheduler; docs/decisions/0009-fair-share.md says why they are these.
"""

from __future__ import annotations

from collections import defaultdict

from engine.scheduling.block_tables import BlockTables
from engine.scheduling.waiting import WaitingQueue
from engine.sequence import Sequence

FAIR_WAIT_S = 1.0
"""How long a tenant below its share waits for what comes free before others make room for it."""


class FairShare:
    """`running`: the scheduler's own list, most urgent first; `forget` is called when a sequence has come to it or left it."""

    def __init__(self, running: list[Sequence], waiting: WaitingQueue, blocks: BlockTables, num_seats: int) -> None:
        self._running = running
        self._waiting = waiting
        self._blocks = blocks
        self._num_seats = num_seats
        self._own: dict[int, dict[str, list[Sequence]]] = {}
        """By priority, who runs for each tenant at it or a better one."""
        self._num_doubles: dict[str, dict[int, int]] = {}
        """Of each tenant, by priority: in how many places its sequences hold blocks that others of them hold too."""

    def forget(self, tenant: str) -> None:
        """Count anew what a tenant holds, of which a sequence has begun or ceased to run."""
        self._own.clear()
        self._num_doubles.pop(tenant, None)

    def part(self, tenant: str, priority: int) -> float:
        """The larger of a tenant's parts of all seats and of all blocks; the tenant with the smallest goes first."""
        num_seats, num_blocks = self._held(tenant, priority)
        return max(num_seats / self._num_seats, num_blocks / self._blocks.num_blocks)

    def victims(self, head: Sequence, *, is_due: bool) -> list[Sequence]:
        """Whom to preempt for a sequence that waits; nobody where it has room, or would not get enough.

        First whoever has worse priority, the worst first. Then, where the sequence has waited so long that it `is_due` and its tenant is
        below an equal share, whoever is above one of what is missing, the newest first. Each tenant keeps a sequence, and who has got no
        token since it was preempted keeps its seat.
        """
        _, matched = self._blocks.match(head)
        rest, victims, freed = list(self._running), list[Sequence](), self._blocks.release_of_some(matched)
        shares: _Shares | None = None
        while (lacks_seat := len(rest) >= self._num_seats) or not self._blocks.has_room(
            head, matched, len(rest), freed.num_blocks
        ):
            if rest and rest[-1].priority > head.priority:
                victim = rest[-1]
            elif is_due:
                shares = shares or self._shares(head)
                num_new = self._blocks.count(head) - len(matched)
                if not (shares.entitle(num_new) and (found := shares.newest_above(rest, of_seats=lacks_seat))):
                    return []
                victim = found
            else:
                return []
            rest.remove(victim)
            victims.append(victim)
            freed.add(victim.block_ids)
        return victims

    def block_giver(self) -> Sequence:
        """Who gives up its blocks where a running sequence finds none: of the worst priority, the newest of the tenant that has most."""
        worst = self._running[-1].priority
        tenants = {sequence.tenant for sequence in self._running if sequence.priority == worst}
        if len(tenants) == 1:
            return self._running[-1]
        richest = max(sorted(tenants), key=lambda tenant: self._held(tenant, worst)[1])
        return next(sequence for sequence in reversed(self._running) if sequence.tenant == richest)

    def _shares(self, head: Sequence) -> _Shares:
        held = {tenant: self._held(tenant, head.priority) for tenant in self._runners(head.priority)}
        num_tenants = len(self._waiting.tenants(head.priority) | held.keys())
        return _Shares(head, held, self._num_seats / num_tenants, self._blocks.num_blocks / num_tenants)

    def _runners(self, priority: int) -> dict[str, list[Sequence]]:
        """Who runs at this priority or a better one, by tenant."""
        if priority not in self._own:
            own = defaultdict[str, list[Sequence]](list)
            for other in self._running:
                if other.priority <= priority:
                    own[other.tenant].append(other)
            self._own[priority] = dict(own)
        return self._own[priority]

    def _held(self, tenant: str, priority: int) -> tuple[int, int]:
        """Seats and blocks of a tenant's sequences of this priority and better ones; a block counts once, however many share it.

        What a sequence takes or gives back while it runs is its own. So what is held twice stays as it was.
        """
        own = self._runners(priority).get(tenant)
        if own is None:
            return 0, 0
        num_doubles = self._num_doubles.setdefault(tenant, {})
        num_places = sum(len(other.block_ids) for other in own)
        if priority not in num_doubles:
            num_doubles[priority] = num_places - num_different(own)
        return len(own), num_places - num_doubles[priority]


class _Shares:
    """Equal shares for the priority of `head`. `held`: seats and blocks of those who run, of whom the caller takes victims one by one."""

    def __init__(self, head: Sequence, held: dict[str, tuple[int, int]], most_seats: float, most_blocks: float) -> None:
        self._head = head
        self._held = held
        self._most_seats = max(1.0, most_seats)
        self._most_blocks = most_blocks

    def entitle(self, num_new_blocks: int) -> bool:
        """Whether the head's tenant has nothing running, or stays within its share with the head."""
        num_seats, num_blocks = self._held.get(self._head.tenant, (0, 0))
        return not num_seats or (num_seats + 1 <= self._most_seats and num_blocks + num_new_blocks <= self._most_blocks)

    def newest_above(self, rest: list[Sequence], *, of_seats: bool) -> Sequence | None:
        """The newest sequence of the tenant that is most above its share of seats, or of blocks, and can spare one."""
        excess = {
            tenant: num_seats - self._most_seats if of_seats else num_blocks - self._most_blocks
            for tenant, (num_seats, num_blocks) in self._held.items()
            if num_seats > 1
        }
        spare = [
            other
            for other in reversed(rest)
            if other.priority >= self._head.priority and not other.is_owed and excess.get(other.tenant, 0) > 0
        ]
        found = max(spare, key=lambda other: excess[other.tenant], default=None)
        if found is not None:
            own = [
                other
                for other in rest
                if other.tenant == found.tenant and other.priority <= self._head.priority and other is not found
            ]
            self._held[found.tenant] = len(own), num_different(own)
        return found


def num_different(sequences: list[Sequence]) -> int:
    """Count the blocks that sequences hold, each once."""
    return len(set().union(*(sequence.block_ids for sequence in sequences)))
