"""Where a sequence stands with its reasoning, by its output tokens alone: not begun, open or over. Pure Python.

Kept by the sampler, which forces the end marker when the budget is spent, and by grammars, which wait for the end.
"""

from __future__ import annotations

from engine.messages import Thinking


class ThinkingTrack:
    """Follows the output of one sequence. An answer that is not open at its start opens only if it begins with a start marker.

    `is_open`: reasoning goes on. `is_over`: the answer has begun, with the output token number `answer_start`. Neither holds while a
    start marker may still come: `opening_ids` are then the tokens that go on with one, and any other is already the answer's
    (`answer_start` 0). `forced_id`: the token that must come next, as the budget is spent. `num_tokens`: length of the reasoning.
    """

    def __init__(self, thinking: Thinking) -> None:
        self._starts = [ids for ids in (thinking.start_ids, *thinking.other_starts) if ids]
        self._ends = [ids for ids in (thinking.end_ids, *thinking.other_ends) if ids]
        self._budget = thinking.budget
        self._opens_at_once = thinking.is_open
        self._last_id = -1
        self._restart()

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """The tokens that go on with a start marker, while one may still come."""
        if self.is_open or self.is_over:
            return ()
        return tuple(
            dict.fromkeys(start[self._num_seen] for start in self._starts if start[: self._num_seen] == self._opening)
        )

    @property
    def forced_id(self) -> int | None:
        """The next token of an end marker once the budget is spent; what the model has already said of one is not repeated."""
        if not self.is_open or self._budget is None or self.num_tokens < self._budget or not self._ends:
            return None
        end, size = max(self._begun_ends, key=lambda begun: begun[1], default=(self._ends[0], 0))
        return end[size]

    def update(self, output_ids: list[int]) -> None:
        """Follow the output to its present end, forwards or backwards.

        NOTE: tokens are withdrawn from the end only, and at most one comes in their place before the next call. So the last token that
        was looked at tells whether what is known still holds.
        """
        seen = self._num_seen
        if seen > len(output_ids) or (seen and output_ids[seen - 1] != self._last_id):
            self._restart()
        while self._num_seen < len(output_ids) and not self.is_over:
            self._last_id = output_ids[self._num_seen]
            self._num_seen += 1
            if self.is_open:
                self._follow_reasoning(self._last_id)
            else:
                self._follow_opening(self._last_id)

    def _restart(self) -> None:
        self.is_open = self._opens_at_once
        self.is_over = not self.is_open and not self._starts
        self.answer_start = 0
        self.num_tokens = 0
        self._opening: list[int] = []
        self._begun_ends: list[tuple[list[int], int]] = []
        """End markers that the reasoning now ends with the beginning of, and how much of each."""
        self._num_seen = 0

    def _follow_opening(self, token_id: int) -> None:
        self._opening.append(token_id)
        self.is_open = self._opening in self._starts
        self.is_over = not self.is_open and all(start[: self._num_seen] != self._opening for start in self._starts)

    def _follow_reasoning(self, token_id: int) -> None:
        """Count the token, or meet an end marker, whose tokens are not counted."""
        self.num_tokens += 1
        candidates = [*self._begun_ends, *((end, 0) for end in self._ends)]
        self._begun_ends = [(end, size + 1) for end, size in candidates if end[size] == token_id]
        complete = [size for end, size in self._begun_ends if size == len(end)]
        if complete:
            self.num_tokens -= max(complete)
            self.is_open, self.is_over = False, True
            self.answer_start = self._num_seen
