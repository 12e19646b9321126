"""Steps of prompts alone that are left between two layers: what arrives meanwhile need not wait for their end.

The step loop reads its messages every LOOKS-th part of `max_step_wait_s`. A newcomer is computed at once, by a step of
other sequences, unless the step in flight gives somebody a next token within `max_step_wait_s`. From then on the others
have a step whenever STEP_SECONDS have passed since the last one began, or later if the step in flight has not yet had
an OTHERS_SHARE-th of the time that it took (docs/decisions/0019-steps-cut-between-layers.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

import torch

from engine.execution.runner import ModelRunner
from engine.execution.step_programs import StepInFlight
from engine.execution.token_budget import STEP_SECONDS
from engine.sequence import StepPlan

LOOKS = 10
OTHERS_SHARE = 3


class CutSteps:
    """What tells which steps are cut, and begins them."""

    def __init__(self, runner: ModelRunner, max_step_wait_s: float, clock: Callable[[], float] = perf_counter) -> None:
        self._runner = runner
        self._max_step_wait_s = max_step_wait_s
        self._clock = clock

    def takes(self, plan: StepPlan) -> bool:
        """Return True for a step in which nobody waits for a next token, and which can be cut."""
        is_prefill_only = all(chunk.start + 1 < chunk.sequence.num_tokens for chunk in plan.chunks)
        if not is_prefill_only or any(chunk.sequence.whole_spans for chunk in plan.chunks):
            return False
        return self._runner.can_cut(sum(chunk.num_positions for chunk in plan.chunks))

    def begin(self, plan: StepPlan) -> CutStep:
        """Return a step of which nothing is computed yet. Before it ends no other is begun."""
        return CutStep(plan, self._runner, self._max_step_wait_s, self._clock)


class CutStep:
    """A step in flight. `seconds`: what it has taken so far, without the steps of others."""

    def __init__(self, plan: StepPlan, runner: ModelRunner, max_step_wait_s: float, clock: Callable[[], float]) -> None:
        self.plan = plan
        self.seconds = 0.0
        self._runner = runner
        self._max_step_wait_s = max_step_wait_s
        self._clock = clock
        self._gives_tokens = any(chunk.samples for chunk in plan.chunks)
        self._others_at = math.inf
        self._others_began_at = 0.0
        self._step: StepInFlight | None = None
        self._hidden: torch.Tensor | None = None

    @property
    def is_others_turn(self) -> bool:
        """A step of other sequences is due."""
        return self._clock() >= self._others_at

    def announce_newcomer(self) -> None:
        """Make it the others' turn, unless the step ends soon and gives somebody a next token."""
        if not self._gives_tokens or self._seconds_left() > self._max_step_wait_s:
            self._others_at = self._clock()

    def begin_turn_of_others(self) -> None:
        self._others_began_at = self._clock()

    def end_turn_of_others(self, *, has_computed: bool) -> None:
        """Go on with this step; if the others had nothing to compute, until a newcomer is announced."""
        now = self._clock()
        seconds = now - self._others_began_at
        own_s = max(STEP_SECONDS - seconds, seconds / OTHERS_SHARE)
        self._others_at = now + own_s if has_computed else math.inf

    def advance(self) -> bool:
        """Compute layers until it is time to look for messages, or the others' turn, one at least; True at the end."""
        started = now = self._clock()
        if self._step is None:
            self._step = self._runner.begin(self.plan)
        until = min(started + self._max_step_wait_s / LOOKS, self._others_at)
        while self._hidden is None:
            self._hidden = self._step.advance()
            now = self._clock()
            if now + (self.seconds + now - started) / self._step.num_done > until:
                break
        self.seconds += now - started
        return self._hidden is not None

    def logits(self) -> torch.Tensor:
        """Return the logits of the sequences that still run, as `ModelRunner.forward` does."""
        assert self._hidden is not None
        return self._runner.finish(self.plan, self._hidden)

    def _seconds_left(self) -> float:
        if self._step is None:
            return math.inf
        return self.seconds / self._step.num_done * (self._step.num_layers - self._step.num_done)
