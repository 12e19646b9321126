"""What the trial process of xgrammar does: compile a grammar, and write down what the core reads back.

A target of engine.trial, in a process of its own: the library brings torch along, which no other process but the core should hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import xgrammar

from engine.structured.refusal import first_line, refusal
from engine.structured.vocabulary import Vocabulary
from engine.structured.xgrammar_vocabulary import xgrammar_tokens

_prepared: dict[str, Any] = {}
"""The vocabulary that the first call has left for the others."""


def run(word: str, *arguments: Any) -> Any:
    """`prepare` (model path); then `compile` (EBNF, param): the payload."""
    if word == "prepare":
        _prepared["tokens"] = xgrammar_tokens(Vocabulary.from_path(Path(arguments[0])))
        return None
    return _compile(*arguments)


def _compile(source: str, param: str) -> bytes:
    compiler = xgrammar.GrammarCompiler(_prepared["tokens"], max_threads=1, cache_enabled=False)
    try:
        compiled = compiler.compile_grammar(source)
        matcher = xgrammar.GrammarMatcher(compiled)
        mask = torch.zeros((1, -(-_prepared["tokens"].vocab_size // 32)), dtype=torch.int32)
        matcher.fill_next_token_bitmask(mask)
    except MemoryError:
        raise
    except Exception as error:  # the library's errors have no common class
        raise refusal(param, f"the grammar cannot be compiled: {first_line(error)}") from error
    if not mask.any():
        raise refusal(param, "the grammar admits no text")
    return compiled.serialize_json().encode()
