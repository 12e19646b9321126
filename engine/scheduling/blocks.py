"""The cache blocks: which of them are free, which hold a computed prefix, and which belong to a sequence.

A sequence has a block of each group of layers (attention/cache_groups.py) for every span, `block_size` positions. Its
table lists them span by span, those of groups without a window first. Blocks behind a window are released while the
sequence runs, and what lies ahead of a long prompt is not taken yet: NO_BLOCK stands for both.

A block without references is free. A free block whose content is in the prefix cache can be acquired again with that
content, until it is given away for something new, in the order of eviction.py. Its content may then go to the spill
file (spilled_blocks.py), from which a sequence reads it back into a block of its own.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Set
from collections.abc import Sequence as Ids
from itertools import takewhile

from engine.attention.cache_groups import NO_BLOCK, CacheGroups
from engine.scheduling.eviction import HIT_CREDIT, LENGTH_CREDIT, EvictionOrder
from engine.scheduling.prefix_cache import PrefixCache, extend_digests
from engine.scheduling.spilled_blocks import BlockFile, SpilledBlocks
from engine.sequence import Chunk, Sequence


class BlockPool:
    """The reference counts and the free ones of blocks `0..num_blocks`. Costs are those of `DueQueue`."""

    def __init__(self, num_blocks: int, cache: PrefixCache, spilled: SpilledBlocks | None = None) -> None:
        self.references = [0] * num_blocks
        self._cache = cache
        self._spilled = spilled
        self._empty = list(range(num_blocks - 1, -1, -1))
        """Free blocks without content, the next one last."""
        self._order = EvictionOrder(num_blocks)
        """Free blocks with content."""

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._order)

    def num_free_of(self, block_ids: Ids[int]) -> int:
        return sum(1 for block_id in block_ids if not self.references[block_id])

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference, and remove them from the prefix cache."""
        assert count <= self.num_free, "check num_free before allocate()"
        block_ids = []
        for _ in range(count):
            if self._empty:
                block_id = self._empty.pop()
            else:
                block_id = self._order.pop()
                digest = self._cache.forget(block_id)
                if self._spilled is not None and digest is not None:
                    self._spilled.add(digest, block_id, self._order.tenant(block_id))
            self.references[block_id] = 1
            block_ids.append(block_id)
        return block_ids

    def acquire(self, block_ids: Ids[int]) -> None:
        """Add a reference to each block, in use or free with content."""
        for block_id in block_ids:
            if not self.references[block_id]:
                self._order.remove(block_id)
            self.references[block_id] += 1

    def release(self, block_ids: Ids[int], tenant: str = "", credit: int = 0) -> None:
        """Drop one reference to each block of a sequence of a tenant.

        The last block is freed first, so it also goes first. Blocks that are not in the prefix cache go before all
        others. `credit`: as in eviction.py.
        """
        due = self._order.due(credit)
        for block_id in reversed(block_ids):
            self.references[block_id] -= 1
            if block_id in self._cache:
                self._order.delay(block_id, due)
                if not self.references[block_id]:
                    self._order.add(block_id, tenant)
            elif not self.references[block_id]:
                self._order.forget(block_id)
                self._empty.append(block_id)

    def check_integrity(self, holders: list[list[int]]) -> str:
        """Compare the counts with the block tables of sequences; return the first error, or ''."""
        expected = [0] * len(self.references)
        for block_ids in holders:
            if len(set(block_ids)) != len(block_ids):
                return f"a sequence holds a block twice: {block_ids}"
            for block_id in block_ids:
                expected[block_id] += 1
        empty, kept = Counter(self._empty), Counter(self._order)
        for block_id, (counted, held) in enumerate(zip(self.references, expected, strict=True)):
            if counted != held:
                return f"block {block_id} has {counted} references, but {held} sequences hold it"
            is_kept = block_id in self._cache
            if (empty[block_id], kept[block_id]) != (not counted and not is_kept, not counted and is_kept):
                return (
                    f"block {block_id} has {counted} references and is wrongly among the free ones, or not among them"
                )
        return self._order.check_integrity()


class HypotheticalRelease:
    """A count of the blocks that would become free if some sequences released theirs, without the `excluded` ones.

    Valid as long as no block is taken or released.
    """

    def __init__(self, references: Ids[int], excluded: list[int]) -> None:
        self._references = references
        self._excluded = frozenset([*excluded, NO_BLOCK])
        self._released: Counter[int] = Counter()
        self.num_blocks = 0

    def add(self, block_ids: Ids[int]) -> None:
        for block_id in block_ids:
            self._released[block_id] += 1
            self.num_blocks += block_id not in self._excluded and self._released[block_id] == self._references[block_id]


def held(table: list[int]) -> list[int]:
    """Return the blocks of a table."""
    return [block_id for block_id in table if block_id != NO_BLOCK]


def num_held(table: list[int]) -> int:
    return len(table) - table.count(NO_BLOCK)


class BlockTables:
    """The blocks of all sequences that the scheduler knows. `capacity_tokens`: of the longest sequence with room."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        shares_prefixes: bool,
        groups: CacheGroups | None = None,
        file: BlockFile | None = None,
    ) -> None:
        """`groups`: one that sees everything, unless given. `file`: for evicted blocks, of one group only."""
        groups = groups or CacheGroups(block_size)
        assert groups.block_size == block_size
        assert file is None or groups.windows == (0,)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.capacity_tokens = groups.capacity_tokens(num_blocks)
        self.shares_prefixes = shares_prefixes
        self.num_groups = groups.count
        self._num_whole = groups.num_whole
        self._windows = list(enumerate(groups.windows))[groups.num_whole :]
        """Groups with windows, and these."""
        self._chunk_spans = groups.num_spans(groups.chunk_tokens) if self._windows else sys.maxsize
        self.cache = PrefixCache(groups)
        self.spilled = SpilledBlocks(file) if file is not None else None
        self._pool = BlockPool(num_blocks, self.cache, self.spilled)
        self._digests: dict[int, list[bytes]] = {}
        """By `seq_id`: the digests of the first full spans, computed once each and on demand."""

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    @property
    def has_windows(self) -> bool:
        return bool(self._windows)

    def open(self, sequence: Sequence) -> None:
        self._digests[sequence.seq_id] = []

    def close(self, sequence: Sequence) -> None:
        self.release(sequence)
        del self._digests[sequence.seq_id]

    def num_spans(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # Finding blocks in the prefix cache

    def num_matchable(self, sequence: Sequence) -> int:
        """Count the spans that may come from the cache.

        The last known token is always computed, as its logits are needed. A prompt that is scored, or that becomes the
        mean of its hidden states, is computed as a whole.
        """
        if not self.shares_prefixes or sequence.request.logprobs.prompt is not None:
            return 0
        if sequence.embed is not None and sequence.embed.pooling == "mean":
            return 0
        return (sequence.num_tokens - 1) // self.block_size

    def match(self, sequence: Sequence) -> list[int]:
        """Return the table of the longest beginning of a sequence that the cache has, and that cuts no whole span."""
        limit = self.num_matchable(sequence)
        digests = self._digests[sequence.seq_id]
        extend_digests(digests, sequence, limit, self.block_size)
        table = self.cache.match(digests, limit)
        while span := sequence.span_cut_at(self.num_matched(table)):
            table = self.cache.match(digests, span[0] // self.block_size)
        return table

    def num_matched(self, matched: list[int]) -> int:
        """Count the tokens of the spans in a table."""
        return len(matched) // self.num_groups * self.block_size

    def next_digest(self, sequence: Sequence, matched: list[int]) -> bytes | None:
        """Return the digest of the span after those `match` has found, or None if that may not come from the cache."""
        number = len(matched) // self.num_groups
        return self._digests[sequence.seq_id][number] if number < self.num_matchable(sequence) else None

    def digests_filled_by(self, grants: Iterable[tuple[Sequence, int]]) -> set[bytes]:
        """Return the known digests of the spans that sequences fill if each computes so many tokens."""
        filled: set[bytes] = set()
        if self.shares_prefixes:
            for sequence, num_tokens in grants:
                first = sequence.num_computed // self.block_size
                end = (sequence.num_computed + num_tokens) // self.block_size
                filled.update(self._digests[sequence.seq_id][first:end])
        return filled

    def is_being_computed_for(self, sequence: Sequence, others: list[Sequence]) -> bool:
        """Return True if the prompts of other sequences fill the next span that a sequence may find in the cache."""
        digest = self.next_digest(sequence, self.match(sequence))
        if digest is None:
            return False
        missing = ((other, other.num_tokens - other.num_computed) for other in others)
        return digest in self.digests_filled_by(pair for pair in missing if pair[1] > 1)

    def register(self, sequence: Sequence, first: int) -> None:
        """Add the full computed spans of a sequence to the prefix cache, from its span number `first` on."""
        num_full = sequence.num_computed // self.block_size
        digests = self._digests[sequence.seq_id]
        extend_digests(digests, sequence, num_full, self.block_size)
        for number in range(first, num_full):
            place = number * self.num_groups
            self.cache.register(digests[number], sequence.block_ids[place : place + self.num_groups])

    def forget(self, sequence: Sequence) -> None:
        """Remove the blocks of a sequence from the prefix cache and from the spill file, for good."""
        if self.spilled is not None:
            for digest in self._digests[sequence.seq_id]:
                self.spilled.forget(digest)
        self._digests[sequence.seq_id].clear()
        for block_id in sequence.block_ids:
            self.cache.forget(block_id)

    # Reading spilled blocks back

    def span_digest(self, sequence: Sequence) -> bytes:
        """Return the known digest of the span that a sequence has next."""
        return self._digests[sequence.seq_id][sequence.num_computed // self.block_size]

    def has_spilled(self, sequence: Sequence) -> bool:
        """Return True if the next span of a sequence, which has computed whole ones, is in the spill file."""
        number = sequence.num_computed // self.block_size
        return (
            self.spilled is not None
            and not sequence.whole_spans
            and number < self.num_matchable(sequence)
            and self._digests[sequence.seq_id][number] in self.spilled
        )

    def spilled_digests(self, sequence: Sequence, first: int) -> list[bytes]:
        """Return the digests of a sequence's spans from number `first` on, up to one that is not in the spill file.

        NOTE: copied back in part, they might end within tokens that one step computes.
        """
        if self.spilled is None or sequence.whole_spans:
            return []
        known = self._digests[sequence.seq_id][first : self.num_matchable(sequence)]
        return list(takewhile(self.spilled.__contains__, known))

    def num_known(self, sequence: Sequence, matched: list[int]) -> int:
        """Count the tokens of the spans in a table, and of those in the spill file behind them."""
        number = len(matched) // self.num_groups
        return (number + len(self.spilled_digests(sequence, number))) * self.block_size

    def restore(self, sequence: Sequence, most: int) -> int:
        """Copy up to `most` of a running sequence's next spans from the spill file into its blocks; return how many.

        They count as computed, and are in the prefix cache.
        """
        first = sequence.num_computed // self.block_size
        digests = self.spilled_digests(sequence, first)[:most]
        if self.spilled is not None and digests:
            for number, digest in enumerate(digests, first):
                self.spilled.restore(digest, sequence.block_ids[number])
            sequence.num_computed = (first + len(digests)) * self.block_size
            self.register(sequence, first)
        return len(digests)

    def save_before(self, chunks: Iterable[Chunk]) -> None:
        """Save what must be spilled and a step of these chunks writes over."""
        if self.spilled is None:
            return
        for chunk in chunks:
            first, end = chunk.start // self.block_size, self.num_spans(chunk.start + chunk.num_positions)
            self.spilled.save(chunk.sequence.block_ids[first:end])

    # Taking and releasing

    def num_new(self, sequence: Sequence, matched: list[int]) -> int:
        """Count the blocks that a waiting sequence takes to start behind a matched beginning."""
        spans, known = self.num_spans(sequence.num_tokens), len(matched) // self.num_groups
        num_windowed = min(spans - known, self._chunk_spans)
        return self._num_whole * (spans - known) + len(self._windows) * num_windowed

    def has_room(self, sequence: Sequence, matched: list[int], num_reserved: int, num_freed: int = 0) -> bool:
        """Return True if a waiting sequence finds blocks to start, `matched` first, and `num_reserved` spans stay free.

        `num_freed`: blocks that would also be free, none of them `matched`.
        """
        num_needed = self.num_new(sequence, matched) + num_reserved * self.num_groups
        return num_needed <= self._pool.num_free + num_freed - self._pool.num_free_of(held(matched))

    def hypothetical_release(self, excluded: list[int]) -> HypotheticalRelease:
        return HypotheticalRelease(self._pool.references, excluded)

    def take(self, sequence: Sequence, matched: list[int]) -> None:
        """Give a sequence that has no blocks those for all its known tokens, `matched` first.

        In groups with windows it gets those of the next `chunk_tokens`; `extend` gives it the others.
        """
        self._pool.acquire(held(matched))
        if self.spilled is not None:  # or they might go for what the new blocks held
            spilled = self.spilled_digests(sequence, len(matched) // self.num_groups)
            self.spilled.renew(reversed(spilled), sequence.tenant)
        spans, known = self.num_spans(sequence.num_tokens), len(matched) // self.num_groups
        placed = known + min(spans - known, self._chunk_spans)
        sequence.block_ids = matched + self._pool.allocate((placed - known) * self.num_groups)
        sequence.num_placed = placed * self.block_size
        if placed < spans:
            whole = iter(self._pool.allocate((spans - placed) * self._num_whole))
            for _ in range(placed, spans):
                sequence.block_ids += [next(whole) for _ in range(self._num_whole)]
                sequence.block_ids += [NO_BLOCK] * len(self._windows)

    def extend(self, sequence: Sequence, num_tokens: int) -> None:
        """Place more tokens of a running sequence, up to `num_tokens`, as far as blocks are free.

        Blocks that its next token does not see any more are released first. `num_placed` says how far it has come.
        """
        self._release_behind(sequence)
        first, num_listed = sequence.num_placed // self.block_size, len(sequence.block_ids) // self.num_groups
        is_listed = first < num_listed
        wanted = self.num_spans(num_tokens)
        if is_listed:
            wanted = min(wanted, num_listed, self.num_spans(sequence.num_computed) + self._chunk_spans)
        num_missing = len(self._windows) if is_listed else self.num_groups
        count = min(wanted - first, self._pool.num_free // num_missing)
        if count <= 0:
            return
        block_ids = self._pool.allocate(count * num_missing)
        sequence.num_placed = (first + count) * self.block_size
        if not is_listed:
            sequence.block_ids += block_ids
            return
        for number in range(count):
            end = (first + number + 1) * self.num_groups
            start = number * num_missing
            sequence.block_ids[end - num_missing : end] = block_ids[start : start + num_missing]

    def _release_behind(self, sequence: Sequence) -> None:
        """Release the blocks behind the windows of a sequence's next token."""
        if not self._windows:
            return
        table, released = sequence.block_ids, []
        for group, window in self._windows:
            span = max(0, sequence.num_computed - window + 1) // self.block_size - 1
            while span >= 0 and (block_id := table[place := span * self.num_groups + group]) != NO_BLOCK:
                released.append(block_id)
                table[place] = NO_BLOCK
                span -= 1
        self._pool.release(released, sequence.tenant)

    def add_for_drafts(self, sequence: Sequence, num_drafts: int, num_reserved: int) -> int:
        """Place drafts while `num_reserved` spans stay free; return how many drafts have a position."""
        num_missing = self.num_spans(sequence.num_tokens + num_drafts) - len(sequence.block_ids) // self.num_groups
        if num_missing > 0:
            self._release_behind(sequence)
        num_affordable = max(0, min(num_missing, self._pool.num_free // self.num_groups - num_reserved))
        if num_affordable:
            sequence.block_ids += self._pool.allocate(num_affordable * self.num_groups)
            sequence.num_placed += num_affordable * self.block_size
        return max(0, sequence.num_placed - sequence.num_tokens)

    def trim(self, sequence: Sequence) -> None:
        """Release blocks that only rejected drafts have used."""
        spans = self.num_spans(sequence.num_tokens)
        num_needed = spans * self.num_groups
        if len(sequence.block_ids) > num_needed:
            self._pool.release(sequence.block_ids[num_needed:], sequence.tenant)
            del sequence.block_ids[num_needed:]
            sequence.num_placed = spans * self.block_size

    def release(self, sequence: Sequence) -> None:
        """Release the blocks of a sequence, those that it had found in the cache with more credit (eviction.py)."""
        self._exchange_duplicates(sequence)
        place = (sequence.num_cached or 0) // self.block_size * self.num_groups
        credit = LENGTH_CREDIT * (sequence.num_computed // self.block_size * self.num_groups)
        self._pool.release(held(sequence.block_ids[place:]), sequence.tenant, credit)
        self._pool.release(held(sequence.block_ids[:place]), sequence.tenant, credit + HIT_CREDIT * place)
        sequence.block_ids = []
        sequence.num_placed = 0

    def _exchange_duplicates(self, sequence: Sequence) -> None:
        """Put the blocks that the prefix cache has for a sequence's spans in the place of those that it has not.

        Those it has are then freed after what follows them, although another sequence has computed them. If it has lost
        them meanwhile, it gets those of the sequence.
        """
        table, num_groups = sequence.block_ids, self.num_groups
        num_full = sequence.num_computed // self.block_size
        for number, digest in enumerate(self._digests[sequence.seq_id][:num_full]):
            place = number * num_groups
            own = table[place : place + num_groups]
            if own == self.cache.blocks(digest):
                continue
            self.cache.register(digest, own)
            for group, block_id in enumerate(self.cache.blocks(digest), place):
                if NO_BLOCK not in (block_id, table[group]) and block_id != table[group]:
                    self._pool.acquire([block_id])
                    self._pool.release([table[group]])
                    table[group] = block_id

    def check_integrity(self, known: Set[int], holders: list[Sequence]) -> str:
        """Compare with the known `seq_id`s and the blocks that sequences hold; return the first error, or ''."""
        if self._digests.keys() != known:
            return "a sequence has no account, or an account no sequence"
        tables = [held(sequence.block_ids) for sequence in holders]
        spilled = self.spilled.check_integrity() if self.spilled is not None else ""
        return self._pool.check_integrity(tables) or self.cache.check_integrity() or spilled
