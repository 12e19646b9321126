"""Each field of a request has a test of what it does to an answer: those under tests/contract/parameters say which with
a marker.
"""

from __future__ import annotations

import ast
from pathlib import Path

from chat.api.request.schema import ChatCompletionRequest

TESTS = Path(__file__).resolve().parents[2] / "contract" / "parameters"


def marked_fields() -> set[str]:
    """The names in every `pytest.mark.parameter("…", …)`; read from the source, as those tests need a served model to
    be collected for.
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
