"""The task of the killable child of xgrammar: compile a grammar, and write it down for the core.

A target of engine.killable in a process of its own: the library imports torch, which no other process but the core
should hold.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xgrammar

from engine.api.errors import RequestError
from engine.structured.backends.matcher import clear_bit
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.backends.xgrammar_vocabulary import xgrammar_tokens
from engine.structured.refusal import first_line, refusal

NUM_WALKS, WALK_TOKENS = 2, 100
MAX_MASK_S = 0.05
"""The most processor time of one token of a walk."""

_prepared: dict[str, Any] = {}
"""The vocabulary, which the first call leaves for the others."""


def run(word: str, *arguments: Any) -> Any:
    """Run one command: `prepare` (model path), then `compile` (EBNF, param), which returns the payload."""
    if word == "prepare":
        _prepared["tokens"] = xgrammar_tokens(Vocabulary.from_path(Path(arguments[0])))
        return None
    return compile_grammar(_prepared["tokens"], *arguments)


def compile_grammar(tokens: xgrammar.TokenizerInfo, source: str, param: str) -> bytes:
    """Return the payload of a grammar in EBNF. Raises RequestError."""
    compiler = xgrammar.GrammarCompiler(tokens, max_threads=1, cache_enabled=False)
    try:
        compiled = compiler.compile_grammar(source)
        for seed in range(NUM_WALKS):
            _walk(xgrammar.GrammarMatcher(compiled), tokens, random.Random(seed), param)
    except (MemoryError, RequestError):
        raise
    except Exception as error:  # the library's errors have no common class
        raise refusal(param, f"the grammar cannot be compiled: {first_line(error)}") from error
    return compiled.serialize_json().encode()


def _walk(matcher: xgrammar.GrammarMatcher, tokens: xgrammar.TokenizerInfo, rng: random.Random, param: str) -> None:
    """Follow a random text.

    Raises RequestError if a mask takes long: an answer's would too, and hold up every sequence.
    """
    mask = torch.zeros((1, -(-tokens.vocab_size // 32)), dtype=torch.int32)
    stop_ids = tokens.stop_token_ids
    taken_s = 0.0
    for _ in range(WALK_TOKENS):
        started = time.thread_time()
        matcher.fill_next_token_bitmask(mask)
        taken_s += time.thread_time() - started
        words = mask[0].numpy()
        for stop_id in stop_ids:
            words[stop_id // 32] &= clear_bit(stop_id)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: tokens.vocab_size])
        if not len(allowed):
            return
        token_id = int(allowed[rng.randrange(len(allowed))])
        started = time.thread_time()
        matcher.accept_token(token_id)
        taken_s += time.thread_time() - started
        if taken_s > MAX_MASK_S:
            raise refusal(
                param,
                "the grammar is too ambiguous: following a text takes ever longer; "
                "let its alternatives begin differently",
            )
        taken_s = 0.0
