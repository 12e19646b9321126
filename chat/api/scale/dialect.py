"""The Scale dialect as dialect.py of the folder above describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.framing import NAMED
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead, OpenAIErrorFormat
from chat.api.request.refusals import refusal_renamed, refusal_reworded
from chat.api.scale.read import scale_values
from chat.api.scale.text_read import scale_text_values, text_reworded
from chat.errors import ApiError
from engine.api import EngineError


class ScaleFormat(OpenAIErrorFormat):
    name = "scale"
    key_header = "x-api-key"
    header_limits: Mapping[str, int] = {"x-selected-account-id": 128}
    """The account opens nothing."""

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return {**super().error_body(error), "detail": error.message}


class Scale(ScaleFormat):
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return scale_values(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_renamed(refusal_reworded(error, values), values["names"].sent)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head, NAMED)


class ScaleTexts(ScaleFormat):
    """The prompt form, as text_completion.py of the folder above wants it."""

    framing = NAMED

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return scale_text_values(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return text_reworded(error, values)


SCALE = Scale()
SCALE_TEXTS = ScaleTexts()
