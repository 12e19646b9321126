"""OpenAI's shape for responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.responses.answer import ResponseAnswer
from chat.api.responses.schema import ParsedResponse, response_parse
from chat.api.responses.stream import ResponseStream
from engine.api import Task


class Responses(OpenAIErrorFormat):
    name = "responses"

    def parse(self, body: dict[str, Any]) -> ParsedResponse:
        return response_parse(body)

    def answer(self, head: AnswerHead) -> ResponseAnswer:
        return ResponseAnswer(head)

    def stream(self, head: AnswerHead) -> ResponseStream:
        return ResponseStream(head)


class InputTokens(Responses):
    def parse(self, body: dict[str, Any]) -> ParsedResponse:
        parsed = response_parse(body)
        return replace(
            parsed,
            generation=replace(parsed.generation, task=Task.READ),
            response=replace(parsed.response, stream=False),
            delivery=replace(parsed.delivery, store=False),
        )


RESPONSES = Responses()
INPUT_TOKENS = InputTokens()
