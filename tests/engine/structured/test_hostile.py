"""Hostile constraints are refused at once, with the limit, before anything is compiled."""

from __future__ import annotations

import json

import pytest

from engine.api import GenerationRequest, RequestError, Tool, ToolChoice, ToolMode
from engine.api.constraint import Constraint, ConstraintKind
from engine.structured.tags.tools_schema import answer_constraint
from tests.engine.structured.walking import compiled

KINDS = ConstraintKind
HOSTILE = {
    "invalid schema": (KINDS.JSON_SCHEMA, '{"type":"foo"}', "type"),
    "schema that is a list": (KINDS.JSON_SCHEMA, "[]", "object"),
    "schema that is a number": (KINDS.JSON_SCHEMA, "5", "object"),
    "empty schema text": (KINDS.JSON_SCHEMA, "", "JSON"),
    "schema that is a string": (KINDS.JSON_SCHEMA, '""', "object"),
    "schema with NaN": (KINDS.JSON_SCHEMA, '{"minimum":NaN}', "JSON"),
    "schema with an endless number": (KINDS.JSON_SCHEMA, '{"minimum":1e999}', "JSON"),
    "deep schema": (KINDS.JSON_SCHEMA, '{"items":' * 10_000 + "1" + "}" * 10_000, "64 levels deep"),
    "deep list": (KINDS.JSON_SCHEMA, "[" * 100_000, "64 levels deep"),
    "large schema": (KINDS.JSON_SCHEMA, json.dumps({"description": "x" * 300_000}), "262144 bytes"),
    "100,000 enum values": (KINDS.JSON_SCHEMA, '{"enum":[' + ",".join(["1"] * 100_000) + "]}", "20000"),
    "a thousand million items": (KINDS.JSON_SCHEMA, '{"type":"array","minItems":1000000000}', "100000"),
    "reference to itself": (KINDS.JSON_SCHEMA, '{"$ref":"#"}', "itself"),
    "bound of four hundred digits": (KINDS.JSON_SCHEMA, '{"type":"integer","minimum":1' + "0" * 400 + "}", "too large"),
    "constant of five thousand digits": (KINDS.JSON_SCHEMA, '{"const":' + "9" * 5_000 + "}", "too large"),
    "branch with a bound of four hundred digits": (
        KINDS.JSON_SCHEMA,
        '{"oneOf":[{"type":"integer","exclusiveMinimum":1' + "0" * 400 + '},{"type":"null"}]}',
        "too large",
    ),
    "terminals in a circle that are ignored": (KINDS.GRAMMAR, "start: X\nX: Y\nY: X\n%ignore X", "left-recursive"),
    "no choice": (KINDS.CHOICE, "[]", "at least one"),
    "empty choice": (KINDS.CHOICE, '[""]', "empty"),
    "200,000 choices": (KINDS.CHOICE, json.dumps(["abc"] * 200_000), "10000"),
    "choices of two megabytes": (KINDS.CHOICE, json.dumps(["x" * 300_000] * 7), "bytes"),
    "regex with an open group": (KINDS.REGEX, "(", "regular expression"),
    "regex with two stars": (KINDS.REGEX, "foo**", "regular expression"),
    "regex of groups": (KINDS.REGEX, "(" * 8_000 + ")" * 8_000, "64 deep"),
    "regex with huge repeats": (KINDS.REGEX, "([a-z]{1,1000}){1,1000}", "10000"),
    "regex with NUL": (KINDS.REGEX, "a\0b", "NUL"),
    "empty regex": (KINDS.REGEX, "", "empty"),
    "regex that nothing matches": (KINDS.REGEX, r"[^\s\S]", "satisf"),
    "large regex": (KINDS.REGEX, "a" * 20_000, "16384 bytes"),
    "blank grammar": (KINDS.GRAMMAR, "  ", "rules"),
    "no grammar": (KINDS.GRAMMAR, "hello", "rules"),
    "30,000 brackets": (KINDS.GRAMMAR, "root ::= " + "(" * 30_000, "64 deep"),
    "left recursion": (KINDS.GRAMMAR, 'root ::= root "a" | "b"', "left-recursive"),
    "hidden left recursion": (KINDS.GRAMMAR, 'root ::= a b\na ::= "x"?\nb ::= root "y" | "z"', "left-recursive"),
    "endless grammar": (KINDS.GRAMMAR, 'root ::= "a" root', "finite"),
    "two roots": (KINDS.GRAMMAR, 'root ::= "a"\nroot ::= "b"', "twice"),
    "undefined rule": (KINDS.GRAMMAR, "root ::= other", "not defined"),
    "no root": (KINDS.GRAMMAR, 'a ::= "x"', "root"),
    "no start": (KINDS.GRAMMAR, 'a: "x"', "root"),
    "five thousand stars": (KINDS.GRAMMAR, 'root ::= "a"' + "*" * 5_000, "64 deep"),
    "grammar with huge repeats": (KINDS.GRAMMAR, 'root ::= ("a"{1000}){1000}', "10000"),
    "large grammar": (KINDS.GRAMMAR, 'root ::= "' + "a" * 300_000 + '"', "262144 bytes"),
    "empty structural tag": (KINDS.STRUCTURAL_TAG, "", "empty"),
    "structural tag of nothing": (KINDS.STRUCTURAL_TAG, "{}", "type"),
    "begin without trigger": (
        KINDS.STRUCTURAL_TAG,
        '{"structures":[{"begin":"<a>","end":"</a>"}],"triggers":["<b"]}',
        "triggers",
    ),
    "deep structural tag": (KINDS.STRUCTURAL_TAG, '{"type":"or","elements":[' * 5_000, "80 levels deep"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_constraint_is_refused_by_its_field(name):
    kind, source, reason = HOSTILE[name]
    with pytest.raises(RequestError) as caught:
        compiled(Constraint(kind, source, "structured_outputs.x"))
    assert reason in caught.value.message
    assert caught.value.param == "structured_outputs.x"
    assert len(caught.value.message) <= 1_000


def nested(levels):
    return '{"type":"object","properties":{"a":' * (levels - 1) + '{"type":"null"}' + "}}" * (levels - 1)


def test_depth_is_counted_in_levels_of_schemas():
    """Counted in brackets, the limit was 32 nested objects where the message said 64."""
    assert compiled(Constraint(KINDS.JSON_SCHEMA, nested(64)))
    branches = '{"anyOf":[' * 63 + '{"type":"null"}' + "]}" * 63
    assert compiled(Constraint(KINDS.JSON_SCHEMA, branches))
    with pytest.raises(RequestError, match="64 levels deep"):
        compiled(Constraint(KINDS.JSON_SCHEMA, nested(65)))


def test_tools_of_the_full_depth_can_be_forced_together():
    """The enclosing array of calls must not count towards the client's depth."""
    tools = tuple(Tool(name, json.loads(nested(64))) for name in ("f", "g"))
    request = GenerationRequest("r", "m", (), 0.0, tools=tools, tool_choice=ToolChoice(ToolMode.REQUIRED))
    assert compiled(answer_constraint(request, None))


@pytest.mark.parametrize("rule", ["r{} ::= r{}", 'r{} ::= "a" r{}', "r{} ::= (r{})"])
def test_a_long_chain_of_rules_is_accepted(rule):
    """Reading must not recurse once per rule, as Python allows a thousand levels."""
    chain = "\n".join(rule.format(number, number + 1) for number in range(3_000))
    assert compiled(Constraint(KINDS.GRAMMAR, f'root ::= r0\n{chain}\nr3000 ::= "x"'))


def test_a_rejected_constraint_does_not_affect_later_ones():
    good = Constraint(KINDS.GRAMMAR, 'root ::= "a" | "b"')
    before = compiled(good)
    for kind, source, _ in HOSTILE.values():
        with pytest.raises(RequestError):
            compiled(Constraint(kind, source))
    assert compiled(good) == before
