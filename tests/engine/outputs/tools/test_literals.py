"""Python literals have the same meaning as JSON; everything else is refused."""

import ast
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.outputs.tools.literals import MAX_CHARACTERS, MAX_DEPTH, literal_to_json
from tests.examples import examples

texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
literals = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def as_json(value):
    """Return the value with its tuples as lists."""
    return json.loads(json.dumps(value))


@given(literals)
def test_python_literals_convert_to_the_same_value(value):
    assert json.loads(literal_to_json(repr(value))) == as_json(value)


@examples(300)
@given(st.text("[]{}()'\"\\,: 0123.eTrueNonxu-+", max_size=12))
def test_accepted_literals_equal_what_python_evaluates(text):
    result = literal_to_json(text)
    if result is None or "true" in text:
        return
    with contextlib.suppress(SyntaxError, TypeError):  # leading zeros; sets, which JSON does not have
        assert json.loads(result) == as_json(ast.literal_eval(text.strip()))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a' \"b\"", "ab"),
        ("'''a'b\n'''", "a'b\n"),
        ("'\\x41\\u00e9\\U0001F600\\n\\q'", "Aé😀\n\\q"),
        ("(1, 2,)", [1, 2]),
        ("(1)", 1),
        ("()", []),
        ("{1: True, 'b': None}", {"1": True, "b": None}),
        ("[true, false, null]", [True, False, None]),
        ("{'a', 2}", ["a", 2]),
        ("((1,),)", [[1]]),
        ("((1,))", [1]),
        ("-007", -7),
        ("+.5", 0.5),
        ("-3.", -3.0),
    ],
)
def test_literals_in_spellings_that_models_use(text, value):
    assert json.loads(literal_to_json(text)) == value


REFUSED = [
    "",
    "x",
    "f(1)",
    "1 + 1",
    "[1",
    "1_0",
    "{1: 2, 3}",
    "1e999",
    "[1 2]",
    "{[1]: 2}",
    "'a",
    "r'a'",
    "'\\xZZ'",
    "1 2",
    "nan",
    "[,]",
    "*a",
]


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_is_no_literal_is_refused(text):
    assert literal_to_json(text) is None


def test_size_and_depth_are_capped():
    assert literal_to_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert literal_to_json("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2)) is None
    assert literal_to_json("1" * (MAX_CHARACTERS + 1)) is None
