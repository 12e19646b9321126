"""The form has every field of the request schema once, and its schema says what the server takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from chat.api.request.schema import FIELD_NAMES
from chat.playground.form import COMMON, GROUPS, form, request_schema
from chat.playground.requests import FIELDS_TAKEN
from tests.chat.conversations.conftest import Page


def test_every_field_of_the_request_is_in_one_group() -> None:
    counted = Counter(name for _, titles in GROUPS.values() for name in titles)
    assert counted == Counter(FIELD_NAMES)
    assert COMMON <= FIELD_NAMES


def test_the_form_has_the_fields_that_the_page_takes(ann: Page) -> None:
    status, answer = ann("GET", "fields")
    assert status == 200
    assert set(answer["fields"]) == FIELDS_TAKEN == set(answer["schema"]["properties"])
    assert [(name, group["name"]) for group in answer["groups"] for name in group["fields"]] == [
        (name, field["group"]) for name, field in answer["fields"].items()
    ]
    assert answer["fields"]["temperature"] == {
        "title": "Temperature",
        "help": "0 is greedy; higher is more random.",
        "schema": {"type": "number", "minimum": 0, "maximum": 2},
        "group": "sampling",
        "is_common": True,
    }


def test_every_field_has_a_title_a_sentence_and_a_schema() -> None:
    fields = form()["fields"].values()
    assert all(field["title"] and field["help"].endswith(".") for field in fields)
    assert len({field["title"] for field in fields} - {"Tools"}) == len(fields) - 1, "titles differ"
    for field in fields:
        Draft202012Validator.check_schema(field["schema"])
        assert field["schema"].keys() & {"type", "oneOf"}
        assert "null" not in str(field["schema"].get("type"))


@pytest.mark.parametrize(
    ("request_body", "is_good"),
    [
        ({"messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "stop": ["a"], "seed": None}, True),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, True),
        ({}, False),
        ({"messages": [{"role": "critic", "content": "hi"}]}, True),
        ({"messages": [{"role": 5, "content": "hi"}]}, False),
        ({"messages": [{"content": "hi"}]}, False),
        ({"messages": [{"role": "user", "content": "hi"}], "temperature": 3}, False),
        ({"messages": [{"role": "user", "content": "hi"}], "temprature": 1}, False),
        ({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]}, False),
    ],
)
def test_an_editor_can_check_a_whole_request(request_body: Any, is_good: bool) -> None:
    schema = request_schema()
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(request_body) == is_good
