"""Where a sequence stands with its reasoning, by its output tokens alone: not begun, open or over. Pure Python.

Kept by the sampler, which forces the end marker when the budget is spent, and by grammars, which wait for the end.
"""

from __future__ import annotations

from engine.messages import Thinking


class ThinkingTrack:
    """Follows the output of one sequence. An answer that is not open at its start opens only if its first tokens are `start_ids`.

    `is_open`: reasoning goes on. `is_over`: the answer has begun, with the output token number `answer_start`. Neither holds while
    `start_ids` may still come: `opening_id` is then the token that goes on with them, and any other token is already the answer's
    (`answer_start` 0). `forced_id`: the token that must come next, as the budget is spent. `num_tokens`: length of the reasoning.
    """

    def __init__(self, thinking: Thinking) -> None:
        self._start_ids = thinking.start_ids
        self._end_ids = thinking.end_ids
        self._budget = thinking.budget
        self._opens_at_once = thinking.is_open
        self._last_id = -1
        self._restart()

    @property
    def opening_id(self) -> int | None:
        """The next token of `start_ids` while these may still come."""
        return None if self.is_open or self.is_over else self._start_ids[self._num_matched]

    @property
    def forced_id(self) -> int | None:
        """The next token of `end_ids` once the budget is spent; what the model has already said of them is not repeated."""
        if not self.is_open or self._budget is None or self.num_tokens < self._budget or not self._end_ids:
            return None
        return self._end_ids[self._num_matched]

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
            self._follow(self._last_id)

    def _restart(self) -> None:
        self.is_open = self._opens_at_once
        self.is_over = not self.is_open and not self._start_ids
        self.answer_start = 0
        self.num_tokens = 0
        self._num_matched = 0
        self._num_seen = 0

    def _follow(self, token_id: int) -> None:
        if self.is_open:
            self._follow_reasoning(token_id)
        elif token_id != self._start_ids[self._num_matched]:
            self.is_over = True
        elif self._num_matched + 1 == len(self._start_ids):
            self.is_open, self._num_matched = True, 0
        else:
            self._num_matched += 1

    def _follow_reasoning(self, token_id: int) -> None:
        """Count the token, or meet the end marker, whose tokens are not counted."""
        self._num_matched = self._longest_match(token_id)
        self.num_tokens += 1
        if self._end_ids and self._num_matched == len(self._end_ids):
            self.num_tokens -= len(self._end_ids)
            self.is_open, self.is_over = False, True
            self.answer_start = self._num_seen

    def _longest_match(self, token_id: int) -> int:
        """How many tokens of the end marker the reasoning now ends with."""
        end_ids = self._end_ids
        tail = end_ids[: self._num_matched] + [token_id]
        return next((size for size in range(min(len(tail), len(end_ids)), 0, -1) if tail[-size:] == end_ids[:size]), 0)
