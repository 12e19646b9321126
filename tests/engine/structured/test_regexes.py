"""Expressions match as `re.fullmatch` does; those that need more than linear time are refused."""

from __future__ import annotations

import json
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import RequestError
from engine.api.constraint import Constraint, ConstraintKind
from engine.structured.compiler import DEFAULT_LIMITS
from engine.structured.regex.reader import check_regex, read_regex
from tests.engine.structured.walking import admits, template_of, walks
from tests.examples import examples

PATTERNS = [
    "abc", "a+b*", "[^a-z]{2}", r"\d{3}-\d{4}", r"\w{1,3}@\w{2}\.com", "(?i)hello w", r"[\w\s]{3}", r"\W{2}\D\S",
    "^a|b$",
    "(^ab|cd$)", "(?P<x>a)b", "a{0}b", r"[^\W]{3}", r"[^\d\s]{3}", ".{3}", "(?s:.){2}", r"\u00e9\x41", r"[\]\-^a]{2}",
    "a??b+?", "(?:a|bc){2,4}", r"\/\\\.", "é{1,2}", "[é-ü]{2}", "(?i:[a-f]{2})é", "(a|b)*c", "x{2,3}y?", r"\t\n\r",
    "(?i)[^abc]{2}", r"\$\^", "()a", "(|a)b", "^$", r"[\s\S]{2}", r"[^\s\d]", r"(?x) a b # comment",
    "[a-zA-Z_][a-zA-Z0-9_]{0,5}", r"(\+|-)?\d{1,3}(\.\d{1,2})?", "(yes|no|maybe)",
    r"[!-/]{2}", r"\Aabc\Z", "(?:(?:a)?b)?c", r"[\x00-\x1f]", r"\.{3}", "[.]", "(?a:\\d)", "😀|😁",
]  # fmt: skip


def regex(pattern):
    return Constraint(ConstraintKind.REGEX, pattern, "structured_outputs.regex")


@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_answer_is_a_full_match(pattern):
    found = walks(template_of(regex(pattern)), number=12, length=20)
    assert found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert [text for text in found if not re.fullmatch(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"(?<year>[0-9]{4})", ["2024"], ["202", "20245"]),
        (r"\p{Lu}{2}", ["AB", "ÉÀ"], ["ab", "A1"]),
        (r"[^\p{L}]", ["1", "!"], ["a", "é"]),
        ("a|ab", ["a", "ab"], ["b", ""]),
        (".", ["a", "é", "😀"], ["\n", "", "ab"]),
        (r"\d", ["7"], ["٣", "a"]),
    ],
)
def test_example_texts_match_or_do_not_match(pattern, right, wrong):
    template = template_of(regex(pattern))
    assert [text for text in right if not admits(template, text)] == []
    assert [text for text in wrong if admits(template, text)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "back-references"),
        (r"(?P<x>a)(?P=x)", "back-references"),
        (r"\bword", "word borders"),
        ("a^b", "anchors"),
        ("(?>a)b", "atomic groups"),
        ("a*+", "possessive"),
        ("(a)?(?(1)b|c)", "conditions"),
        ("(?m)^a$", "multi-line"),
        ("[z-a]", "range"),
        (r"\p{NoSuchThing}", "compiled"),
        ("(a{100}){101}", "10000"),
        (r"\ud83d\ude00", "half a character"),
        ("{{ x }}", "repeats nothing"),
        ("a{b}", "repeats nothing"),
    ],
)
def test_unsupported_regex_features_are_refused_by_name(pattern, reason):
    with pytest.raises(RequestError) as caught:
        template_of(regex(pattern))
    assert reason in caught.value.message
    assert caught.value.param == "structured_outputs.regex"


@pytest.mark.parametrize("pattern", [r"\{{2}", "[{]", r"[\]{]a{,2}", "[]{]{1}", r"\\\{", r"\p{Lu}{2}"])
def test_literal_and_escaped_braces_are_accepted(pattern):
    read_regex(pattern, DEFAULT_LIMITS, "regex")


LOOKS = [
    r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z]+$",
    r"(a)\1",
    r"\bword\b",
    "(?>a)b++",
    "(a)?(?(1)b|c)",
    "(?m)^a$",
    r"(?<=a)(?<!b)c",
]


@pytest.mark.parametrize("pattern", LOOKS)
def test_an_unenforced_expression_may_use_look_around(pattern):
    """Schema libraries write e-mail patterns with look-ahead; in auto mode a tool is only shown to the model."""
    check_regex(pattern, DEFAULT_LIMITS, "tools")


@pytest.mark.parametrize(
    "pattern", ["(", "a**", "{{ x }}", "(?=(a{100}){101})", "(a{101}){100}", "(?>(a{1,200}){100})", "x" * 16_385]
)
def test_an_unenforced_expression_must_be_valid_and_within_the_limits(pattern):
    with pytest.raises(RequestError):
        check_regex(pattern, DEFAULT_LIMITS, "tools")


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", [r"\d", r"\s", r"\w", r"\D", r"\S", r"\W", r"[^\d]", r"[^\s]", r"[^\w]", r"[^\D]", r"[^\S]", r"[^\W]"]
)
def test_character_classes_match_as_in_python(pattern):
    """Classes are built only from Unicode planes that have letters."""
    ranges = read_regex(pattern, DEFAULT_LIMITS, "regex").ranges
    assert all(re.fullmatch(f"{pattern}+", "".join(map(chr, range(first, last + 1)))) for first, last in ranges)


@given(
    st.from_regex(r"([ab]|\[[ab^-]{1,3}\]|\((\?:)?[ab|]{1,4}\)|\.)([*+?]|\{1,2\})?([ab]|\\[dws]){0,3}", fullmatch=True)
)
@examples(40)
def test_an_expression_is_refused_or_its_answers_match(pattern):
    try:
        template = template_of(regex(pattern))
    except RequestError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # "[---]" may mean something else in a later Python
        assert all(re.fullmatch(pattern, text) for text in walks(template, number=4, length=10))


PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")


@given(st.lists(st.text(PRINTABLE, min_size=1, max_size=8), min_size=1, max_size=8))
@examples(40)
def test_an_answer_is_one_of_the_choices(choices):
    template = template_of(Constraint(ConstraintKind.CHOICE, json.dumps(choices)))
    assert all(text in choices for text in walks(template, number=4))
    assert all(admits(template, choice) for choice in choices)


def test_choices_with_common_prefixes_are_distinguished():
    template = template_of(Constraint(ConstraintKind.CHOICE, json.dumps(["a", "ab", "abc", "b", "a"])))
    assert [admits(template, text) for text in ("a", "ab", "abc", "b", "bc", "")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    matcher = template.start()
    assert matcher.accept(ord("b"))
    assert matcher.is_complete()
