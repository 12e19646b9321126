"""Anthropic's shape for messages, and for the counting of tokens, which is a message without the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
from rest_framework import serializers

from chat.api.anthropic import schema
from chat.api.anthropic.answer import MessageAnswer
from chat.api.anthropic.errors import error_body
from chat.api.anthropic.stream import MessageStream
from chat.api.anthropic.translation import message_parse
from chat.api.dialect import AnswerHead, AnswerWriter, StreamWriter
from chat.api.request.parsed import ParsedRequest
from chat.errors import ApiError
from engine.api import Event, Task


class Messages:
    name = "messages"
    key_header = "x-api-key"
    header_limits: Mapping[str, int] = {}
    framing = None
    schema: serializers.Serializer = schema.MESSAGES

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        return message_parse(self.schema, body)

    def answer(self, head: AnswerHead) -> AnswerWriter:
        return MessageAnswer(head)

    def stream(self, head: AnswerHead) -> StreamWriter:
        return MessageStream(head)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error_body(error, error.request_id)


class CountTokens(Messages):
    """A dialect for counts: the prompt of a message is rendered and tokenised, and no more."""

    schema = schema.COUNT_TOKENS

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        parsed = message_parse(self.schema, body)
        return replace(parsed, generation=replace(parsed.generation, task=Task.READ))

    def answer(self, head: AnswerHead) -> AnswerWriter:
        return TokenCount(head)


class TokenCount:
    """The answer to a count, which is known once the request is admitted."""

    def __init__(self, head: AnswerHead) -> None:
        self.head = head

    def feed(self, event: Event) -> None:
        """Do nothing: no token is generated."""

    def body(self) -> bytes:
        return orjson.dumps({"input_tokens": self.head.num_prompt_tokens})


MESSAGES = Messages()
COUNT_TOKENS = CountTokens()
