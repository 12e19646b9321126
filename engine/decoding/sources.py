"""Texts that the output may follow: its own prompt, or the request's `prediction`. Pure Python.

    source = PromptLookup(prompt_ids)
    source.next_ids(4)       # drafts for the next four tokens
    source.follow(token_id)  # the token that was drawn

`num_followed` counts the output tokens that a source has taken, `num_agreed` the latest of them that precede `next_ids`
in the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

RUN_TOKENS = 3
"""The number of tokens that must agree in a prompt."""
MAX_AGREED = 16
"""Agreement with a prompt is counted up to this many tokens."""
MAX_PROMPT_TOKENS = 16_384
"""Only the end of a longer prompt is indexed, because indexing delays the next step of all sequences."""
MATCH_TOKENS = 2
"""The number of output tokens that must agree to find the place in a prediction again."""


class PromptLookup:
    """The prompt and output of one sequence: the output often repeats passages of both.

    An index holds the last position of each run of tokens, so each token costs constant time. Method: prompt look-up
    decoding, Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding
    """

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
        """Append tokens and index their runs; point `_next` after the previous occurrence of the last run."""
        known, places = self._token_ids, self._places
        for token_id in token_ids:
            known.append(token_id)
            if len(known) >= RUN_TOKENS:
                run = tuple(known[-RUN_TOKENS:])
                self._next = places.get(run)
                places[run] = len(known)


class PredictedText:
    """A text that the output is expected to repeat.

    A token that differs loses the place. It is found again at the next occurrence, or else the last earlier one, of the
    latest output tokens. Each token costs constant time; indexing the text takes linear time, once.
    """

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self._next: int | None = 0
        """The index of the expected token; None while the place is lost."""
        self._last = 0
        """The last known index."""
        self._index: dict[tuple[int, ...], list[int]] | None = None
        self._tail: tuple[int, ...] = ()
        self.num_followed = self.num_agreed = 0

    def follow(self, token_id: int) -> bool | None:
        """Take the next output token; return whether it was expected, None if no token was."""
        self.num_followed += 1
        self._tail = (*self._tail, token_id)[-MATCH_TOKENS:]
        expected = self._token_ids[self._next] if self._next is not None and self._next < len(self._token_ids) else None
        if self._next is not None and expected == token_id:
            self._next = self._last = self._next + 1
            self.num_agreed += 1
            return True
        self._next = self._find()
        if self._next is not None:
            self._last = self._next
        self.num_agreed = 0 if self._next is None else MATCH_TOKENS
        return None if expected is None else False

    def next_ids(self, limit: int) -> tuple[int, ...]:
        """Return the expected next tokens, at most `limit`."""
        return () if self._next is None else tuple(self._token_ids[self._next : self._next + limit])

    def _find(self) -> int | None:
        """Return the index after the nearest occurrence of the latest output tokens, None if there is none."""
        if self._index is None:
            self._index = _places(self._token_ids)
        places = self._index.get(self._tail)
        if not places:
            return None
        return places[min(bisect_left(places, self._last), len(places) - 1)]


def _places(token_ids: list[int]) -> dict[tuple[int, ...], list[int]]:
    """Return the indices after each run of MATCH_TOKENS tokens, in order."""
    index: dict[tuple[int, ...], list[int]] = {}
    for place in range(MATCH_TOKENS, len(token_ids) + 1):
        index.setdefault(tuple(token_ids[place - MATCH_TOKENS : place]), []).append(place)
    return index
