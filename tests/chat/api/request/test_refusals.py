"""A refusal of the engine names the field that the client sent."""

import pytest

from chat.api.request.refusals import refusal_reworded
from chat.api.request.schema import request_check
from engine.api import ErrorCode, RequestError
from tests.chat.api.request.bad_values import MESSAGES, tool


@pytest.mark.parametrize(
    ("fields", "param", "told"),
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
def test_the_name_that_was_sent_is_told(fields, param, told):
    values = request_check({"messages": MESSAGES, **fields})
    error = refusal_reworded(RequestError(ErrorCode.INVALID_VALUE, f"{param} must be better", param), values)
    assert (error.param, error.message) == (told, f"{told} must be better")
    assert isinstance(error, RequestError)


def test_every_sentence_has_its_own_name():
    values = request_check({"messages": MESSAGES, "functions": [{"name": "f"}, {"name": "g"}]})
    message = "tools.0.function.parameters is wrong; tools.1.function.name too; the tools of others are right"
    told = refusal_reworded(RequestError(ErrorCode.INVALID_VALUE, message, "tools.0.function.parameters"), values)
    assert told.message == "functions.0.parameters is wrong; functions.1.name too; the tools of others are right"


def test_what_names_no_field_stays():
    error = RequestError(ErrorCode.INVALID_VALUE, "max_tokens", None)
    assert refusal_reworded(error, {}) is error
