"""The grammar of a `CallFormat`, compiled as a structural tag, accepts the calls of its models."""

import json

import pytest
import xgrammar
from xgrammar.testing import _is_grammar_accept_string

from engine.outputs.tools.registry import known_tool_parsers, tool_format
from tests.engine.outputs.tools.examples import EXAMPLES

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "get_time": {"type": "object", "properties": {}, "additionalProperties": False},
}
ONE_CALL_A_BLOCK = {
    "mistral",
    "jamba",
    "hunyuan_a13b",
    "phi4_mini_json",
    "minimax",
    "nemotron_json",
    "cohere_command",
    "apertus",
}
"""Formats with lists of calls: under a rule each call has a list of its own."""

RULED = [name for name in known_tool_parsers() if tool_format(name).call_format and name not in ONE_CALL_A_BLOCK]


def rule_of(form):
    def content(schema):
        node = {"type": "json_schema", "json_schema": schema, "style": form.style}
        number = [{"type": "regex", "pattern": "[0-9]{1,4}"}, {"type": "const_string", "value": form.number_end}]
        return {"type": "sequence", "elements": [*number, node]} if form.number_end else node

    tags = [
        {"type": "tag", "begin": form.begin + name + form.middle, "content": content(schema), "end": form.end}
        for name, schema in SCHEMAS.items()
    ]
    source = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": [form.trigger], "tags": tags}}
    return xgrammar.Grammar.from_structural_tag(json.dumps(source))


@pytest.mark.parametrize("name", RULED)
def test_a_format_grammar_accepts_the_calls_of_its_models(name):
    rule = rule_of(tool_format(name).call_format)
    assert _is_grammar_accept_string(rule, EXAMPLES[name])
    assert not _is_grammar_accept_string(rule, EXAMPLES[name].replace("days", "years"))
    assert _is_grammar_accept_string(rule, "Only text.")


@pytest.mark.parametrize("name", sorted(ONE_CALL_A_BLOCK))
def test_a_format_grammar_accepts_one_call_per_block(name):
    form = tool_format(name, {"[ARGS]": 1}.get).call_format
    call = f'{form.begin}get_weather{form.middle}{{"city": "Bern"}}{form.end}'
    assert _is_grammar_accept_string(rule_of(form), call + "\n" + call)
    assert not _is_grammar_accept_string(rule_of(form), call.replace("city", "town"))
