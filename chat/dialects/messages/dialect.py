"""The Messages dialect as dialects/dialect.py describes it, and the counting of tokens, which is a message without the answer.

There is one object for each request, as errors carry its id and speak of the fields as they were sent.
"""

from __future__ import annotations

from typing import Any

import orjson
from rest_framework import serializers

from chat.dialects.dialect import AnswerHead, AnswerWriter, StreamWriter
from chat.dialects.messages import schema
from chat.dialects.messages.answer import MessageAnswer
from chat.dialects.messages.errors import error_body
from chat.dialects.messages.sent_names import SentNames
from chat.dialects.messages.stream import MessageStream
from chat.dialects.messages.translation import request_read
from chat.errors import ApiError
from engine.api import EngineError, Event, Task


class Messages:
    """`names` is filled by `read`. Errors are reworded once, on their way out (views.py), so `reword` leaves them as they are."""

    name = "messages"
    key_header = "x-api-key"
    schema: serializers.Serializer = schema.MESSAGES

    def __init__(self, request_id: str | None = None) -> None:
        self.request_id = request_id
        self.names = SentNames()
        self.asks_reasons = False

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        self.asks_reasons = isinstance(body.get("diagnostics"), dict)
        return request_read(self.schema, body, self.names)

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        return error

    def answer(self, head: AnswerHead) -> AnswerWriter:
        return MessageAnswer(head, asks_reasons=self.asks_reasons)

    def stream(self, head: AnswerHead) -> StreamWriter:
        return MessageStream(head, self.names, asks_reasons=self.asks_reasons)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error_body(error, self.request_id)


class CountTokens(Messages):
    """The prompt is rendered and tokenised like that of a message with the same fields, and no more."""

    schema = schema.COUNT_TOKENS

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        return {**request_read(self.schema, body, self.names), "task": Task.READ}

    def answer(self, head: AnswerHead) -> AnswerWriter:
        return TokenCount(head)


class TokenCount:
    """What is known once the request is admitted."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head

    def feed(self, event: Event) -> None:
        """Nothing is generated."""

    def body(self) -> bytes:
        return orjson.dumps({"input_tokens": self.head.num_prompt_tokens})


MESSAGES = Messages()
"""For errors that no view has shaped."""
