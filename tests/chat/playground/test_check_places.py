"""Of a text that a constraint does not admit, the server tells how much of it can begin an answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chat.conversations.conftest import Page

pytestmark = pytest.mark.django_db

SIZE = 'root ::= [0-9]+ ("px" | "em")'
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("kind", "value", "text", "num_fitting"),
    [
        ("regex", "[0-9]+(px|em)", "12em", 4),
        ("regex", "[0-9]+(px|em)", "12", 2),
        ("regex", "[0-9]+(px|em)", "12pt", 3),
        ("regex", "[0-9]+(px|em)", "12em ", 4),
        ("regex", "[0-9]+(px|em)", "wide", 0),
        ("regex", "[0-9]+(px|em)", "", 0),
        ("grammar", SIZE, "12pt", 3),
        ("grammar", 'start: "é"+', "ééè", 2),  # its first byte would fit
        ("grammar", 'start: "😀"+', "😀😀x", 2),
        ("choice", ["left", "right"], "lift", 1),
        ("json_schema", POINT, '{"x": 1, "y": 2}', 7),
        ("json_schema", POINT, '{"x": 1', 7),
    ],
)
def test_a_text_fits_up_to_a_character(ann: Page, kind: str, value: Any, text: str, num_fitting: int) -> None:
    status, answer = ann("POST", "check", {"kind": kind, "value": value, "text": text})
    assert (status, answer["num_fitting"]) == (200, num_fitting)


@pytest.mark.parametrize("body", [{"value": "a", "text": None}, {"value": "(a", "text": "a"}])
def test_where_nothing_is_compared_nothing_is_told(ann: Page, body: dict[str, Any]) -> None:
    assert ann("POST", "check", {"kind": "regex", **body})[1]["num_fitting"] is None
