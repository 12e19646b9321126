"""The tokens per step, adapted while serving so that a step lasts about STEP_SECONDS: the load of the machine changes.

Only steps in which prompts have at least half of what a step with decodes may have are measured. A disturbance can only
make a step longer; so the budget shrinks when even the good ones of the last steps were too slow, and grows when most
were quick enough. It changes by a factor of two at most, and not for small differences.

A step has at least `least` tokens, as fewer cost more each. With decodes, which wait for its end, it has fewer where
these take longer than WAIT_SHARE of `max_step_wait_s`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from time import perf_counter

from engine.sequence import StepPlan

logger = logging.getLogger(__name__)

STEP_SECONDS = 0.1
PREFILL_ONLY_STEPS = 2
"""A step without decodes that is not cut between layers may last as long as this many others: an arrival waits for it.
"""
MIN_SAMPLES, MAX_SAMPLES = 4, 12
"""Measured steps that a change needs, and that are remembered."""
WAIT_SHARE = 0.8
"""The part of the longest wait of decodes that a step is planned for, as steps vary."""
MIN_GROWTH, MAX_SHRINKING = 1.25, 0.8
"""Smaller changes than by these factors are not made."""


class AdaptiveTokenBudget:
    """The present `max_num_batched_tokens`: from `least` to `most`, and a multiple of `grain` once it has changed."""

    def __init__(
        self,
        max_num_batched_tokens: int,
        least: int,
        most: int,
        most_prefill_only: int,
        grain: int,
        clock: Callable[[], float] = perf_counter,
        *,
        affordable: float = 0.0,
        max_step_wait_s: float = 0.25,
        num_cuts: int = 0,
        most_cut: int = 0,
    ) -> None:
        """`most_prefill_only`: the most tokens of a step without decodes.

        `affordable`: the tokens of STEP_SECONDS, as far as known. `max_step_wait_s`: how long decodes may wait for a
        step. `num_cuts`, `most_cut`: how many times as long one may last that is cut between layers, its most tokens.
        """
        assert least <= max_num_batched_tokens <= most
        self.max_num_batched_tokens = max_num_batched_tokens
        self._wait_steps = max_step_wait_s / STEP_SECONDS
        self._most_affordable = most / min(1.0, WAIT_SHARE * self._wait_steps)
        """With more no budget grows."""
        self._affordable = min(affordable, self._most_affordable) or max_num_batched_tokens
        """Tokens of STEP_SECONDS, however few."""
        self._num_cuts = num_cuts
        self._most_cut = most_cut
        self._least = least
        self._most = most
        self._most_prefill_only = most_prefill_only
        self._grain = grain
        self._clock = clock
        self._rates: deque[float] = deque(maxlen=MAX_SAMPLES)
        self._started_at = 0.0

    @property
    def prefill_only_token_budget(self) -> int:
        """The budget of a step without decodes."""
        return min(PREFILL_ONLY_STEPS * self.max_num_batched_tokens, self._most_prefill_only)

    @property
    def mixed_step_tokens(self) -> int:
        """The most tokens of a step with decodes."""
        tokens = min(WAIT_SHARE * self._affordable * self._wait_steps, self.max_num_batched_tokens)
        return max(self._grain, self._whole_grains(tokens))

    @property
    def cut_step_tokens(self) -> int:
        """The most tokens of a step that is cut between layers; 0: none is."""
        return self._whole_grains(min(self._affordable * self._wait_steps * self._num_cuts, self._most_cut))

    def begin(self) -> None:
        self._started_at = self._clock()

    def end(self, plan: StepPlan, earlier_s: float = 0.0) -> bool:
        """End the measurement of a step; True if a budget has changed. `earlier_s`: its seconds before `begin`."""
        seconds = self._clock() - self._started_at + earlier_s
        num_prompt_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.num_tokens > 1)
        if 2 * num_prompt_tokens < self.mixed_step_tokens or seconds <= 0:
            return False
        self._rates.append(sum(chunk.num_positions for chunk in plan.chunks) / seconds)
        if len(self._rates) < MIN_SAMPLES:
            return False
        rates = sorted(self._rates)
        good, usual = rates[-1 - len(rates) // 4] * STEP_SECONDS, rates[(len(rates) - 1) // 2] * STEP_SECONDS
        if good <= MAX_SHRINKING * self._affordable:
            return self._change(good)
        grows = self._affordable < self._most_affordable and usual >= MIN_GROWTH * self._affordable
        return grows and self._change(usual)

    def _change(self, affordable: float) -> bool:
        """Move the budgets towards what is affordable; False if they stay."""
        present = self._budgets()
        self._rates.clear()
        self._affordable = min(max(affordable, self._affordable / 2), self._affordable * 2, self._most_affordable)
        self.max_num_batched_tokens = max(self._least, self._whole_grains(min(self._affordable, self._most)))
        text = "%d tokens a step, %d with decodes: the machine computes %.0f a second"
        logger.debug(text, self.max_num_batched_tokens, self.mixed_step_tokens, affordable / STEP_SECONDS)
        return self._budgets() != present

    def _budgets(self) -> tuple[int, ...]:
        return self.max_num_batched_tokens, self.mixed_step_tokens, self.cut_step_tokens

    def _whole_grains(self, tokens: float) -> int:
        return math.floor(tokens / self._grain) * self._grain
