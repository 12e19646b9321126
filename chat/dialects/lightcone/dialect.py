"""The Lightcone dialect as dialect.py describes it. Requests need no translation: the schema is this dialect's own."""

from __future__ import annotations

from typing import Any

from chat.dialects.dialect import AnswerHead
from chat.dialects.lightcone.answer import ChatAnswer
from chat.dialects.lightcone.errors import error_body
from chat.dialects.lightcone.stream import ChatStream
from chat.errors import ApiError


class Lightcone:
    name = "lightcone"
    key_header = "authorization"

    def translate(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error_body(error)


LIGHTCONE = Lightcone()
