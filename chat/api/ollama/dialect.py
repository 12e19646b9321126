"""Ollama's shape for chats, prompts and embeddings, and for errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chat.api.dialect import AnswerHead, AnswerWriter, StreamWriter
from chat.api.ollama.lines import Content, LineStream, WholeAnswer, chat_content, generated_content
from chat.api.ollama.translation import (
    ParsedAnswer,
    ParsedInputs,
    chat_parse,
    embed_parse,
    embeddings_parse,
    generate_parse,
)
from chat.errors import ApiError

MODEL_UNKNOWN = "model_not_found"


class OllamaFormat:
    """The part that all routes share. Errors are one sentence."""

    name = "ollama"
    key_header = "authorization"
    header_limits: Mapping[str, int] = {}

    def error_body(self, error: ApiError) -> dict[str, Any]:
        # NOTE: clients look for the first words, to offer a pull.
        begin = "model not found: " if error.code == MODEL_UNKNOWN else ""
        return {"error": f"{begin}{error.message}", "code": error.code, "param": error.param}


class AnswerDialect(OllamaFormat):
    """A route that answers with a text. `content` says which members of an object hold it."""

    framing = None
    content: Content

    def answer(self, head: AnswerHead) -> AnswerWriter:
        return WholeAnswer(head, type(self).content)

    def stream(self, head: AnswerHead) -> StreamWriter:
        return LineStream(head, type(self).content)


class Chat(AnswerDialect):
    content = staticmethod(chat_content)

    def parse(self, body: dict[str, Any]) -> ParsedAnswer:
        return chat_parse(body)


class Generate(AnswerDialect):
    content = staticmethod(generated_content)

    def parse(self, body: dict[str, Any]) -> ParsedAnswer:
        return generate_parse(body)


class Embed(OllamaFormat):
    def parse(self, body: dict[str, Any]) -> ParsedInputs:
        return embed_parse(body)


class Embeddings(OllamaFormat):
    def parse(self, body: dict[str, Any]) -> ParsedInputs:
        return embeddings_parse(body)


OLLAMA_FORMAT = OllamaFormat()
CHAT, GENERATE = Chat(), Generate()
EMBED, EMBEDDINGS = Embed(), Embeddings()
