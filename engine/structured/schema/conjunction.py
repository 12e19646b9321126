"""Follow two grammars of llguidance at once: a token must be admitted by both.

Not every two grammars go together, as a text may begin under both and be finished under neither. This is made for JSON
and the gaps that must stand in it (`gaps.spaced_tokens`): a schema admits any gap where a token may end, so a required
gap is always possible.
"""

from __future__ import annotations

import numpy as np

from engine.structured.backends.matcher import GrammarTemplate, Matcher, Words


class ConjunctionTemplate:
    """A conjunction of two templates of the same vocabulary."""

    def __init__(self, first: GrammarTemplate, second: GrammarTemplate) -> None:
        self._first = first
        self._second = second

    def start(self) -> ConjunctionMatcher:
        return ConjunctionMatcher(self._first.start(), self._second.start())


class ConjunctionMatcher:
    """A matcher of one sequence."""

    def __init__(self, first: Matcher, second: Matcher) -> None:
        self._first = first
        self._second = second

    def fill(self, words: Words) -> None:
        self._first.fill(words)
        others = np.empty_like(words)
        self._second.fill(others)
        words &= others

    def accept(self, token_id: int) -> bool:
        if not self._first.accept(token_id):
            return False
        if self._second.accept(token_id):
            return True
        self._first.rollback(1)
        return False

    def rollback(self, num_tokens: int) -> None:
        self._first.rollback(num_tokens)
        self._second.rollback(num_tokens)

    def can_end(self) -> bool:
        return self._first.can_end() and self._second.can_end()

    def is_complete(self) -> bool:
        return self.can_end() and (self._first.is_complete() or self._second.is_complete())
