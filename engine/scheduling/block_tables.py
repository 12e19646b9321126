"""The block tables of sequences: blocks are taken from the pool or found in the prefix cache, and registered there once
they are full.

Every sequence that the scheduler knows is opened here, also while it holds no blocks. Of a sequence only `block_ids` is
written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from engine.scheduling.blocks import BlockPool, HypotheticalRelease
from engine.scheduling.prefix_cache import BlockChain, PrefixCache
from engine.sequence import Sequence


class BlockTables:
    """The blocks of all sequences; `capacity_tokens` are the positions of all blocks together."""

    def __init__(self, num_blocks: int, block_size: int, shares_prefixes: bool) -> None:
        """`shares_prefixes`: whether the prefix cache is used."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity_tokens = num_blocks * block_size
        self.shares_prefixes = shares_prefixes
        self.cache = PrefixCache()
        self._pool = BlockPool(num_blocks, self.cache)
        self._chains: dict[int, BlockChain] = {}

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def open(self, sequence: Sequence) -> None:
        self._chains[sequence.seq_id] = BlockChain()

    def close(self, sequence: Sequence) -> None:
        self.release(sequence)
        del self._chains[sequence.seq_id]

    def count(self, sequence: Sequence) -> int:
        """Count the blocks that the known tokens of a sequence fill, the last one partly."""
        return -(-sequence.num_tokens // self.block_size)

    # Finding blocks in the prefix cache

    def num_matchable(self, sequence: Sequence) -> int:
        """Count the blocks that may come from the cache.

        The last known token is always computed, as its logits are needed. A prompt that is scored, or that becomes the
        mean of its hidden states, is computed as a whole.
        """
        needs_all = sequence.request.logprobs.prompt is not None or (
            sequence.embed is not None and sequence.embed.pooling == "mean"
        )
        is_matchable = self.shares_prefixes and not needs_all
        return (sequence.num_tokens - 1) // self.block_size if is_matchable else 0

    def match(self, sequence: Sequence) -> tuple[list[bytes], list[int]]:
        """Return the digests of the blocks that may come from the cache, and the blocks that it has for the first of
        them.
        """
        limit = self.num_matchable(sequence)
        digests = self._chains[sequence.seq_id].extend(sequence, limit, self.block_size)
        return digests, self.cache.match(digests, limit)

    def digests_filled(self, sequence: Sequence, num_tokens: int) -> list[bytes]:
        """Return the digests of the blocks that the next `num_tokens` tokens fill, as far as they are known."""
        if not self.shares_prefixes:
            return []
        start = sequence.num_computed
        return self._chains[sequence.seq_id].digests[start // self.block_size : (start + num_tokens) // self.block_size]

    def digests_filled_by(self, grants: Iterable[tuple[Sequence, int]]) -> set[bytes]:
        """Return the digests of the blocks that sequences fill if each computes so many tokens."""
        return {digest for sequence, num_tokens in grants for digest in self.digests_filled(sequence, num_tokens)}

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
        digests = self._chains[sequence.seq_id].extend(sequence, num_full, self.block_size)
        for index in range(first, num_full):
            self.cache.register(digests[index], sequence.block_ids[index])

    def forget(self, sequence: Sequence) -> None:
        """Remove the blocks of a sequence from the prefix cache."""
        for block_id in sequence.block_ids:
            self.cache.forget(block_id)

    # Taking and releasing

    def has_room(self, sequence: Sequence, matched: list[int], num_reserved: int, num_freed: int = 0) -> bool:
        """Return True if there are blocks for all known tokens of a sequence, `matched` among them, and `num_reserved`
        stay free.

        `num_freed`: blocks that would also be free, none of them `matched`.
        """
        num_new = self.count(sequence) - len(matched)
        return num_new + num_reserved <= self._pool.num_free + num_freed - self._pool.num_free_of(matched)

    def hypothetical_release(self, excluded: list[int]) -> HypotheticalRelease:
        """Return a counter of the blocks that preempting some sequences would free, without the `excluded` ones."""
        return self._pool.hypothetical_release(excluded)

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
        if self._chains.keys() != known:
            return "a sequence has no account, or an account no sequence"
        return self._pool.check_integrity([sequence.block_ids for sequence in holders]) or self.cache.check_integrity()
