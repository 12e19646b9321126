"""What a step is to compute, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.sequence import Sequence


class Chunk(NamedTuple):
    """Compute known tokens `start..start + num_tokens`. `samples`: the chunk reaches the last known token, so a next one is drawn; never
    of a prompt that becomes a vector.

    `draft_ids`: tokens that may come next. They are computed behind the known ones in the same step, so that a token can be drawn after
    each of them. A named tuple, because one is made per sequence and step.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    draft_ids: tuple[int, ...] = ()

    @property
    def num_positions(self) -> int:
        return self.num_tokens + len(self.draft_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Work of one step, never empty. Chunks of one position, at the end of what is known, come first."""

    chunks: tuple[Chunk, ...]


class Finished(NamedTuple):
    """A sequence that has ended: "stop" (a stop id was sampled), "complete", "length", "embedded" (the prompt has been computed, and that
    was all), or "failed" (its chunk sampled nothing).
    """

    sequence: Sequence
    reason: str
