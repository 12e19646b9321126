"""The pool of cache blocks: reference counts, and the order in which free blocks are reused. Knows ids, never contents.

A block without references is free. A free block whose content is in the prefix cache can be acquired again with that
content, until the free list, least recently released first, gives it away for something new.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence as Ids

from engine.scheduling.prefix_cache import PrefixCache


class BlockPool:
    """Blocks `0..num_blocks`. Every operation costs O(1) per block."""

    def __init__(self, num_blocks: int, cache: PrefixCache) -> None:
        self.num_blocks = num_blocks
        self._cache = cache
        self._references = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_free_of(self, block_ids: Ids[int]) -> int:
        """Count the free blocks among `block_ids`."""
        return sum(1 for block_id in block_ids if not self._references[block_id])

    def hypothetical_release(self, excluded: list[int]) -> HypotheticalRelease:
        return HypotheticalRelease(self._references, excluded)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference, and remove them from the prefix cache."""
        assert count <= len(self._free), "check num_free before allocate()"
        block_ids = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block_id in block_ids:
            self._cache.forget(block_id)
            self._references[block_id] = 1
        return block_ids

    def acquire(self, block_ids: Ids[int]) -> None:
        """Add a reference to each block, in use or free."""
        for block_id in block_ids:
            if not self._references[block_id]:
                del self._free[block_id]
            self._references[block_id] += 1

    def release(self, block_ids: Ids[int]) -> None:
        """Drop one reference to each block of a chain.

        The end of the chain is freed first, so that it is also reused first and the shared beginning lives longest.
        Blocks that are not in the prefix cache go to the front of the free list.
        """
        for block_id in reversed(block_ids):
            self._references[block_id] -= 1
            if not self._references[block_id]:
                self._free[block_id] = None
                if block_id not in self._cache:
                    self._free.move_to_end(block_id, last=False)

    def check_integrity(self, holders: list[list[int]]) -> str:
        """Compare the counts with the block tables of sequences; return the first error, or ''."""
        expected = [0] * self.num_blocks
        for block_ids in holders:
            if len(set(block_ids)) != len(block_ids):
                return f"a sequence holds a block twice: {block_ids}"
            for block_id in block_ids:
                expected[block_id] += 1
        for block_id, (counted, held) in enumerate(zip(self._references, expected, strict=True)):
            if counted != held:
                return f"block {block_id} has {counted} references, but {held} sequences hold it"
            if (counted == 0) != (block_id in self._free):
                where = "in" if block_id in self._free else "not in"
                return f"block {block_id} has {counted} references and is {where} the free list"
        return ""


class HypotheticalRelease:
    """A count of the blocks that would become free if some sequences released theirs, without the `excluded` ones.

    Valid as long as no block is taken or released.
    """

    def __init__(self, references: Ids[int], excluded: list[int]) -> None:
        self._references = references
        self._excluded = frozenset(excluded)
        self._released: Counter[int] = Counter()
        self.num_blocks = 0

    def add(self, block_ids: Ids[int]) -> None:
        """Count the blocks of one more sequence."""
        for block_id in block_ids:
            self._released[block_id] += 1
            self.num_blocks += self._released[block_id] == self._references[block_id] and block_id not in self._excluded
