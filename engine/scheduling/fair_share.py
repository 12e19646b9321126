"""Fair sharing: the running sequences to preempt for a waiting one, first by priority, then by the shares of tenants.

Shares are of the running sequences and of the blocks. At a priority only sequences of that priority and better ones
count: a tenant is not charged for what it computes behind all others. Decides and changes nothing;
docs/decisions/0009-fair-share.md has the reasons.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set

from engine.attention.cache_groups import NO_BLOCK
from engine.scheduling.blocks import BlockTables, num_held
from engine.scheduling.waiting import WaitingQueue
from engine.sequence import Sequence

FAIR_WAIT_S = 1.0
"""A tenant below its share waits so long for free capacity before sequences of others are preempted for it."""


class FairShare:
    """The shares of tenants in the running sequences and the blocks."""

    def __init__(
        self,
        running: list[Sequence],
        waiting: WaitingQueue,
        blocks: BlockTables,
        max_num_seqs: int,
        in_flight: Set[Sequence] = frozenset(),
    ) -> None:
        """`running`: the scheduler's list, most urgent first; call `forget` when a sequence enters or leaves it.

        `in_flight`: those of them that cannot be preempted now.
        """
        self._running = running
        self._waiting = waiting
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._in_flight = in_flight
        self._own: dict[int, dict[str, list[Sequence]]] = {}
        """By priority and tenant: the running sequences of that priority and better ones."""
        self._num_duplicates: dict[str, dict[int, int]] = {}
        """By tenant and priority: block table entries that repeat a block of another sequence of the tenant."""

    def forget(self, tenant: str) -> None:
        """Drop cached counts of a tenant, of which a sequence has begun or ceased to run."""
        self._own.clear()
        self._num_duplicates.pop(tenant, None)

    def dominant_share(self, tenant: str, priority: int) -> float:
        """Return the larger of a tenant's shares of sequences and of blocks; the smallest goes first."""
        num_seqs, num_blocks = self._held(tenant, priority)
        return max(num_seqs / self._max_num_seqs, num_blocks / self._blocks.num_blocks)

    def victims(self, head: Sequence, *, is_due: bool) -> list[Sequence]:
        """Return the sequences to preempt for a waiting one; none if it has room, or would not get enough.

        First those of worse priority, the worst first. Then, if the sequence `is_due` as it has waited long, and its
        tenant is below an equal share: those of tenants above an equal share of what is missing, the newest first. Each
        tenant keeps one sequence, and a sequence that has got no token since it was preempted is not preempted again.
        """
        matched = self._blocks.match(head)
        rest, victims, freed = list(self._running), list[Sequence](), self._blocks.hypothetical_release(matched)
        shares: _EqualShares | None = None
        while (is_full := len(rest) >= self._max_num_seqs) or not self._blocks.has_room(
            head, matched, len(rest), freed.num_blocks
        ):
            worst = next((other for other in reversed(rest) if other not in self._in_flight), None)
            if worst is not None and worst.priority > head.priority:
                victim = worst
            elif is_due:
                shares = shares or self._shares(head)
                num_new = self._blocks.num_new(head, matched)
                if not (shares.allows(num_new) and (found := shares.newest_above(rest, of_sequences=is_full))):
                    return []
                victim = found
            else:
                return []
            rest.remove(victim)
            victims.append(victim)
            freed.add(victim.block_ids)
        return victims

    def victim_for_block(self) -> Sequence:
        """Return the sequence to preempt for one block: of the worst priority, the newest of the richest tenant.

        It is called for a sequence that is not in flight, so there is one to preempt.

        One that has got no token since it was preempted is spared while there are others. If all are such, it is the
        newest: prompts of several tenants that grow behind windows would otherwise preempt each other for ever.
        """
        able = [other for other in reversed(self._running) if other not in self._in_flight]
        worst = able[0].priority
        spare = [other for other in able if other.priority == worst and not other.is_owed]
        tenants = {sequence.tenant for sequence in spare}
        if len(tenants) <= 1:
            return spare[0] if spare else able[0]
        richest = max(sorted(tenants), key=lambda tenant: self._held(tenant, worst)[1])
        return next(sequence for sequence in spare if sequence.tenant == richest)

    def _shares(self, head: Sequence) -> _EqualShares:
        held = {tenant: self._held(tenant, head.priority) for tenant in self._running_by_tenant(head.priority)}
        num_tenants = len(self._waiting.tenants(head.priority) | held.keys())
        most_seqs, most_blocks = self._max_num_seqs / num_tenants, self._blocks.num_blocks / num_tenants
        return _EqualShares(head, held, most_seqs, most_blocks, self._in_flight)

    def _running_by_tenant(self, priority: int) -> dict[str, list[Sequence]]:
        if priority not in self._own:
            own = defaultdict[str, list[Sequence]](list)
            for other in self._running:
                if other.priority <= priority:
                    own[other.tenant].append(other)
            self._own[priority] = dict(own)
        return self._own[priority]

    def _held(self, tenant: str, priority: int) -> tuple[int, int]:
        """Count a tenant's sequences of this priority and better ones, and their blocks, each block once.

        NOTE: blocks that a sequence takes or releases while it runs are shared with no other, so the cached number of
        duplicates holds; but for blocks behind windows, after which the scheduler calls `forget`.
        """
        own = self._running_by_tenant(priority).get(tenant)
        if own is None:
            return 0, 0
        num_duplicates = self._num_duplicates.setdefault(tenant, {})
        num_entries = sum(num_held(other.block_ids) for other in own)
        if priority not in num_duplicates:
            num_duplicates[priority] = num_entries - num_distinct_blocks(own)
        return len(own), num_entries - num_duplicates[priority]


class _EqualShares:
    """Equal shares at the priority of `head`, the waiting sequence; the caller takes victims one by one."""

    def __init__(
        self,
        head: Sequence,
        held: dict[str, tuple[int, int]],
        most_seqs: float,
        most_blocks: float,
        in_flight: Set[Sequence],
    ) -> None:
        """`held`: running sequences and blocks of each tenant."""
        self._head = head
        self._held = held
        self._most_seqs = max(1.0, most_seqs)
        self._most_blocks = most_blocks
        self._in_flight = in_flight

    def allows(self, num_new_blocks: int) -> bool:
        """Return True if the head's tenant has nothing running, or stays within its share with the head."""
        num_seqs, num_blocks = self._held.get(self._head.tenant, (0, 0))
        return not num_seqs or (num_seqs + 1 <= self._most_seqs and num_blocks + num_new_blocks <= self._most_blocks)

    def newest_above(self, rest: list[Sequence], *, of_sequences: bool) -> Sequence | None:
        """Return the newest sequence of the tenant that is most above its share and can spare one."""
        excess = {
            tenant: num_seqs - self._most_seqs if of_sequences else num_blocks - self._most_blocks
            for tenant, (num_seqs, num_blocks) in self._held.items()
            if num_seqs > 1
        }
        spare = [
            other
            for other in reversed(rest)
            if other.priority >= self._head.priority
            and not other.is_owed
            and other not in self._in_flight
            and excess.get(other.tenant, 0) > 0
        ]
        found = max(spare, key=lambda other: excess[other.tenant], default=None)
        if found is not None:
            counted = [other for other in rest if other.priority <= self._head.priority and other is not found]
            own = [other for other in counted if other.tenant == found.tenant]
            self._held[found.tenant] = len(own), num_distinct_blocks(own)
        return found


def num_distinct_blocks(sequences: list[Sequence]) -> int:
    return len(set().union(*(sequence.block_ids for sequence in sequences)) - {NO_BLOCK})
