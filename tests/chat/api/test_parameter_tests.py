"""Each request field has a test of its effect, marked under tests/contract/parameters."""

from __future__ import annotations

import ast
from pathlib import Path

from chat.api.request.schema import ChatCompletionRequest

TESTS = Path(__file__).resolve().parents[2] / "contract" / "parameters"


def marked_fields() -> set[str]:
    """Return the names in every `pytest.mark.parameter("…", …)`, read from the source.

    Collecting those tests would need a served model.
    """
    calls = [
        node
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    marks = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "parameter"]
    return {
        name.value
        for mark in marks
        for name in mark.args
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }


def test_every_field_has_a_test_of_its_effect():
    assert set(ChatCompletionRequest().fields) - marked_fields() == set()


def test_every_marked_field_exists():
    assert marked_fields() - set(ChatCompletionRequest().fields) == set()
