"""Scale's shape for chat completions, and for text completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.stream import NAMED, ChatStream
from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.parsed import ParsedRequest
from chat.api.request.text_schema import TextRequest
from chat.api.scale.read import scale_parse
from chat.api.scale.text_read import scale_text_parse
from chat.errors import ApiError


class ScaleFormat(OpenAIErrorFormat):
    name = "scale"
    key_header = "x-api-key"
    header_limits: Mapping[str, int] = {"x-selected-account-id": 128}
    """The account opens nothing."""

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return {**super().error_body(error), "detail": error.message}


class Scale(ScaleFormat):
    framing = NAMED

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        return scale_parse(body)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head, NAMED)


class ScaleTexts(ScaleFormat):
    framing = NAMED

    def parse(self, body: dict[str, Any]) -> TextRequest:
        return scale_text_parse(body)


SCALE = Scale()
SCALE_TEXTS = ScaleTexts()
