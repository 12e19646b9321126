"""Decode steps that begin before the tokens of the step in front are known, so that the device never waits for the
host.

A step ahead takes its input tokens from where the step in front leaves them on the device. Whether a sequence stops is
seen one step later: its row of the step ahead is then surplus and thrown away. What it wrote into the cache lies at the
position of the stop token, which no full block holds, and the next owner of the block writes in the order of the
stream. Called by the core, for steps of plain decodes only: nothing that a choice of tokens looks at may still be
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engine.sampling.pending import PendingTokens
from engine.sampling.sampler import SampledToken, Sampler
from engine.scheduling.plan import StepPlan
from engine.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class DeviceTokens:
    """Tokens that only the device knows yet: row i of a step takes `token_ids[rows[i]]`. token_ids: (R,) int64"""

    token_ids: torch.Tensor
    rows: list[int]


class FedRunner(Protocol):
    """A runner whose steps can take tokens from the device."""

    def accepts_device_tokens(self, plan: StepPlan) -> bool: ...

    def forward(self, plan: StepPlan, fed: DeviceTokens | None = None) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class InFlightStep:
    """A step that has been launched, and whose tokens nobody has looked at."""

    plan: StepPlan
    pending: PendingTokens


class OverlappedSteps:
    """Launches steps, and the ones after them."""

    def __init__(self, scheduler: Scheduler, runner: FedRunner, sampler: Sampler) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler

    def takes(self, plan: StepPlan) -> bool:
        """Whether this is a step of plain decodes."""
        sequences = [chunk.sequence for chunk in plan.chunks]
        return (
            self._runner.accepts_device_tokens(plan)
            and all(not sequence.request.grammar and sequence.request.logprobs.prompt is None for sequence in sequences)
            and self._sampler.can_run_ahead(sequences)
        )

    def begin(self, plan: StepPlan) -> InFlightStep:
        """Launch a step whose inputs are known."""
        return InFlightStep(
            plan, self._sampler.start(self._runner.forward(plan), [chunk.sequence for chunk in plan.chunks])
        )

    def follow(self, flight: InFlightStep) -> InFlightStep | None:
        """Launch the step after a flight; None if its tokens must be known first."""
        plan = self._scheduler.plan_ahead(flight.plan)
        if plan is None:
            return None
        rows = {chunk.sequence.seq_id: row for row, chunk in enumerate(flight.plan.chunks)}
        sequences = [chunk.sequence for chunk in plan.chunks]
        fed = DeviceTokens(flight.pending.token_ids, [rows[sequence.seq_id] for sequence in sequences])
        return InFlightStep(plan, self._sampler.start(self._runner.forward(plan, fed), sequences, num_ahead=1))

    def finish(self, flight: InFlightStep) -> tuple[list[SampledToken], bool]:
        """Wait for the tokens of a flight; and whether they are those that the step after it was fed with."""
        return self._sampler.finish(flight.pending), flight.pending.host.is_final()
