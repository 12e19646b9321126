"""The Responses API as dialect.py describes a dialect."""

from __future__ import annotations

from typing import Any

from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.refusals import refusal_renamed
from chat.api.responses.answer import ResponseAnswer
from chat.api.responses.schema import response_check, sent_name
from chat.api.responses.stream import ResponseStream
from engine.api import EngineError, Task


class Responses(OpenAIErrorFormat):
    name = "responses"

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return response_check(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_renamed(error, lambda path: sent_name(path, values["names"], values["tool_paths"]))

    def answer(self, head: AnswerHead) -> ResponseAnswer:
        return ResponseAnswer(head)

    def stream(self, head: AnswerHead) -> ResponseStream:
        return ResponseStream(head)


class InputTokens(Responses):
    """Requests that only want to know how many tokens their input is."""

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**response_check(body), "task": Task.READ, "stream": False, "store": False}


RESPONSES = Responses()
INPUT_TOKENS = InputTokens()
