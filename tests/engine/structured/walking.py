"""Texts that a grammar admits, without a model: random walks over its masks on a byte vocabulary."""

from __future__ import annotations

import json
import random
from itertools import permutations, product

import numpy as np

from engine.api.constraint import Constraint, ConstraintKind
from engine.config import StructuredLimits
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.child_task import compile_constraint
from engine.structured.core_grammars import build_template
from engine.structured.exchange import EBNF
from tests.engine.tiny_tokenizer import tiny_tokenizer

VOCABULARY = Vocabulary.of(tiny_tokenizer())
LIMITS = StructuredLimits()
NUM_WORDS = -(-len(VOCABULARY.tokens) // 32)
CLOSERS = frozenset(b'"}],')
IS_TEXT = [bool(token) and token.isascii() for token in VOCABULARY.tokens]


def compiled(constraint, limits=LIMITS):
    """Return backend and payload, in this process; of a grammar for xgrammar its EBNF."""
    fields = (
        constraint.kind.value,
        constraint.source,
        constraint.whitespace,
        constraint.closes_objects,
        constraint.has_control,
    )
    return compile_constraint(VOCABULARY, limits, *fields, constraint.param)


def template_of(constraint, limits=LIMITS):
    backend, payload = compiled(constraint, limits)
    if backend == EBNF:
        backend, payload = "xgrammar", _xgrammar_payload(payload.decode(), constraint.param)
    return build_template(backend, payload, VOCABULARY)


def schema(value, **options):
    return Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(value), **options)


def allowed(matcher):
    words = np.zeros(NUM_WORDS, dtype=np.int32)
    matcher.fill(words)
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[: len(VOCABULARY.tokens)]).tolist()


def walk(template, seed, length=60):
    """Return one answer, None if none is found; after `length` tokens it takes the shortest way to an end."""
    rng, matcher, text = random.Random(seed), template.start(), b""
    for step in range(12 * length):
        is_late = step > length
        if matcher.can_end() and (is_late or rng.random() < 0.3):
            return text.decode()
        token_ids = allowed(matcher)
        assert token_ids or matcher.can_end(), f"a dead end after {text!r}"
        if not token_ids:
            return text.decode()
        plain = [token_id for token_id in token_ids if IS_TEXT[token_id]] or token_ids
        closing = [
            token_id for token_id in plain if VOCABULARY.tokens[token_id] and VOCABULARY.tokens[token_id][0] in CLOSERS
        ]
        choices = closing if closing and is_late and rng.random() < 0.8 else plain if rng.random() < 0.97 else token_ids
        token_id = rng.choice(choices)
        assert matcher.accept(token_id), f"an allowed token is refused after {text!r}"
        text += VOCABULARY.tokens[token_id]
    return None


def walks(template, number=6, length=60):
    """Return the finished answers of several random walks."""
    return [text for seed in range(number) if (text := walk(template, seed, length)) is not None]


def admits(template, text):
    """Return whether a grammar admits exactly this text."""
    matcher = template.start()
    return all(matcher.accept(byte) for byte in text.encode()) and matcher.can_end()


def text_of(instance):
    return json.dumps(instance, separators=(",", ":"), ensure_ascii=False)


def spellings(instance):
    """Return the texts of an instance, its properties in any order; an integer as such, as grammars write it."""
    if isinstance(instance, dict):
        return [text_of(dict(entries)) for entries in permutations(instance.items())]
    if isinstance(instance, list):
        return [f"[{','.join(texts)}]" for texts in product(*map(spellings, instance))]
    return [text_of(int(instance) if isinstance(instance, float) and instance.is_integer() else instance)]


def _xgrammar_payload(source, param):
    from engine.structured.backends import xgrammar_child
    from engine.structured.backends.xgrammar_vocabulary import xgrammar_tokens

    xgrammar_child._prepared["tokens"] = xgrammar_tokens(VOCABULARY)
    return xgrammar_child.run("compile", source, param)
