"""The prompt tokens of one step: an equal share for each tenant at first, and half of it for prompts that are longer
than a step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

from engine.sequence import Sequence

PROMPT_SHARE = 4
"""Prompts get at least one in so many tokens of a step, however many decodes it has; the step is then longer by as
much.
"""


class PromptBudget:
    """The budget of one step; `left` tokens are not given out yet.

    A tenant shares with the tenants whose prompts are as urgent as the one in question. Once a prompt has been held to
    the share of its tenant, prompts of worse priority get nothing until the shares are lifted.
    """

    def __init__(self, tokens: int, max_num_batched_tokens: int, tenants: Mapping[str, int]) -> None:
        """`tenants`: those with prompts to compute, and the best priority of these."""
        self.left = tokens
        self._tokens = tokens
        self._max_num_batched_tokens = max_num_batched_tokens
        self._num_tenants = Counter(tenants.values())
        """By that best priority."""
        self._taken: Counter[str] = Counter()
        self._taken_by_long: Counter[str] = Counter()
        self._is_shared = len(tenants) > 1
        self._held_at = sys.maxsize
        """The best priority at which a prompt was held to a share."""

    @property
    def is_shared(self) -> bool:
        """Return True while tenants are held to their shares."""
        return self._is_shared

    def lift(self) -> None:
        """Let tenants have what others have left."""
        self._is_shared = False

    def offer(self, sequence: Sequence, num_missing: int) -> int:
        """Return how many tokens a prompt that lacks `num_missing` may have at first."""
        num_tenants = (
            sum(count for priority, count in self._num_tenants.items() if priority <= sequence.priority)
            if self._is_shared
            else 1
        )
        offered = min(num_missing, self.left)
        if num_tenants > 1:
            share = max(0, _equal_share(self._tokens, num_tenants) - self._taken[sequence.tenant])
            if sequence.priority > self._held_at:
                share = 0
            elif share < offered:
                self._held_at = sequence.priority
            offered = min(offered, share)
        if self.is_long(num_missing):
            longest = max(1, self._max_num_batched_tokens // 2)
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
