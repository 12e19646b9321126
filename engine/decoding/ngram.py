"""What followed the last time: the output repeats passages of the prompt and of itself (prompt look-up). Pure Python.

An index knows where each run of tokens stood last, so that a token costs constant time, whatever the length of the text.
Method: prompt look-up decoding, Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
"""

from __future__ import annotations

from collections.abc import Iterable

RUN_TOKENS = 3
"""So many tokens must agree."""
MAX_AGREED = 16
"""More are not counted."""
MAX_PROMPT_TOKENS = 16_384
"""The end of a prompt that is indexed: it is done between two steps, and everybody waits."""


class PromptLookup:
    """Prompt and output of one sequence. `num_followed` tokens of the output have been looked at, the last `num_agreed` were found."""

    def __init__(self, prompt_ids: list[int]) -> None:
        self._token_ids: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._next: int | None = None
        """The place of the token that should come next: after the last occurrence of what the text now ends with."""
        self._extend(prompt_ids[-MAX_PROMPT_TOKENS:])
        self.num_followed = 0
        self.num_agreed = self._count_agreed()

    def follow(self, token_id: int) -> bool | None:
        """Take the next token of the output; returns whether it was the expected one, None if none was expected."""
        self.num_followed += 1
        place = self._next
        is_expected = None if place is None else self._token_ids[place] == token_id
        self._extend([token_id])
        if place is not None and is_expected:
            self._next = place + 1  # stays with the passage that it follows, also where a newer one begins alike
            self.num_agreed += 1
        else:
            self.num_agreed = self._count_agreed()
        return is_expected

    def next_ids(self, limit: int) -> tuple[int, ...]:
        """The tokens that should follow, at most `limit`."""
        return () if self._next is None else tuple(self._token_ids[self._next : self._next + limit])

    def _count_agreed(self) -> int:
        """How many tokens before the place of the next one are those that the text ends with."""
        if self._next is None:
            return 0
        known, last = self._token_ids, self._next - 1
        count = RUN_TOKENS
        while count < min(MAX_AGREED, last + 1) and known[last - count] == known[-1 - count]:
            count += 1
        return count

    def _extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens; `_next` is then the place after the earlier occurrence of the last run, and the run's newest place is noted."""
        known, places = self._token_ids, self._places
        for token_id in token_ids:
            known.append(token_id)
            if len(known) >= RUN_TOKENS:
                run = tuple(known[-RUN_TOKENS:])
                self._next = places.get(run)
                places[run] = len(known)
