"""Grammars of llguidance in the core: built once from their text, copied for each sequence."""

from __future__ import annotations

import llguidance

from engine.structured.backends.llguidance_grammar import parser_limits
from engine.structured.backends.matcher import MatcherFailed, Words, clear_bit
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.refusal import first_line


class LlguidanceTemplate:
    """A grammar that was built. Raises MatcherFailed if it cannot be, which the child has ruled out."""

    def __init__(self, payload: bytes, vocabulary: Vocabulary) -> None:
        self._eos_ids = vocabulary.eos_ids
        self._matcher = llguidance.LLMatcher(
            vocabulary.llguidance, payload.decode(), log_level=0, limits=parser_limits()
        )
        _check(self._matcher)

    def start(self) -> LlguidanceMatcher:
        return LlguidanceMatcher(self._matcher.deep_copy(), self._eos_ids)


class LlguidanceMatcher:
    """A matcher of one sequence."""

    def __init__(self, matcher: llguidance.LLMatcher, eos_ids: tuple[int, ...]) -> None:
        self._matcher = matcher
        self._ends = [(token_id // 32, clear_bit(token_id)) for token_id in eos_ids]

    def fill(self, words: Words) -> None:
        if self._matcher.is_stopped():
            words[:] = 0
            return
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        _check(self._matcher)
        for word, others in self._ends:
            words[word] &= others

    def accept(self, token_id: int) -> bool:
        if self._matcher.is_stopped() or not self._matcher.validate_tokens([token_id]):
            return False
        self._matcher.consume_token(token_id)
        _check(self._matcher)
        return True

    def rollback(self, num_tokens: int) -> None:
        if num_tokens and not self._matcher.rollback(num_tokens):
            raise MatcherFailed("tokens cannot be withdrawn")

    def can_end(self) -> bool:
        return self._matcher.is_accepting()

    def is_complete(self) -> bool:
        return self._matcher.is_stopped() and not self._matcher.is_error()


def _check(matcher: llguidance.LLMatcher) -> None:
    if matcher.is_error():
        raise MatcherFailed(first_line(matcher.get_error()))
