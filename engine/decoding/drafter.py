"""Proposes drafts for sequences that decode: from the predicted text of a request, else from what the sequence has said before.

It watches every token, also while it proposes none, and so knows how often its source is right, by the number of tokens that have agreed
before: a long passage goes on as it did, three tokens alike mean little. A proposal is as long as that and the measured cost of rows
make worth while, which for a source that misses is not at all. Called by the scheduler (`propose`) and by the
core (`add`, `remove`). What it proposes decides how fast tokens come, never which.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

from engine.decoding.costs import MOST_DRAFTS, StepCosts
from engine.decoding.ngram import PromptLookup
from engine.decoding.prediction import PredictedText
from engine.sequence import Sequence

AGREED_STEPS = (4, 6, 9, 16)
"""Tokens that have agreed are counted in steps; each has a confidence of its own."""
PREDICTED_CONFIDENCES, LOOKUP_CONFIDENCES = (0.9,) * 5, (0.25, 0.4, 0.6, 0.8, 0.95)
"""What a source is trusted with before it has shown anything: a prediction was made by somebody who should know."""
MAX_CONFIDENCE = 0.98
FLOOR, FLOOR_CONFIDENCE = 4, 0.6
"""So many predicted tokens are tried while a prediction holds, whatever costs were measured: few, as it was asked for."""
LEARNING_RATE = 0.15


class DraftSource(Protocol):
    """A text that the output may follow. It has taken `num_followed` tokens of the output; the last `num_agreed` stand before `ahead`."""

    num_followed: int
    num_agreed: int

    def follow(self, token_id: int) -> bool | None:
        """Take the next token of the output; returns whether it was the expected one, None if none was expected."""

    def next_ids(self, limit: int) -> tuple[int, ...]:
        """The tokens that should follow, at most `limit`."""


@dataclass(slots=True)
class _TrackedSource:
    source: DraftSource
    confidences: list[float]
    is_prediction: bool

    def catch_up(self, output_ids: list[int]) -> None:
        """Show the source what has been said, and learn how right it was."""
        source = self.source
        for token_id in output_ids[source.num_followed :]:
            step = bisect_right(AGREED_STEPS, source.num_agreed)
            was_right = source.follow(token_id)
            if was_right is not None:
                before = self.confidences[step]
                self.confidences[step] = min(before + LEARNING_RATE * (was_right - before), MAX_CONFIDENCE)

    def expected(self, count: int) -> list[float]:
        """How likely each of the next tokens is right if those before it are."""
        agreed = self.source.num_agreed
        return [self.confidences[bisect_right(AGREED_STEPS, agreed + place)] for place in range(count)]


class LookupDrafter:
    """`prompt_lookup`: sequences without a prediction get drafts from their own text."""

    def __init__(self, costs: StepCosts, prompt_lookup: bool) -> None:
        self._costs = costs
        self._prompt_lookup = prompt_lookup
        self._tracks: dict[int, _TrackedSource] = {}

    def __len__(self) -> int:
        return len(self._tracks)

    def add(self, sequence: Sequence) -> None:
        """Watch a sequence from now on, if there is anything to expect."""
        if sequence.request.draft_ids:
            self._tracks[sequence.seq_id] = _TrackedSource(
                PredictedText(sequence.request.draft_ids), list(PREDICTED_CONFIDENCES), True
            )
        elif self._prompt_lookup:
            self._tracks[sequence.seq_id] = _TrackedSource(
                PromptLookup(sequence.prompt_ids), list(LOOKUP_CONFIDENCES), False
            )

    def remove(self, seq_id: int) -> None:
        """Forget a sequence; unknown ids are ignored."""
        self._tracks.pop(seq_id, None)

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        """At most `limit` tokens that may come next, if it pays to verify them in a step that draws `num_rows` tokens so far."""
        track = self._tracks.get(sequence.seq_id)
        if track is None:
            return ()
        track.catch_up(sequence.output_ids)
        ahead = track.source.next_ids(min(limit, MOST_DRAFTS))
        if not ahead:
            return ()
        expected = track.expected(len(ahead))
        length = self._costs.best_num_drafts(expected, num_rows, len(ahead))
        if track.is_prediction and expected[0] >= FLOOR_CONFIDENCE:
            length = max(length, FLOOR)
        return ahead[:length]
