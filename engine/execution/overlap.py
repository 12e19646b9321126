"""Decode steps that are launched before the tokens of the step before are known, so that the device never waits.

The second step reads its input tokens where the first one leaves them on the device. The host sees one step late that a
sequence stops: its row of the second step is then surplus and dropped. The cache entry of that row lies at the position
of the stop token, which no full block holds, and the next owner of the block writes later in the stream. Only for plain
decodes: the choice of a token must not depend on tokens that the host does not know yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.sampling.sampler import PendingTokens, SampledToken, Sampler
from engine.scheduling.scheduler import Scheduler
from engine.sequence import StepPlan

if TYPE_CHECKING:
    from engine.execution.runner import ModelRunner


@dataclass(frozen=True, slots=True)
class DeviceTokens:
    """Tokens that only the device knows yet: row i of a step takes `token_ids[rows[i]]`. token_ids: (R,) int64"""

    token_ids: torch.Tensor
    rows: list[int]


@dataclass(frozen=True, slots=True)
class InFlightStep:
    """A step that has been launched and whose tokens have not been read."""

    plan: StepPlan
    pending: PendingTokens


class OverlappedSteps:
    """The launching of decode steps, two at a time."""

    def __init__(self, scheduler: Scheduler, runner: ModelRunner, sampler: Sampler) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler

    def takes(self, plan: StepPlan) -> bool:
        """Return True for a step of plain decodes."""
        sequences = [chunk.sequence for chunk in plan.chunks]
        return (
            self._runner.accepts_device_tokens(plan)
            and all(not sequence.request.grammar and sequence.request.logprobs.prompt is None for sequence in sequences)
            and self._sampler.can_run_ahead(sequences)
        )

    def begin(self, plan: StepPlan) -> InFlightStep:
        """Launch a step whose inputs are known."""
        sequences = [chunk.sequence for chunk in plan.chunks]
        return InFlightStep(plan, self._sampler.start(self._runner.forward(plan), sequences))

    def follow(self, step: InFlightStep) -> InFlightStep | None:
        """Launch the next step; None if the tokens of this one must be known first."""
        plan = self._scheduler.plan_ahead(step.plan)
        if plan is None:
            return None
        rows = {chunk.sequence.seq_id: row for row, chunk in enumerate(step.plan.chunks)}
        sequences = [chunk.sequence for chunk in plan.chunks]
        fed = DeviceTokens(step.pending.token_ids, [rows[sequence.seq_id] for sequence in sequences])
        return InFlightStep(plan, self._sampler.start(self._runner.forward(plan, fed), sequences, num_ahead=1))

    def finish(self, step: InFlightStep) -> tuple[list[SampledToken], bool]:
        """Wait for the tokens of a step; also return whether they are those that the next step was launched with."""
        return self._sampler.finish(step.pending), step.pending.host.is_final()
