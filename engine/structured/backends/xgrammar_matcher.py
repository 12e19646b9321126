"""Grammars of xgrammar in the core: read back from the child's payload, with a matcher for each sequence."""

from __future__ import annotations

import torch
import xgrammar

from engine.structured.backends.matcher import MatcherFailed, Words, clear_bit
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.backends.xgrammar_vocabulary import xgrammar_tokens
from engine.structured.refusal import first_line


class XgrammarTemplate:
    """A compiled grammar. Raises MatcherFailed for a payload that cannot be read back."""

    def __init__(self, payload: bytes, vocabulary: Vocabulary) -> None:
        self._eos_ids = vocabulary.eos_ids
        self._num_words = -(-len(vocabulary.tokens) // 32)
        try:
            self._compiled = xgrammar.CompiledGrammar.deserialize_json(payload.decode(), xgrammar_tokens(vocabulary))
        except Exception as error:  # the library's errors have no common class
            raise MatcherFailed(first_line(error)) from error

    def start(self) -> XgrammarMatcher:
        return XgrammarMatcher(xgrammar.GrammarMatcher(self._compiled), self._eos_ids, self._num_words)


class XgrammarMatcher:
    """A matcher of one sequence."""

    def __init__(self, matcher: xgrammar.GrammarMatcher, eos_ids: tuple[int, ...], num_words: int) -> None:
        self._matcher = matcher
        self._num_words = num_words
        self._ends = [(token_id // 32, clear_bit(token_id)) for token_id in eos_ids]
        self._mask: torch.Tensor | None = None
        """The mask of the present state, if it was computed."""

    def fill(self, words: Words) -> None:
        if self._mask is None:
            self._mask = self._next_mask()
        words[:] = self._mask[0].numpy()

    def accept(self, token_id: int) -> bool:
        self._mask = None
        return self._matcher.accept_token(token_id)

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            self._mask = None
            self._matcher.rollback(num_tokens)

    def can_end(self) -> bool:
        return self._matcher.is_completed()

    def is_complete(self) -> bool:
        """Return True if the mask is empty. It is computed only if the text may end."""
        if not self._matcher.is_completed():
            return False
        if self._mask is None:
            self._mask = self._next_mask()
        return not self._mask.any()

    def _next_mask(self) -> torch.Tensor:
        mask = torch.zeros((1, self._num_words), dtype=torch.int32)
        try:
            self._matcher.fill_next_token_bitmask(mask)
        except Exception as error:
            raise MatcherFailed(first_line(error)) from error
        row = mask[0].numpy()
        for word, others in self._ends:
            row[word] &= others
        return mask
