"""How fast a worker loads and computes, for the live pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LEAST_FRACTION = 0.02
"""Before it the pace of loading says nothing."""


class Counted(Protocol):
    """The counters of a core that a pace is measured by; they begin with the core."""

    @property
    def num_steps(self) -> int: ...
    @property
    def busy_us(self) -> int: ...
    @property
    def num_prompt_tokens(self) -> int: ...
    @property
    def num_cached_tokens(self) -> int: ...
    @property
    def num_generated_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Pace:
    """What a core computed between two looks. Cached tokens of prompts are not computed, so they do not count."""

    input_per_s: float = 0.0
    output_per_s: float = 0.0
    step_ms: float = 0.0
    """The mean time of a step; 0 if none ended."""


def pace_between(before: Counted | None, after: Counted | None, seconds: float) -> Pace:
    """Return the pace between two looks; none where there is no look before, or the core has begun anew."""
    if before is None or after is None or seconds <= 0 or after.num_steps < before.num_steps:
        return Pace()
    num_steps = after.num_steps - before.num_steps
    computed = _computed(after) - _computed(before)
    generated = after.num_generated_tokens - before.num_generated_tokens
    step_ms = (after.busy_us - before.busy_us) / 1000 / num_steps if num_steps else 0.0
    return Pace(max(0.0, computed / seconds), max(0.0, generated / seconds), max(0.0, step_ms))


def _computed(core: Counted) -> int:
    return core.num_prompt_tokens - core.num_cached_tokens


class LoadProgress:
    """The progress of a load: its phase, how much of it is done, and how long the rest takes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = clock()
        self.phase, self.fraction = "starting", 0.0

    def note(self, phase: str, fraction: float) -> None:
        if phase != self.phase:
            self._began_at = self._clock()
        self.phase, self.fraction = phase, fraction

    @property
    def seconds_left(self) -> float:
        """Return how long the phase lasts at its pace so far; 0 where that is not known."""
        if not LEAST_FRACTION <= self.fraction < 1:
            return 0.0
        return (self._clock() - self._began_at) * (1 - self.fraction) / self.fraction
