"""OpenAI's shape for chat completions, whose requests are the one request schema, and for text completions."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import PLAIN, ChatStream
from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.parse import request_parse
from chat.api.request.parsed import ParsedRequest
from chat.api.request.text_schema import TextRequest, text_parse


class Lightcone(OpenAIErrorFormat):
    name = "lightcone"
    framing = PLAIN

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        return request_parse(body)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head)


class PromptFormat(OpenAIErrorFormat):
    """The part that all routes of raw prompts share. A route is a subclass with a `parse` of its own."""

    name = "prompts"


class TextCompletions(PromptFormat):
    framing = PLAIN

    def parse(self, body: dict[str, Any]) -> TextRequest:
        return text_parse(body)


LIGHTCONE = Lightcone()
TEXT_COMPLETIONS = TextCompletions()
