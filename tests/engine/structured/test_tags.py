"""Structural tags of constants, schemas and free text, nested; the legacy form is equivalent."""

from __future__ import annotations

import json

import pytest

from engine.api import RequestError
from engine.api.constraint import Constraint, ConstraintKind
from tests.engine.structured.walking import admits, template_of, walks
from tests.engine.tiny_tokenizer import IM_START

INTEGER = {"type": "json_schema", "json_schema": {"type": "integer"}}
ANY = {"type": "any_text"}


def const(text):
    return {"type": "const_string", "value": text}


def tag(begin, content, end):
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements):
    return {"type": "sequence", "elements": list(elements)}


def either(*elements):
    return {"type": "or", "elements": list(elements)}


def triggered(*tags, **options):
    return {"type": "triggered_tags", "triggers": ["<f="], "tags": list(tags)} | options


def separated(separator, *tags, **options):
    return {"type": "tags_with_separator", "tags": list(tags), "separator": separator} | options


def constraint(format_, **options):
    source = json.dumps({"type": "structural_tag", "format": format_})
    return Constraint(ConstraintKind.STRUCTURAL_TAG, source, "response_format", **options)


PARAMETERS = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "integer"}}, "required": ["s"]}
CASES = {
    "const": (const("ab"), ["ab"], ["a", "abc"]),
    "sequence": (
        sequence(const("n="), INTEGER, const("!"), {"type": "regex", "pattern": "[a-z]*"}, const("end")),
        ["n=5!fooend", "n=12!end"],
        ["n=!end", "n=5!foo"],
    ),
    "or": (either(const("x"), INTEGER, {"type": "regex", "pattern": "y+"}), ["x", "12", "yyy"], ["xy", ""]),
    "tag of free text": (tag("<a>", ANY, "</a>"), ["<a></a>", "<a>b<</a>"], ["<a>", "<a>x</a>y"]),
    "tag with two ends": (tag("<a>", ANY, ["</a>", "</b>"]), ["<a>q</a>", "<a>q</b>"], ["<a>q"]),
    "triggered": (
        triggered(tag("<f=a>", INTEGER, "</f>"), tag("<f=b>", ANY, "</f>")),
        ["", "hi", "hi<f=a>5</f>", "x<f=b>zz</f>y<f=a>-1</f>z<f"],
        ["<f=", "<f=c>", "<f=a>x</f>"],
    ),
    "triggered once at least": (
        triggered(tag("<f=a>", INTEGER, "</f>"), at_least_one=True),
        ["x<f=a>5</f>", "<f=a>5</f>t<f=a>6</f>"],
        ["", "hi"],
    ),
    "triggered once at most": (
        triggered(tag("<f=a>", INTEGER, "</f>"), stop_after_first=True),
        ["x<f=a>5</f>", "hi"],
        ["<f=a>5</f>t"],
    ),
    "triggered within a tag": (
        tag("<o>", triggered(tag("<f=a>", INTEGER, "</f>")), "</o>"),
        ["<o>x<f=a>5</f>y</o>", "<o></o>"],
        ["<o>x", "<o>a<f=a>5</f>"],
    ),
    "separated": (
        separated(",", tag("<a>", INTEGER, "</a>"), tag("<b>", INTEGER, "</b>")),
        ["", "<a>1</a>", "<a>1</a>,<b>2</b>,<a>3</a>"],
        ["<a>1</a>,", "<a>1</a><b>2</b>"],
    ),
    "separated, one at least": (
        separated("", tag("<a>", INTEGER, "</a>"), at_least_one=True),
        ["<a>1</a><a>2</a>"],
        ["", "x"],
    ),
    "separated, one": (
        separated("", tag("<a>", INTEGER, "</a>"), at_least_one=True, stop_after_first=True),
        ["<a>1</a>"],
        ["", "<a>1</a><a>2</a>"],
    ),
    "qwen": (
        tag("<t>", {"type": "qwen_xml_parameter", "json_schema": PARAMETERS}, "</t>"),
        ['<t><parameter=s>hi "there"</parameter><parameter=n>5</parameter></t>', "<t><parameter=s></parameter></t>"],
        ["<t></t>", "<t><parameter=n>5</parameter></t>", "<t><parameter=s>x</parameter><parameter=n>y</parameter></t>"],
    ),
    "grammar": (
        sequence(const("q:"), {"type": "grammar", "grammar": 'root ::= "a" b\nb ::= [0-9]+'}),
        ["q:a12"],
        ["q:a"],
    ),
    "free text up to a constant": (sequence(ANY, const("::"), INTEGER), ["abc::5", "::1"], ["abc::", "5"]),
    "free text without some": (
        tag("<a>", ANY | {"excludes": ["bad", "evil"]}, "</a>"),
        ["<a>ok ba</a>"],
        ["<a>bad</a>"],
    ),
    "content or a call": (either(INTEGER, sequence(const("<call>"), ANY)), ["5", "<call>x"], ["call"]),
}


@pytest.mark.parametrize("name", CASES)
def test_example_texts_are_admitted_or_rejected(name):
    format_, right, wrong = CASES[name]
    template = template_of(constraint(format_))
    assert [text for text in right if not admits(template, text)] == []
    assert [text for text in wrong if admits(template, text)] == []


@pytest.mark.parametrize("name", CASES)
def test_no_walk_meets_a_dead_end(name):
    template = template_of(constraint(CASES[name][0]))
    assert all(admits(template, text) for text in walks(template, number=4, length=30))


def test_the_legacy_form_is_equivalent():
    structures = [{"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"}, {"begin": "<f=b>", "end": "</f>"}]
    template = template_of(
        Constraint(ConstraintKind.STRUCTURAL_TAG, json.dumps({"structures": structures, "triggers": ["<f="]}))
    )
    assert all(admits(template, text) for text in ("hi", "<f=a>{}</f>x", "<f=b>[1]</f>"))
    assert not admits(template, "<f=a>1</f>")


def test_json_within_a_tag_follows_the_json_options():
    content = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    assert not admits(template_of(constraint(tag("<a>", content, "</a>"))), '<a>{"a": 1}</a>')
    assert admits(template_of(constraint(tag("<a>", content, "</a>"), whitespace="[ ]?")), '<a>{ "a": 1}</a>')
    assert not admits(template_of(constraint(tag("<a>", content, "</a>"), closes_objects=True)), '<a>{"b":1}</a>')


def test_a_non_empty_white_space_pattern_is_refused_within_a_tag():
    with pytest.raises(RequestError, match="whitespace_pattern"):
        template_of(constraint(tag("<a>", INTEGER, "</a>"), whitespace=" "))
    assert admits(template_of(constraint(tag("<a>", ANY, "</a>"), whitespace=" ")), "<a>x</a>")


def test_a_constant_matches_a_control_token_only_with_has_control():
    calls = {"type": "triggered_tags", "triggers": ["<|im_start|>"], "tags": [tag("<|im_start|>call:", INTEGER, ";")]}
    matcher = template_of(constraint(calls, has_control=True)).start()
    assert matcher.accept(ord("x"))
    assert matcher.accept(IM_START)
    assert not matcher.accept(ord("y"))
    assert all(matcher.accept(byte) for byte in b"call:12;more")
    assert matcher.can_end()
    assert not template_of(constraint(calls)).start().accept(IM_START)


@pytest.mark.parametrize(
    ("format_", "reason"),
    [
        (sequence(ANY, INTEGER), "free text"),
        ({"type": "grammar", "grammar": 'root ::= "a" root | "b"'}, "recursive"),
        ({"type": "no_such"}, "no_such"),
        (sequence(), "at least one"),
        (const(""), "not empty"),
        ({"type": "json_schema"}, "json_schema"),
        ({"type": "json_schema", "json_schema": {"not": {}}}, "not"),
        ({"type": "regex", "pattern": "("}, "regular expression"),
        (tag("<a>", ANY, None), "end"),
        (triggered(tag("<g>", ANY, "")), "triggers"),
        (5, "object"),
    ],
)
def test_an_invalid_tag_is_refused_with_the_reason(format_, reason):
    with pytest.raises(RequestError) as caught:
        template_of(constraint(format_))
    assert reason in caught.value.message
    assert caught.value.param == "response_format"
