"""The cache blocks: which of them are free, which hold a computed prefix, and which belong to a sequence.

A block without references is free. A free block whose content is in the prefix cache can be acquired again with that
content, until the free list, least recently released first, gives it away for something new.

The prefix cache knows a full block by SHA-256(digest of the block before it, its token ids); the parent of the first
block is the `cache_root` of the sequence, which stands for tenant and salt. So a digest identifies the whole prefix, a
look-up walks to the first miss, and sequences of different roots share nothing. Method: automatic prefix caching of
vLLM (Kwon et al., https://arxiv.org/abs/2309.06180, and its design notes).
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Set
from collections.abc import Sequence as Ids
from hashlib import sha256

from engine.sequence import Sequence


def extend_digests(digests: list[bytes], sequence: Sequence, num_blocks: int, block_size: int) -> None:
    """Append to the digests of a sequence's first blocks those up to block `num_blocks`, full of known tokens.

    They begin at the cache root of its tenant and salt (`engine.requests.prepare`), so no other tenant has the same.
    """
    known = len(digests)
    if known >= num_blocks:
        return
    parent = digests[-1] if digests else sequence.request.cache_root
    token_bytes = array("i", sequence.token_slice(known * block_size, num_blocks * block_size)).tobytes()
    width = len(token_bytes) // (num_blocks - known)
    for start in range(0, len(token_bytes), width):
        parent = sha256(parent + token_bytes[start : start + width]).digest()
        digests.append(parent)


class PrefixCache:
    """A one-to-one map between digests and blocks. It holds no references to the blocks."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._digests

    def match(self, digests: list[bytes], limit: int) -> list[int]:
        """Return the blocks of the longest known prefix, at most `limit` of them."""
        block_ids: list[int] = []
        for digest in digests[:limit]:
            block_id = self._blocks.get(digest)
            if block_id is None:
                break
            block_ids.append(block_id)
        return block_ids

    def register(self, digest: bytes, block_id: int) -> None:
        """Add a computed full block. A digest that is known already keeps its first block."""
        if digest not in self._blocks and block_id not in self._digests:
            self._blocks[digest] = block_id
            self._digests[block_id] = digest

    def forget(self, block_id: int) -> None:
        digest = self._digests.pop(block_id, None)
        if digest is not None:
            del self._blocks[digest]

    def check_integrity(self) -> str:
        """Return what is wrong with the map, or ''."""
        if {block_id: digest for digest, block_id in self._blocks.items()} != self._digests:
            return "the prefix cache does not map digests and blocks one to one"
        return ""


class BlockPool:
    """The reference counts and the free list of blocks `0..num_blocks`. Every operation costs O(1) per block."""

    def __init__(self, num_blocks: int, cache: PrefixCache) -> None:
        self.references = [0] * num_blocks
        self._cache = cache
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_free_of(self, block_ids: Ids[int]) -> int:
        return sum(1 for block_id in block_ids if not self.references[block_id])

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference, and remove them from the prefix cache."""
        assert count <= len(self._free), "check num_free before allocate()"
        block_ids = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block_id in block_ids:
            self._cache.forget(block_id)
            self.references[block_id] = 1
        return block_ids

    def acquire(self, block_ids: Ids[int]) -> None:
        """Add a reference to each block, in use or free."""
        for block_id in block_ids:
            if not self.references[block_id]:
                del self._free[block_id]
            self.references[block_id] += 1

    def release(self, block_ids: Ids[int]) -> None:
        """Drop one reference to each block of a sequence.

        The last block is freed first, so it is also reused first, and a shared beginning lives longest. Blocks that are
        not in the prefix cache go to the front of the free list.
        """
        for block_id in reversed(block_ids):
            self.references[block_id] -= 1
            if not self.references[block_id]:
                self._free[block_id] = None
                if block_id not in self._cache:
                    self._free.move_to_end(block_id, last=False)

    def check_integrity(self, holders: list[list[int]]) -> str:
        """Compare the counts with the block tables of sequences; return the first error, or ''."""
        expected = [0] * len(self.references)
        for block_ids in holders:
            if len(set(block_ids)) != len(block_ids):
                return f"a sequence holds a block twice: {block_ids}"
            for block_id in block_ids:
                expected[block_id] += 1
        for block_id, (counted, held) in enumerate(zip(self.references, expected, strict=True)):
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
        for block_id in block_ids:
            self._released[block_id] += 1
            self.num_blocks += self._released[block_id] == self._references[block_id] and block_id not in self._excluded


class BlockTables:
    """The blocks of all sequences that the scheduler knows. `capacity_tokens`: the positions of all blocks together."""

    def __init__(self, num_blocks: int, block_size: int, shares_prefixes: bool) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity_tokens = num_blocks * block_size
        self.shares_prefixes = shares_prefixes
        self.cache = PrefixCache()
        self._pool = BlockPool(num_blocks, self.cache)
        self._digests: dict[int, list[bytes]] = {}
        """By `seq_id`: the digests of the first full blocks, computed once each and on demand."""

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def open(self, sequence: Sequence) -> None:
        self._digests[sequence.seq_id] = []

    def close(self, sequence: Sequence) -> None:
        self.release(sequence)
        del self._digests[sequence.seq_id]

    def count(self, sequence: Sequence) -> int:
        """Count the blocks that the known tokens of a sequence fill, the last one partly."""
        return -(-sequence.num_tokens // self.block_size)

    # Finding blocks in the prefix cache

    def num_matchable(self, sequence: Sequence) -> int:
        """Count the blocks that may come from the cache.

        The last known token is always computed, as its logits are needed. A prompt that is scored, or that becomes the
        mean of its hidden states, is computed as a whole.
        """
        if not self.shares_prefixes or sequence.request.logprobs.prompt is not None:
            return 0
        if sequence.embed is not None and sequence.embed.pooling == "mean":
            return 0
        return (sequence.num_tokens - 1) // self.block_size

    def match(self, sequence: Sequence) -> tuple[list[bytes], list[int]]:
        """Return the digests of the blocks that may come from the cache, and the first of these blocks that it has."""
        limit = self.num_matchable(sequence)
        digests = self._digests[sequence.seq_id]
        extend_digests(digests, sequence, limit, self.block_size)
        return digests, self.cache.match(digests, limit)

    def digests_filled_by(self, grants: Iterable[tuple[Sequence, int]]) -> set[bytes]:
        """Return the known digests of the blocks that sequences fill if each computes so many tokens."""
        filled: set[bytes] = set()
        if self.shares_prefixes:
            for sequence, num_tokens in grants:
                first = sequence.num_computed // self.block_size
                end = (sequence.num_computed + num_tokens) // self.block_size
                filled.update(self._digests[sequence.seq_id][first:end])
        return filled

    def is_being_computed_for(self, sequence: Sequence, others: list[Sequence]) -> bool:
        """Return True if the prompts of other sequences fill the next block that a sequence may find in the cache."""
        digests, matched = self.match(sequence)
        if len(matched) == self.num_matchable(sequence):
            return False
        missing = ((other, other.num_tokens - other.num_computed) for other in others)
        return digests[len(matched)] in self.digests_filled_by(pair for pair in missing if pair[1] > 1)

    def register(self, sequence: Sequence, first: int) -> None:
        """Add the full computed blocks of a sequence to the prefix cache, from its block number `first` on."""
        num_full = sequence.num_computed // self.block_size
        digests = self._digests[sequence.seq_id]
        extend_digests(digests, sequence, num_full, self.block_size)
        for index in range(first, num_full):
            self.cache.register(digests[index], sequence.block_ids[index])

    def forget(self, sequence: Sequence) -> None:
        """Remove the blocks of a sequence from the prefix cache."""
        for block_id in sequence.block_ids:
            self.cache.forget(block_id)

    # Taking and releasing

    def has_room(self, sequence: Sequence, matched: list[int], num_reserved: int, num_freed: int = 0) -> bool:
        """Return True if all known tokens of a sequence find blocks, `matched` first, and `num_reserved` stay free.

        `num_freed`: blocks that would also be free, none of them `matched`.
        """
        num_new = self.count(sequence) - len(matched)
        return num_new + num_reserved <= self._pool.num_free + num_freed - self._pool.num_free_of(matched)

    def hypothetical_release(self, excluded: list[int]) -> HypotheticalRelease:
        return HypotheticalRelease(self._pool.references, excluded)

    def take(self, sequence: Sequence, matched: list[int]) -> None:
        """Give a sequence that has no blocks those for all its known tokens, `matched` first."""
        self._pool.acquire(matched)
        sequence.block_ids = matched + self._pool.allocate(self.count(sequence) - len(matched))

    def add(self, sequence: Sequence, count: int = 1) -> None:
        sequence.block_ids += self._pool.allocate(count)

    def add_for_drafts(self, sequence: Sequence, num_drafts: int, num_reserved: int) -> int:
        """Add blocks for drafts while `num_reserved` stay free; return how many drafts have a position."""
        num_missing = -(-(sequence.num_tokens + num_drafts) // self.block_size) - len(sequence.block_ids)
        num_affordable = max(0, min(num_missing, self._pool.num_free - num_reserved))
        if num_affordable:
            self.add(sequence, num_affordable)
        return max(0, len(sequence.block_ids) * self.block_size - sequence.num_tokens)

    def trim(self, sequence: Sequence) -> None:
        """Release blocks that only rejected drafts have used."""
        num_needed = self.count(sequence)
        if len(sequence.block_ids) > num_needed:
            self._pool.release(sequence.block_ids[num_needed:])
            del sequence.block_ids[num_needed:]

    def release(self, sequence: Sequence) -> None:
        self._pool.release(sequence.block_ids)
        sequence.block_ids = []

    def check_integrity(self, known: Set[int], holders: list[Sequence]) -> str:
        """Compare with the known `seq_id`s and the blocks that sequences hold; return the first error, or ''."""
        if self._digests.keys() != known:
            return "a sequence has no account, or an account no sequence"
        return self._pool.check_integrity([sequence.block_ids for sequence in holders]) or self.cache.check_integrity()
