"""How many tokens a step has, so that it lasts about STEP_SECONDS: found while serving, as what else the machine does comes and goes.

What is measured are steps that prompts fill at least half. They get shorter where even good ones of the last steps were too slow, as
whatever disturbs a step makes it longer, and longer where most were quick; by no more than a factor of two at a time, and not for small
differences.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from time import perf_counter

from engine.scheduling.plan import StepPlan

logger = logging.getLogger(__name__)

STEP_SECONDS = 0.1
QUIET_STEPS = 2
"""How many usual steps a step may last in which no sequence waits for its next token; bounds how late an abort is seen."""
FEWEST, MOST = 4, 12
"""Steps that are looked at before tokens are changed, and that are remembered."""
WIDER, NARROWER = 1.25, 0.8
"""What a change must come to."""


class StepPace:
    """`max_num_batched_tokens` is what a step may have now, `least` to `most`, a multiple of `grain`. `clock`: seconds."""

    def __init__(
        self, max_num_batched_tokens: int, least: int, most: int, grain: int, clock: Callable[[], float] = perf_counter
    ) -> None:
        assert least <= max_num_batched_tokens <= most
        self.max_num_batched_tokens = max_num_batched_tokens
        self._least = least
        self._most = most
        self._grain = grain
        self._clock = clock
        self._rates: deque[float] = deque(maxlen=MOST)
        self._started_at = 0.0

    @property
    def prefill_only_token_budget(self) -> int:
        """What a step may have in which no sequence waits for its next token."""
        return QUIET_STEPS * self.max_num_batched_tokens

    def begin(self) -> None:
        """A step begins."""
        self._started_at = self._clock()

    def end(self, plan: StepPlan) -> bool:
        """The step that was begun has ended; whether steps are to have another number of tokens from now on."""
        seconds = self._clock() - self._started_at
        num_prompt_tokens = sum(chunk.num_tokens for chunk in plan.chunks if chunk.num_tokens > 1)
        if 2 * num_prompt_tokens < self.max_num_batched_tokens or seconds <= 0:
            return False
        self._rates.append(sum(chunk.num_positions for chunk in plan.chunks) / seconds)
        if len(self._rates) < FEWEST:
            return False
        rates = sorted(self._rates)
        good, usual = rates[-1 - len(rates) // 4] * STEP_SECONDS, rates[(len(rates) - 1) // 2] * STEP_SECONDS
        if good <= NARROWER * self.max_num_batched_tokens:
            return self._change(good)
        return usual >= WIDER * self.max_num_batched_tokens and self._change(usual)

    def _change(self, affordable: float) -> bool:
        """Go towards what is affordable; False if there is no way to go."""
        wanted = min(
            max(affordable, self.max_num_batched_tokens / 2), self.max_num_batched_tokens * 2.0, float(self._most)
        )
        max_num_batched_tokens = max(self._least, math.floor(wanted / self._grain) * self._grain)
        if max_num_batched_tokens == self.max_num_batched_tokens:
            return False
        logger.debug(
            "%d tokens a step instead of %d: the machine computes %.0f a second",
            max_num_batched_tokens,
            self.max_num_batched_tokens,
            affordable / STEP_SECONDS,
        )
        self.max_num_batched_tokens = max_num_batched_tokens
        self._rates.clear()
        return True
