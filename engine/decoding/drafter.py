"""Proposes drafts for sequences that decode: from the request's prediction, else by prompt look-up.

The drafter follows every output token and learns how often its source is right, by the number of tokens that have
agreed: a long passage usually continues, three equal tokens mean little. This confidence and the measured cost of rows
set the length of a proposal. Drafts affect the speed of the output, never its tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from engine.decoding.costs import MOST_DRAFTS, StepCosts
from engine.decoding.sources import PredictedText, PromptLookup
from engine.sequence import Sequence

AGREED_STEPS = (4, 6, 9, 16)
"""Bounds between the numbers of agreed tokens that have a confidence of their own."""
PREDICTED_CONFIDENCES, LOOKUP_CONFIDENCES = (0.9,) * 5, (0.25, 0.4, 0.6, 0.8, 0.95)
"""Confidences at the start. A prediction starts high, because the client has reason to expect it."""
MAX_CONFIDENCE = 0.98
FLOOR, FLOOR_CONFIDENCE = 4, 0.6
"""While the confidence in a prediction is at least this, at least this many tokens are tried, whatever the costs: the
client has asked for it."""
LEARNING_RATE = 0.15


@dataclass(slots=True)
class _TrackedSource:
    source: PromptLookup | PredictedText
    confidences: list[float]
    is_prediction: bool

    def catch_up(self, output_ids: list[int]) -> None:
        """Feed the new output to the source and update its confidences."""
        source = self.source
        for token_id in output_ids[source.num_followed :]:
            step = bisect_right(AGREED_STEPS, source.num_agreed)
            was_right = source.follow(token_id)
            if was_right is not None:
                before = self.confidences[step]
                self.confidences[step] = min(before + LEARNING_RATE * (was_right - before), MAX_CONFIDENCE)

    def expected(self, count: int) -> list[float]:
        """Return the probability that each of the next `count` tokens is right if those before it are."""
        agreed = self.source.num_agreed
        return [self.confidences[bisect_right(AGREED_STEPS, agreed + place)] for place in range(count)]


class LookupDrafter:
    """The drafter of one core. `prompt_lookup`: draft from their own text for sequences without a prediction."""

    def __init__(self, costs: StepCosts, prompt_lookup: bool) -> None:
        self._costs = costs
        self._prompt_lookup = prompt_lookup
        self._tracks: dict[int, _TrackedSource] = {}

    def __len__(self) -> int:
        return len(self._tracks)

    def add(self, sequence: Sequence) -> None:
        """Follow a sequence from now on, if there is a source for it."""
        if sequence.request.draft_ids:
            self._tracks[sequence.seq_id] = _TrackedSource(
                PredictedText(sequence.request.draft_ids), list(PREDICTED_CONFIDENCES), True
            )
        elif self._prompt_lookup:
            self._tracks[sequence.seq_id] = _TrackedSource(
                PromptLookup(sequence.prompt_ids), list(LOOKUP_CONFIDENCES), False
            )

    def remove(self, seq_id: int) -> None:
        """Remove a sequence. Unknown ids are ignored."""
        self._tracks.pop(seq_id, None)

    def propose(self, sequence: Sequence, num_rows: int, limit: int) -> tuple[int, ...]:
        """Return at most `limit` drafts, as many as pay. num_rows: the tokens that the step draws so far."""
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
