"""Grammars by the name of the library that follows them. A library is imported with the first grammar that needs it."""

from __future__ import annotations

from engine.structured.backends.matcher import GrammarTemplate
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.exchange import CONJUNCTION, LLGUIDANCE, XGRAMMAR, unpack_grammars
from engine.structured.schema.conjunction import ConjunctionTemplate


def build_template(backend: str, payload: bytes, vocabulary: Vocabulary) -> GrammarTemplate:
    """Build what the trial has left. Raises MatcherFailed, or KeyError for an unknown backend."""
    if backend == LLGUIDANCE:
        from engine.structured.backends.llguidance_matcher import LlguidanceTemplate

        return LlguidanceTemplate(payload, vocabulary)
    if backend == XGRAMMAR:
        from engine.structured.backends.xgrammar_matcher import XgrammarTemplate

        return XgrammarTemplate(payload, vocabulary)
    if backend == CONJUNCTION:
        first, second = unpack_grammars(payload)
        return ConjunctionTemplate(
            build_template(LLGUIDANCE, first, vocabulary), build_template(LLGUIDANCE, second, vocabulary)
        )
    raise KeyError(backend)
