"""Drafts by prompt look-up: the output often repeats passages of the prompt and of itself. Pure Python.

An index holds the last position of each run of tokens, so each token costs constant time, however long the text is.
Method: prompt look-up decoding, Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
"""

from __future__ import annotations

from collections.abc import Iterable

RUN_TOKENS = 3
"""The number of tokens that must agree."""
MAX_AGREED = 16
"""Agreement is counted up to this many tokens."""
MAX_PROMPT_TOKENS = 16_384
"""Only the end of a longer prompt is indexed, because indexing delays the next step of all sequences."""


class PromptLookup:
    """The prompt and output of one sequence as a `DraftSource`."""

    def __init__(self, prompt_ids: list[int]) -> None:
        self._token_ids: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._next: int | None = None
        """The index of the expected token: after the last occurrence of the run that now ends the text."""
        self._extend(prompt_ids[-MAX_PROMPT_TOKENS:])
        self.num_followed = 0
        self.num_agreed = self._count_agreed()

    def follow(self, token_id: int) -> bool | None:
        """Take the next output token; return whether it was expected, None if no token was."""
        self.num_followed += 1
        place = self._next
        is_expected = None if place is None else self._token_ids[place] == token_id
        self._extend([token_id])
        if place is not None and is_expected:
            self._next = place + 1  # stay with this passage, even if a newer one begins alike
            self.num_agreed += 1
        else:
            self.num_agreed = self._count_agreed()
        return is_expected

    def next_ids(self, limit: int) -> tuple[int, ...]:
        """Return the expected next tokens, at most `limit`."""
        return () if self._next is None else tuple(self._token_ids[self._next : self._next + limit])

    def _count_agreed(self) -> int:
        """Count the tokens before the expected one that equal the end of the text."""
        if self._next is None:
            return 0
        known, last = self._token_ids, self._next - 1
        count = RUN_TOKENS
        while count < min(MAX_AGREED, last + 1) and known[last - count] == known[-1 - count]:
            count += 1
        return count

    def _extend(self, token_ids: Iterable[int]) -> None:
        """Append tokens and index their runs.

        `_next` becomes the index after the previous occurrence of the last run.
        """
        known, places = self._token_ids, self._places
        for token_id in token_ids:
            known.append(token_id)
            if len(known) >= RUN_TOKENS:
                run = tuple(known[-RUN_TOKENS:])
                self._next = places.get(run)
                places[run] = len(known)
