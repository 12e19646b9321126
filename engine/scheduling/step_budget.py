"""The tokens of one step: those for drafts, and those for prompts.

Each tenant has an equal share of the prompt tokens at first, half of it for prompts that are longer than a step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from engine.scheduling.blocks import BlockTables
from engine.sequence import Chunk, Sequence

DRAFT_SHARE = 4
"""Drafts take at most one in so many tokens of a step."""
PROMPT_SHARE = 4
"""Prompts get at least one in so many tokens of a step, which is longer by as much if decodes fill it, unless these may
not wait so long."""

MIN_PROMPT_TOKENS = 16
"""Prompts get so many tokens of a step, however long decodes wait for it."""


class Drafter(Protocol):
    """A source of drafts (engine.decoding.drafter); its length is the number of sequences that may have some."""

    def __len__(self) -> int: ...

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        """Return at most `limit` drafts, if verifying them pays in a step that draws `num_rows` tokens so far."""


def add_drafts(
    drafter: Drafter, blocks: BlockTables, chunks: list[Chunk], budget: int, num_running: int
) -> tuple[list[Chunk], list[Chunk]]:
    """Split chunks, most urgent first, into those without drafts and those with some, at most `budget` drafts together.

    One block per running sequence stays free, so that no sequence is preempted for drafts.
    """
    plain: list[Chunk] = []
    drafted: list[Chunk] = []
    num_rows = sum(chunk.samples for chunk in chunks)
    for chunk in chunks:
        sequence = chunk.sequence
        limit = 0
        if chunk.samples:
            num_left = sequence.max_tokens - len(sequence.output_ids) - 1
            limit = min(budget, num_left, blocks.capacity_tokens - sequence.num_tokens)
        draft_ids = drafter.propose(sequence, num_rows, limit) if limit > 0 else ()
        if draft_ids:
            draft_ids = draft_ids[: blocks.add_for_drafts(sequence, len(draft_ids), num_running)]
        if not draft_ids:
            plain.append(chunk)
            continue
        budget -= len(draft_ids)
        num_rows += len(draft_ids)
        drafted.append(chunk._replace(draft_ids=draft_ids))
    return plain, drafted


class PromptBudget:
    """The prompt tokens of one step; `left` are not given out yet.

    A tenant shares with the tenants whose prompts are as urgent as the one in question. Once a prompt has been held to
    the share of its tenant, prompts of worse priority get nothing until the shares are lifted.
    """

    def __init__(self, tokens: int, max_num_batched_tokens: int, tenants: Mapping[str, int]) -> None:
        """`tenants`: those with prompts to compute, and the best priority of these prompts."""
        self.left = tokens
        self._tokens = tokens
        self._max_num_batched_tokens = max_num_batched_tokens
        self._num_tenants = Counter(tenants.values())
        """By that best priority."""
        self._taken: Counter[str] = Counter()
        self._taken_by_long: Counter[str] = Counter()
        self.is_shared = len(tenants) > 1
        """Tenants are held to their shares; set it to False to let them have what others have left."""
        self._held_at = sys.maxsize
        """The best priority at which a prompt was held to a share."""

    def offer(self, sequence: Sequence, num_missing: int) -> int:
        """Return how many tokens a prompt that lacks `num_missing` may have at first."""
        num_tenants = 1
        if self.is_shared:
            num_tenants = sum(n for priority, n in self._num_tenants.items() if priority <= sequence.priority)
        offered = min(num_missing, self.left)
        if num_tenants > 1:
            share = max(0, _equal_share(self._tokens, num_tenants) - self._taken[sequence.tenant])
            if sequence.priority > self._held_at:
                share = 0
            elif share < offered:
                self._held_at = sequence.priority
            offered = min(offered, share)
        if self.is_long(num_missing):
            longest = max(1, min(self._tokens, self._max_num_batched_tokens) // 2)
            taken = self._taken_by_long[sequence.tenant] if num_tenants > 1 else self._taken_by_long.total()
            offered = min(offered, _equal_share(longest, num_tenants) - taken)
        return max(0, offered)

    def take(self, sequence: Sequence, num_tokens: int, num_missing: int) -> None:
        """Give tokens to a prompt that lacks `num_missing`."""
        self.left -= num_tokens
        self._taken[sequence.tenant] += num_tokens
        if self.is_long(num_missing):
            self._taken_by_long[sequence.tenant] += num_tokens

    def take_rest(self, num_missing: int) -> int:
        """Give what is left to a prompt that lacks `num_missing` more; return how many it gets."""
        num_tokens = min(self.left, num_missing)
        self.left -= num_tokens
        return num_tokens

    def is_long(self, num_missing: int) -> bool:
        return num_missing > self._max_num_batched_tokens


def _equal_share(total: int, count: int) -> int:
    return -(-total // count)
