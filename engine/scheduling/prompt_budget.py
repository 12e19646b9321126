"""The tokens of one step that prompts may have: at first an equal share for each tenant, and of it half for prompts longer than a step."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from engine.sequence import Sequence

PROMPT_SHARE = 4
"""Prompts have at least this part of a step's tokens, a quarter, however many sequences get their next ones; it is then so much longer."""


class PromptBudget:
    """`left` are the tokens that nobody has. `wanting`: tenants with prompts to compute, and the best priority of those.

    A tenant shares with those whose prompts are as urgent as the one in question. Prompts of worse priority get nothing at first where one
    was held to the share of its tenant.
    """

    def __init__(self, tokens: int, max_num_batched_tokens: int, wanting: Mapping[str, int]) -> None:
        self.left = tokens
        self._tokens = tokens
        self._step_tokens = max_num_batched_tokens
        self._wanting = Counter(wanting.values())
        """How many tenants, by that priority."""
        self._taken: Counter[str] = Counter()
        self._taken_by_long: Counter[str] = Counter()
        self._is_shared = len(wanting) > 1
        self._held_at = sys.maxsize
        """The best priority at which a prompt was held to a share."""

    @property
    def is_shared(self) -> bool:
        """Whether tenants are held to their shares."""
        return self._is_shared

    def lift(self) -> None:
        """From now on a tenant may have what others have left."""
        self._is_shared = False

    def offer(self, sequence: Sequence, num_missing: int) -> int:
        """How many tokens a prompt that lacks so many may have at first."""
        num_tenants = (
            sum(count for priority, count in self._wanting.items() if priority <= sequence.priority)
            if self._is_shared
            else 1
        )
        offered = min(num_missing, self.left)
        if num_tenants > 1:
            share = max(0, _part(self._tokens, num_tenants) - self._taken[sequence.tenant])
            if sequence.priority > self._held_at:
                share = 0
            elif share < offered:
                self._held_at = sequence.priority
            offered = min(offered, share)
        if self.is_long(num_missing):
            longest = max(1, self._step_tokens // 2)
            taken = self._taken_by_long[sequence.tenant] if num_tenants > 1 else self._taken_by_long.total()
            offered = min(offered, _part(longest, num_tenants) - taken)
        return max(0, offered)

    def take(self, sequence: Sequence, num_tokens: int, num_missing: int) -> None:
        """Give tokens to a prompt that lacks `num_missing`."""
        self.left -= num_tokens
        self._taken[sequence.tenant] += num_tokens
        if self.is_long(num_missing):
            self._taken_by_long[sequence.tenant] += num_tokens

    def take_rest(self, num_missing: int) -> int:
        """Take what is left for a prompt that lacks so many more; how many it gets."""
        num_tokens = min(self.left, num_missing)
        self.left -= num_tokens
        return num_tokens

    def is_long(self, num_missing: int) -> bool:
        return num_missing > self._step_tokens


def _part(total: int, count: int) -> int:
    return -(-total // count)
