"""The Lightcone dialect as dialect.py describes it. The schema of requests is this dialect's own."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.refusals import refusal_reworded
from chat.api.request.schema import request_check
from engine.api import EngineError


class Lightcone(OpenAIErrorFormat):
    name = "lightcone"

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return request_check(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_reworded(error, values)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head)


LIGHTCONE = Lightcone()
