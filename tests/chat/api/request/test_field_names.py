"""An error names the field that the client sent."""

import pytest

from chat.api.request.parse import request_parse
from chat.errors import ApiError, Problem, names_unchanged, problems_error
from tests.chat.api.request.bad_values import MESSAGES, tool


def renamed(error: ApiError, **fields) -> ApiError:
    error.rename_fields(request_parse({"messages": MESSAGES, **fields}).field_names)
    return error


@pytest.mark.parametrize(
    ("fields", "param", "sent"),
    [
        ({"max_tokens": 5}, "max_tokens", "max_tokens"),
        ({"max_completion_tokens": 5}, "max_tokens", "max_completion_tokens"),
        ({"tools": [tool()]}, "tools.0.function.parameters", "tools.0.function.parameters"),
        ({"functions": [{"name": "f"}]}, "tools.0.function.parameters.x", "functions.0.parameters.x"),
        ({"functions": [{"name": "f"}]}, "tools", "functions"),
        ({"functions": [{"name": "f"}]}, "tool_choice", "function_call"),
        ({"functions": [{"name": "f"}]}, "messages", "messages"),
    ],
)
def test_an_error_uses_the_sent_field_name(fields, param, sent):
    error = renamed(ApiError("invalid_value", f"{param} must be better", param), **fields)
    assert (error.param, error.message) == (sent, f"{sent} must be better")
    assert str(error) == error.message


def test_every_problem_uses_its_own_field_name():
    problems = [
        Problem("invalid_value", "tools.0.function.parameters is wrong", "tools.0.function.parameters"),
        Problem("invalid_value", "tools.1.function.name too", "tools.1.function.name"),
        Problem("invalid_value", "the tools of others are right", None),
    ]
    error = renamed(problems_error(problems), functions=[{"name": "f"}, {"name": "g"}])
    assert error.message == "functions.0.parameters is wrong; functions.1.name too; the tools of others are right"
    assert error.param == "functions.0.parameters"


def test_an_error_without_a_field_is_unchanged():
    error = renamed(ApiError("invalid_value", "The server keeps no tools.", None), functions=[{"name": "f"}])
    assert (error.message, error.param) == ("The server keeps no tools.", None)


def test_an_error_stays_bounded_when_it_is_renamed():
    error = problems_error([Problem("invalid_value", f"n {'x' * 5_000}", "n")] * 20)
    bound = len(error.message.encode())
    error.rename_fields(names_unchanged)
    assert len(error.message.encode()) == bound <= 3_200
