"""OpenAI's shape for chat completions, whose requests are the one request schema."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.parse import request_parse
from chat.api.request.parsed import ParsedRequest


class Lightcone(OpenAIErrorFormat):
    name = "lightcone"

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        return request_parse(body)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head)


LIGHTCONE = Lightcone()
