"""Drafts from a text that the output is expected to repeat (the request's `prediction`). Pure Python.

The output is followed in the text token by token. A token that differs loses the place. It is found again at the next
occurrence, or else the last earlier one, of the latest output tokens. Constant work per token; indexing the text takes
linear work, once.
"""

from __future__ import annotations

from bisect import bisect_left

MATCH_TOKENS = 2
"""The number of output tokens that must agree to find the place again."""


class PredictedText:
    """A predicted text as a `DraftSource`."""

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
