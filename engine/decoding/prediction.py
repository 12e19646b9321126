"""Where an output stands in a text that it is expected to repeat (the request's `prediction`). Pure Python.

The text is followed token by token. At a difference the place is lost; it is found again where the last tokens of the output occur in
the text next after where it was lost, or last before that. Constant work per token, linear work once to index the text.
"""

from __future__ import annotations

from bisect import bisect_left

MATCH_TOKENS = 2
"""So many tokens of the output must agree to find its place again."""


class PredictedText:
    """`num_followed` tokens of the output have been looked at, the last `num_agreed` were found."""

    def __init__(self, token_ids: list[int]) -> None:
        self._token_ids = token_ids
        self._next: int | None = 0
        """The place of the token that should come next; None while the place is lost."""
        self._last = 0
        """Where the place was last known."""
        self._index: dict[tuple[int, ...], list[int]] | None = None
        self._tail: tuple[int, ...] = ()
        self.num_followed = self.num_agreed = 0

    def follow(self, token_id: int) -> bool | None:
        """Take the next token of the output; returns whether it was the expected one, None if none was expected."""
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
        """The tokens that should follow, at most `limit`."""
        return () if self._next is None else tuple(self._token_ids[self._next : self._next + limit])

    def _find(self) -> int | None:
        """The place after the occurrence of the output's last tokens that is next."""
        if self._index is None:
            self._index = _places(self._token_ids)
        places = self._index.get(self._tail)
        if not places:
            return None
        return places[min(bisect_left(places, self._last), len(places) - 1)]


def _places(token_ids: list[int]) -> dict[tuple[int, ...], list[int]]:
    """The places after each run of MATCH_TOKENS tokens, in order."""
    index: dict[tuple[int, ...], list[int]] = {}
    for place in range(MATCH_TOKENS, len(token_ids) + 1):
        index.setdefault(tuple(token_ids[place - MATCH_TOKENS : place]), []).append(place)
    return index
