"""Which chunks of a step verify drafts: a drafter expects tokens, and they must find room within a share of the budget."""

from __future__ import annotations

from typing import Protocol

from engine.scheduling.block_tables import BlockTables
from engine.scheduling.plan import Chunk
from engine.sequence import Sequence

DRAFT_SHARE = 4
"""Drafts take at most this part of a step's tokens: a quarter."""


class Drafter(Protocol):
    """Expects what comes next (engine.decoding.drafter). One that is empty is not asked."""

    def __len__(self) -> int: ...

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        """At most `limit` tokens that may come next, if it pays to verify them in a step that draws `num_rows` tokens so far."""


class Drafting:
    """False as long as nobody can have drafts."""

    def __init__(self, drafter: Drafter | None, blocks: BlockTables, max_num_batched_tokens: int) -> None:
        self._drafter = drafter
        self._blocks = blocks
        self._max_tokens = max_num_batched_tokens // DRAFT_SHARE

    def __bool__(self) -> bool:
        return bool(self._drafter)

    def resize(self, max_num_batched_tokens: int) -> None:
        """From now on steps have so many tokens."""
        self._max_tokens = max_num_batched_tokens // DRAFT_SHARE

    def split(self, chunks: list[Chunk], budget: int, num_running: int) -> tuple[list[Chunk], list[Chunk]]:
        """Split chunks, most urgent first, into those without drafts and those that got some, no more than a share of the budget.

        One block per running sequence stays free: nobody is preempted for drafts.
        """
        assert self._drafter is not None
        plain: list[Chunk] = []
        drafted: list[Chunk] = []
        budget = min(budget, self._max_tokens)
        num_rows = sum(chunk.samples for chunk in chunks)
        for chunk in chunks:
            if not chunk.samples:
                plain.append(chunk)
                continue
            sequence = chunk.sequence
            limit = min(
                budget,
                sequence.max_tokens - len(sequence.output_ids) - 1,
                self._blocks.capacity_tokens - sequence.num_tokens,
            )
            draft_ids = self._drafter.propose(sequence, num_rows, limit) if limit > 0 else ()
            if draft_ids:
                draft_ids = draft_ids[: self._blocks.add_for_drafts(sequence, len(draft_ids), num_running)]
            if not draft_ids:
                plain.append(chunk)
                continue
            budget -= len(draft_ids)
            num_rows += len(draft_ids)
            drafted.append(chunk._replace(draft_ids=draft_ids))
        return plain, drafted
