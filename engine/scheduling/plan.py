"""The plan of a step, and the sequences that it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.sequence import Sequence


class Chunk(NamedTuple):
    """The known tokens `start..start + num_tokens` of a sequence. A named tuple, as many are made in each step."""

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    """The chunk reaches the last known token, so a next one is drawn. False for a prompt that becomes a vector."""
    draft_ids: tuple[int, ...] = ()
    """Tokens that may come next; they are computed behind the known ones, so that one can be drawn after each."""

    @property
    def num_positions(self) -> int:
        return self.num_tokens + len(self.draft_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The work of one step, never empty. Chunks of one position at the end of the known tokens come first."""

    chunks: tuple[Chunk, ...]


class Finished(NamedTuple):
    """A sequence that has ended."""

    sequence: Sequence
    reason: str
    """One of "stop" (a stop id was sampled), "complete" (the grammar allows nothing more), "length", "embedded" (the
    prompt is computed) and "failed" (its chunk sampled nothing).
    """
