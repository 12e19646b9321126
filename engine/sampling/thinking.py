"""The reasoning of a sequence by its output tokens: not begun, open or over. Pure Python."""

from __future__ import annotations

from engine.messages import Thinking


class ThinkingTrack:
    """The state of one sequence's reasoning.

    is_open         reasoning goes on; unless the prompt opens it, only a start marker at the very beginning does
    is_over         the answer has begun, at output token number `answer_start`
    num_tokens      tokens of the reasoning, without its end marker

    Neither holds while a start marker may still complete; a token that `opening_ids` lacks then belongs to the answer.
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
        """The tokens that continue a start marker, while one may still complete."""
        if self.is_open or self.is_over:
            return ()
        return tuple(
            dict.fromkeys(start[self._num_seen] for start in self._starts if start[: self._num_seen] == self._opening)
        )

    @property
    def forced_id(self) -> int | None:
        """The next token of an end marker once the budget is spent. A marker that the model has begun is continued."""
        if not self.is_open or self._budget is None or self.num_tokens < self._budget or not self._ends:
            return None
        end, size = max(self._begun_ends, key=lambda begun: begun[1], default=(self._ends[0], 0))
        return end[size]

    def update(self, output_ids: list[int]) -> None:
        """Follow the output to its present end, forwards or backwards.

        Rejected drafts are removed from the end, and at most one token replaces them before the next call. So the state
        is valid exactly if the last token that was seen is still in its place.
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
        """End markers of which the reasoning now ends with a beginning, and the length of each beginning."""
        self._num_seen = 0

    def _follow_opening(self, token_id: int) -> None:
        self._opening.append(token_id)
        self.is_open = self._opening in self._starts
        self.is_over = not self.is_open and all(start[: self._num_seen] != self._opening for start in self._starts)

    def _follow_reasoning(self, token_id: int) -> None:
        """Count the token, and close the reasoning at an end marker, whose tokens do not count."""
        self.num_tokens += 1
        candidates = [*self._begun_ends, *((end, 0) for end in self._ends)]
        self._begun_ends = [(end, size + 1) for end, size in candidates if end[size] == token_id]
        complete = [size for end, size in self._begun_ends if size == len(end)]
        if complete:
            self.num_tokens -= max(complete)
            self.is_open, self.is_over = False, True
            self.answer_start = self._num_seen
