"""Constrained answers."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SIZE = {"max_tokens": 60}
EXTRA = [
    {"role": "user", "content": "One as JSON."},
    {"role": "assistant", "content": '{"a":1,"zzz":1}'},
    {"role": "user", "content": "Two as JSON."},
    {"role": "assistant", "content": '{"a":2,"zzz":2}'},
    {"role": "user", "content": "Three as JSON."},
]


@pytest.mark.parametrize(
    ("constraint", "is_valid"),
    [
        ({"regex": r"[A-Z]{3}-[0-9]{4}"}, lambda text: re.fullmatch(r"[A-Z]{3}-[0-9]{4}", text)),
        ({"choice": ["crimson", "teal"]}, lambda text: text in ("crimson", "teal")),
        ({"grammar": 'root ::= "yes" | "no" "!"'}, lambda text: text in ("yes", "no!")),
        ({"grammar": 'start: "left" | "right"'}, lambda text: text in ("left", "right")),
        ({"json": PERSON}, lambda text: jsonschema.validate(json.loads(text), PERSON) is None),
        ({"json": json.dumps(PERSON)}, lambda text: jsonschema.validate(json.loads(text), PERSON) is None),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
@pytest.mark.parameter("structured_outputs")
def test_the_answer_has_the_requested_form_and_ends_with_it(ask, constraint, is_valid):
    for fields in ({}, {"temperature": 1.5, "seed": 4}):
        choice = ask.choice(structured_outputs=constraint, **SIZE, **fields)
        assert choice["finish_reason"] == "stop"
        assert is_valid(choice["message"]["content"])


@pytest.mark.parameter("structured_outputs")
def test_any_json_object_is_an_object_as_far_as_the_limit_lets_it(ask):
    assert ask.text(structured_outputs={"json_object": True}).startswith("{")
    cut = ask.choice(structured_outputs={"regex": "[a-z]{50}"}, max_tokens=3)
    assert cut["finish_reason"] == "length"


@pytest.mark.parameter("structured_outputs")
def test_a_structural_tag_binds_its_regions_only(ask):
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": "Answer: "},
                {
                    "type": "tag",
                    "begin": "<n>",
                    "content": {"type": "json_schema", "json_schema": {"enum": [7, 42]}},
                    "end": "</n>",
                },
            ],
        },
    }
    assert re.fullmatch(
        r"Answer: <n>(7|42)</n>",
        ask.text(structured_outputs={"structural_tag": json.dumps(tag)}, logit_bias=None, **SIZE),
    )


@pytest.mark.parameter("structured_outputs")
def test_white_space_follows_the_options(ask):
    def text(**options):
        return ask.text(structured_outputs={"json": PERSON, **options}, **SIZE)

    assert not re.search(r"\s", re.sub(r'"[^"]*"', '""', text()))
    gaps = re.findall(r"\s+", re.sub(r'"[^"]*"', '""', text(whitespace_pattern="\n")))
    assert set(gaps) == {"\n"}
    loose = text(disable_any_whitespace=False)
    jsonschema.validate(json.loads(loose), PERSON)
    assert ask.refusal(structured_outputs={"json": PERSON, "whitespace_pattern": "x"})[0].startswith(
        "structured_outputs"
    )
    both = {"json": PERSON, "whitespace_pattern": " ", "disable_any_whitespace": True}
    assert ask.refusal(structured_outputs=both)[0].startswith("structured_outputs")


@pytest.mark.parameter("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_whitespace_pattern")
def test_older_names_of_constraints_hold(ask):
    assert ask.text(guided_choice=["red", "green"]) in ("red", "green")
    assert re.fullmatch("[ab]{3}", ask.text(guided_regex="[ab]{3}"))
    assert ask.text(guided_grammar='root ::= "yes" | "no"') in ("yes", "no")
    assert ask.text(guided_json={"const": [1]}, guided_whitespace_pattern="\n") == "[\n1\n]"
    assert ask.refusal(guided_regex="(")[0] == "guided_regex"


@pytest.mark.parameter("structured_outputs")
def test_unlisted_properties_are_admitted_only_if_enabled(ask):
    """By default unlisted properties are forbidden: a small model adds them without end, and clients cannot parse the
    call.
    """
    listed = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    request = {"messages": EXTRA, "max_tokens": 24}
    closed = ask.text(structured_outputs={"json": listed}, **request)
    assert set(json.loads(closed)) == {"a"}
    assert ask.text(guided_json=listed, **request) == closed
    assert "zzz" in json.loads(
        ask.text(structured_outputs={"json": listed, "disable_additional_properties": False}, **request)
    )
    assert "zzz" in json.loads(
        ask.text(structured_outputs={"json": {**listed, "additionalProperties": True}}, **request)
    )
    assert ask.text(structured_outputs={"json": listed, "disable_fallback": True}, **request) == closed


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"regex": "(", "choice": ["a"]},
        {"regex": "("},
        {"regex": r"(a)\1"},
        {"regex": ""},
        {"choice": []},
        {"choice": [""]},
        {"grammar": 'root ::= root "a"'},
        {"grammar": " "},
        {"json": ""},
        {"json": {"type": "foo"}},
        {"json": {"not": {}}},
        {"json_object": False},
        {"structural_tag": ""},
        "json",
    ],
    ids=str,
)
@pytest.mark.parameter("structured_outputs")
def test_a_bad_constraint_is_refused_before_anything_is_generated(ask, bad):
    assert ask.refusal(structured_outputs=bad)[0].startswith("structured_outputs")


@pytest.mark.parameter("structured_outputs", "allowed_token_ids")
def test_constraints_that_leave_no_token_fail_alone_and_name_the_field(ask):
    # "#" cannot begin a number.
    sharp = ask.token_ids(structured_outputs={"choice": ["#"]})[0]
    both = {"structured_outputs": {"regex": "[0-9]{3}"}, "allowed_token_ids": [sharp]}
    assert ask.refusal(**both)[0] == "structured_outputs"
    assert ask.refusal(**both, stream=True)[0] == "structured_outputs"
    assert ask.text()


@pytest.mark.parameter("response_format")
def test_a_response_format_binds_the_answer(ask):
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
    jsonschema.validate(json.loads(ask.text(response_format=schema, **SIZE)), PERSON)
    embedded = {"type": "json_object", "schema": PERSON}
    jsonschema.validate(json.loads(ask.text(response_format=embedded, **SIZE)), PERSON)
    assert ask.text(response_format={"type": "json_object"}).startswith("{")
    assert ask.text(response_format={"type": "json_schema", "json_schema": {"name": "any"}}).startswith("{")
    assert ask.text(response_format={"type": "text"}) == ask.text()


@pytest.mark.parameter("response_format")
def test_a_legacy_structural_tag_constrains_after_its_trigger(ask):
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "The sea", "schema": {"type": "integer"}, "end": "#"}],
        "triggers": ["The sea"],
    }
    assert re.match(r"The sea-?[0-9]+", ask.text(response_format=tag, max_tokens=10))
    no_trigger = {**tag, "triggers": ["<other>"]}
    assert ask.refusal(response_format=no_trigger)[0].startswith("response_format")


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {}},
        "json",
        {"type": "json_object", "schema": 5},
    ],
    ids=str,
)
@pytest.mark.parameter("response_format")
def test_a_bad_response_format_is_refused(ask, bad):
    assert ask.refusal(response_format=bad)[0].startswith("response_format")


@pytest.mark.parameter("response_format", "structured_outputs")
def test_two_constraints_are_refused(ask):
    assert (
        ask.refusal(response_format={"type": "json_object"}, structured_outputs={"regex": "a"})[0]
        == "structured_outputs"
    )
