"""Constraints that a user is writing: what is wrong with them, whether a text satisfies them, an example."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.test import AsyncClient

from chat.errors import ApiError
from chat.playground import checks
from tests.chat.conversations.conftest import API, Page
from tests.people import member

pytestmark = pytest.mark.django_db

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "day": {"type": "integer"}}, "required": ["city"]}


def checked(page: Page, kind: str, value: Any, text: str | None = None) -> Any:
    status, answer = page("POST", "check", {"kind": kind, "value": value, "text": text})
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("kind", "value", "right", "wrong"),
    [
        ("json_schema", CITY, '{\n  "city": "Linz"\n}', '{"town": "Linz"}'),
        ("tool_parameters", json.dumps(CITY), '{"city":"Linz","day":1}', '{"city":"Linz","day":"Monday"}'),
        ("regex", "[0-9]+(px|em)", "12em", "12"),
        ("choice", ["yes", "no"], "no", "n"),
        ("grammar", 'root ::= "é" | "(" "é" ")"', "(é)", "(é"),
        ("grammar", 'start: "a" "b"+', "abb", "abba"),
    ],
)
def test_a_text_satisfies_a_constraint_or_does_not(ann: Page, kind: str, value: Any, right: str, wrong: str) -> None:
    for text, expected in ((right, True), (wrong, False), (None, None)):
        answer = checked(ann, kind, value, text)
        assert (answer["is_valid"], answer["problems"], answer["matches"]) == (True, [], expected), text


def test_keywords_that_cannot_be_enforced_are_named_with_their_places(ann: Page) -> None:
    tags = {"type": "array", "uniqueItems": True, "items": {"not": {}}}
    answer = checked(ann, "json_schema", {"type": "object", "properties": {"a/b": tags, "n": {"type": "int"}}}, "{}")
    assert (answer["is_valid"], answer["matches"], answer["example"]) == (False, None, None)
    assert [problem["path"] for problem in answer["problems"]] == [
        "/properties/a~1b/uniqueItems",
        "/properties/n/type",
        "/properties/a~1b/items/not",
    ]
    assert "'uniqueItems' is not supported" in answer["problems"][0]["message"]
    assert answer["max_bytes"] == 256 * 1024


def test_parameters_of_a_tool_may_have_what_only_strict_calls_refuse(ann: Page) -> None:
    parameters = {"type": "object", "properties": {"tags": {"type": "array", "uniqueItems": True}}}
    answer = checked(ann, "tool_parameters", parameters, '{"tags": []}')
    assert (answer["is_valid"], answer["matches"]) == (True, None)
    assert [problem["path"] for problem in answer["problems"]] == ["/properties/tags/uniqueItems"]
    assert not checked(ann, "tool_parameters", {"type": "string"})["is_valid"]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("json_schema", '{"type": "object",}', "not valid JSON"),
        ("json_schema", {"$ref": "#/$defs/x"}, "leads nowhere"),
        ("json_schema", {"type": "string", "minLength": 2, "maxLength": 1}, "cannot be"),
        ("regex", "(a", "unterminated"),
        ("regex", "(?=a)", "look-around"),
        ("choice", [], "at least one string"),
        ("grammar", "root ::= b", "not defined"),
    ],
)
def test_an_invalid_constraint_says_why(ann: Page, kind: str, value: Any, message: str) -> None:
    answer = checked(ann, kind, value, "")
    assert (answer["is_valid"], answer["matches"], answer["example"]) == (False, None, None)
    assert message in answer["problems"][0]["message"]


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        (CITY, {"city": ""}),
        (TREE, {"next": None}),
        ({"type": "array", "minItems": 2, "items": {"enum": ["x", "y"]}}, ["x", "x"]),
        ({"type": "string", "minLength": 2, "default": "z"}, "aa"),
        ({"type": "integer", "exclusiveMinimum": 7, "multipleOf": 5, "examples": [25]}, 25),
        ({"type": "integer", "exclusiveMinimum": 10, "multipleOf": 5}, 15),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "AA-0"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"allOf": [{"required": ["b"], "properties": {"b": {"const": 1}}}, {"type": "object"}]}, {"b": 1}),
    ],
)
def test_a_schema_gets_a_small_example(ann: Page, schema: Any, example: Any) -> None:
    assert checked(ann, "json_schema", schema)["example"] == example


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"kind": "xml", "value": ""}, "invalid_value", "kind"),
        ({"kind": "regex"}, "missing_required_parameter", "value"),
        ({"kind": "regex", "value": ["a"]}, "invalid_type", "value"),
        ({"kind": "regex", "value": "a", "text": 5}, "invalid_type", "text"),
        ({"kind": "regex", "value": "a", "text": "a" * (checks.MAX_TEXT_BYTES + 1)}, "invalid_value", "text"),
        ({"kind": "regex", "value": "a", "more": 1}, "unsupported_parameter", "more"),
    ],
)
def test_a_bad_question_is_refused_by_the_field(ann: Page, body: Any, code: str, param: str) -> None:
    status, answer = ann("POST", "check", body)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, code, param)


def test_access_is_that_of_the_page(ann: Page) -> None:
    body = {"kind": "regex", "value": "a"}
    assert Page()("POST", "check", body)[0] == 401
    assert Page(ann.user, enforce_csrf_checks=True)("POST", "check", body)[0] == 403
    assert ann("GET", "check")[0] == 405


async def test_a_check_beyond_its_time_is_killed_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process at a time would have to end before the next begins."""
    monkeypatch.setattr(checks, "CHECK_S", 0.05)
    started = time.monotonic()
    ends = [checks.constraint_check(kind="regex", value="a", text=None) for _ in range(checks.MAX_AT_ONCE)]
    for failure in await asyncio.gather(*ends, return_exceptions=True):
        assert isinstance(failure, ApiError)
        assert (failure.code, failure.param) == ("invalid_value", "value")
        assert "takes longer than 0.05 s" in failure.message
    assert time.monotonic() - started < 60


async def test_checks_wait_for_a_place_and_are_told_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_places", asyncio.Semaphore(0))
    monkeypatch.setattr(checks, "CHECK_S", 0.01)
    with pytest.raises(ApiError) as refused:
        await checks.constraint_check(kind="regex", value="a", text=None)
    assert refused.value.code == "overloaded"


async def test_a_check_that_ends_its_process_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MODULE", "engine.structured.refusal_that_is_not_there")
    with pytest.raises(ApiError, match="ended the process"):
        await checks.constraint_check(kind="regex", value="a", text=None)


@pytest.mark.django_db(transaction=True)
async def test_an_asynchronous_page_may_ask_twice_at_once(project: Any) -> None:
    client = AsyncClient()
    await client.aforce_login(await database_sync_to_async(member)("eve"))
    body = {"kind": "choice", "value": ["a"], "text": "a"}
    asked = [client.post(API + "check", body, content_type="application/json") for _ in range(3)]
    assert [answer.json()["matches"] for answer in await asyncio.gather(*asked)] == [True] * 3
