"""The Scale dialect as dialect.py of the folder above describes it."""

from __future__ import annotations

from typing import Any

from chat.api.chat_format.answer import ChatAnswer
from chat.api.chat_format.framing import NAMED
from chat.api.chat_format.stream import ChatStream
from chat.api.dialect import AnswerHead
from chat.api.request.refusals import refusal_renamed, refusal_reworded
from chat.api.scale.door import ScaleDoor
from chat.api.scale.read import scale_values
from chat.api.scale.text_read import scale_text_values, text_reworded
from engine.api import EngineError


class Scale(ScaleDoor):
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return scale_values(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return refusal_renamed(refusal_reworded(error, values), values["names"].sent)

    def answer(self, head: AnswerHead) -> ChatAnswer:
        return ChatAnswer(head)

    def stream(self, head: AnswerHead) -> ChatStream:
        return ChatStream(head, NAMED)


class ScaleTexts(ScaleDoor):
    """The prompt form, as text_completion.py of the folder above wants it."""

    framing = NAMED

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return scale_text_values(body)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return text_reworded(error, values)


SCALE = Scale()
SCALE_TEXTS = ScaleTexts()
