"""Reference counts of cache blocks and the order in which free ones are taken again. Knows ids only, never contents.

A block is free when nobody refers to it. A free block whose content is in the prefix cache comes back to life when it is
acquired again; until then it waits in the free list, least recently released first, to be taken for something new.
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
        """Count the blocks among `block_ids` that nobody refers to."""
        return sum(1 for block_id in block_ids if not self._references[block_id])

    def release_of_some(self, kept: list[int]) -> ReleaseOfSome:
        return ReleaseOfSome(self._references, kept)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference; what the prefix cache knew of them is forgotten."""
        assert count <= len(self._free), "allocate() needs a look at num_free first"
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

        The end of the chain is freed first, so that it is also taken first and the shared beginning lives longest.
        Blocks without cached content are of no use to anybody and go to the front.
        """
        for block_id in reversed(block_ids):
            self._references[block_id] -= 1
            if not self._references[block_id]:
                self._free[block_id] = None
                if block_id not in self._cache:
                    self._free.move_to_end(block_id, last=False)

    def check_integrity(self, holders: list[list[int]]) -> str:
        """Compare the accounts with the chains that sequences hold; returns what is wrong first, or ''."""
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
                return f"block {block_id} has {counted} references and is {'' if block_id in self._free else 'not '}in the free list"
        return ""


class ReleaseOfSome:
    """What would come free, beside the `kept` blocks, if some holders released their chains: `num_blocks`.

    Holds as long as nothing is taken or given back.
    """

    def __init__(self, references: Ids[int], kept: list[int]) -> None:
        self._references = references
        self._kept = frozenset(kept)
        self._released: Counter[int] = Counter()
        self.num_blocks = 0

    def add(self, block_ids: Ids[int]) -> None:
        """And one more holder's chain."""
        for block_id in block_ids:
            self._released[block_id] += 1
            self.num_blocks += self._released[block_id] == self._references[block_id] and block_id not in self._kept
