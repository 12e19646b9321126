"""The drafts of a step: a drafter proposes tokens, and a share of the budget is spent on verifying them."""

from __future__ import annotations

from typing import Protocol

from engine.scheduling.block_tables import BlockTables
from engine.scheduling.plan import Chunk
from engine.sequence import Sequence

DRAFT_SHARE = 4
"""Drafts take at most one in so many tokens of a step."""


class Drafter(Protocol):
    """A source of drafts (engine.decoding.drafter); its length is the number of sequences that may have some."""

    def __len__(self) -> int: ...

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        """Return at most `limit` drafts, if verifying them pays in a step that draws `num_rows` tokens so far."""


class DraftPlanner:
    """The planner of drafts; false while no sequence can have any."""

    def __init__(self, drafter: Drafter | None, blocks: BlockTables, max_num_batched_tokens: int) -> None:
        self._drafter = drafter
        self._blocks = blocks
        self._max_tokens = max_num_batched_tokens // DRAFT_SHARE

    def __bool__(self) -> bool:
        return bool(self._drafter)

    def resize(self, max_num_batched_tokens: int) -> None:
        """Set the budget of the next steps."""
        self._max_tokens = max_num_batched_tokens // DRAFT_SHARE

    def split(self, chunks: list[Chunk], budget: int, num_running: int) -> tuple[list[Chunk], list[Chunk]]:
        """Split chunks, most urgent first, into those without drafts and those with some, within a share of the budget.

        One block per running sequence stays free, so that no sequence is preempted for drafts.
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
