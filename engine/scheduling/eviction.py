"""Which free block of the prefix cache is given away next: what is cheap to compute again, and was never asked for.

Time is counted in blocks: `clock` is how many have been freed with new content. A block freed at `clock` with a credit
goes as if it had been freed `credit` later; without credits the order is least recently freed first. A sequence gives
`LENGTH_CREDIT` to its blocks for each that it has, and `HIT_CREDIT` to those that it found in the cache for each of
these. So a beginning never goes before what follows it, and what nobody asks for ages: it is gone once `MAX_CREDIT + 1`
times the cache has been freed with new content. A tenant that has more than `TENANT_SHARE` of the blocks loses its own
first; meanwhile what others have left, a quarter at most, does not age. Reasons and figures:
docs/decisions/0018-eviction.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

LENGTH_CREDIT = 1
HIT_CREDIT = 2
MAX_CREDIT = 1
"""Times the number of blocks."""
TENANT_SHARE = 0.75
"""At least a half, so that at most one tenant has more."""
NEVER = -1


class DueQueue:
    """Blocks by the time at which they are due, and of one time in the order in which they came.

    Costs O(1) per block, and O(log n) for each of n different times.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, OrderedDict[int, None]] = {}
        """By time; never empty."""
        self._times: list[int] = []
        """A heap of these times, and of some at which nothing is left."""
        self._num_blocks = 0

    def __len__(self) -> int:
        return self._num_blocks

    def add(self, block_id: int, due: int) -> None:
        blocks = self._blocks.get(due)
        if blocks is None:
            blocks = self._blocks[due] = OrderedDict()
            if len(self._times) > 2 * len(self._blocks) + 8:
                self._times = list(self._blocks)
                heapify(self._times)
            else:
                heappush(self._times, due)
        blocks[block_id] = None
        self._num_blocks += 1

    def remove(self, block_id: int, due: int) -> None:
        blocks = self._blocks[due]
        del blocks[block_id]
        if not blocks:
            del self._blocks[due]
        self._num_blocks -= 1

    def first(self) -> int:
        """Return the block that is due first."""
        while self._times[0] not in self._blocks:
            heappop(self._times)
        return next(iter(self._blocks[self._times[0]]))

    def __iter__(self) -> Iterator[int]:
        return (block_id for blocks in self._blocks.values() for block_id in blocks)


class EvictionOrder:
    """The free blocks with content, in the order in which they are given away."""

    def __init__(self, num_blocks: int) -> None:
        self._most_credit = MAX_CREDIT * num_blocks
        self._most_of_tenant = int(TENANT_SHARE * num_blocks)
        self._clock = 0
        self._due = [NEVER] * num_blocks
        """By block, since it got its content; kept while it is in use."""
        self._tenants = [""] * num_blocks
        """By free block: whose it is."""
        self._all = DueQueue()
        self._own: dict[str, DueQueue] = {}
        """By tenant, those that have blocks here."""
        self._largest = ""
        """The tenant that was the last to have more than its share."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def due(self, credit: int) -> int:
        """Return the time at which a block that is freed now is due."""
        return self._clock + min(credit, self._most_credit)

    def delay(self, block_id: int, due: int) -> None:
        """Note that a block with content has been released, and is due no earlier than then. It may be in use still."""
        if self._due[block_id] == NEVER:
            self._clock += 1
        self._due[block_id] = max(due, self._due[block_id])

    def add(self, block_id: int, tenant: str) -> None:
        """Add a block that is free now, after `delay`. Add the end of a chain before its beginning."""
        due = self._due[block_id]
        self._tenants[block_id] = tenant
        self._all.add(block_id, due)
        own = self._own.get(tenant)
        if own is None:
            own = self._own[tenant] = DueQueue()
        own.add(block_id, due)
        if len(own) > self._most_of_tenant:
            self._largest = tenant

    def remove(self, block_id: int) -> None:
        """Remove a block that is in use again; what it was due at is kept."""
        due, tenant = self._due[block_id], self._tenants[block_id]
        self._all.remove(block_id, due)
        own = self._own[tenant]
        own.remove(block_id, due)
        if not own:
            del self._own[tenant]

    def pop(self) -> int:
        """Remove and return the block to give away next."""
        own = self._own.get(self._largest)
        block_id = (own if own is not None and len(own) > self._most_of_tenant else self._all).first()
        self.remove(block_id)
        self.forget(block_id)
        return block_id

    def tenant(self, block_id: int) -> str:
        """Return whose a block was when it was added last."""
        return self._tenants[block_id]

    def forget(self, block_id: int) -> None:
        """Forget when a block was due, as its content is gone."""
        self._due[block_id] = NEVER

    def check_integrity(self) -> str:
        """Return what is wrong with the queues, or ''."""
        own = {block_id: tenant for tenant, queue in self._own.items() for block_id in queue}
        found = {block_id: self._tenants[block_id] for block_id in self._all}
        if own != found or len(found) != len(self._all) or sum(map(len, self._own.values())) != len(found):
            return "the queues of the tenants do not hold the free blocks with content"
        return ""
