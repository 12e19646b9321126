"""What a dialect is: how one API shape reads requests and writes answers. A folder beside this file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chat.errors import ApiError
from engine.api import EngineError, Event


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What is known of an answer before its first token, for the dialect to write."""

    request_id: str
    created: int
    """Unix seconds."""
    model: str
    fingerprint: str
    role: str
    num_choices: int
    has_logprobs: bool
    include_usage: bool
    continuous_usage: bool
    service_tier: str | None
    num_prompt_tokens: int
    prompt_ids: tuple[int, ...] | None = None
    """Only if the request asks for them, as `prompt_text`."""
    prompt_text: str | None = None
    returns_token_ids: bool = False
    names_tokens_by_id: bool = False
    """Write `token_id:N` instead of the text of tokens in log-probabilities."""
    includes_reasoning: bool = True
    echo: str = ""
    """A text that each choice begins with."""
    stream_interval: int = 1
    """Tokens per chunk."""
    answers_function_call: bool = False
    """Write calls in the deprecated form, one at most."""
    is_call_forced: bool = False
    """An answer without text has no content then, even if it was cut before its first call."""
    temperature: float = 1.0
    """As used, as `top_p`."""
    top_p: float = 1.0
    echo_fields: Mapping[str, Any] = field(default_factory=dict)
    """What the dialect\'s answers repeat of the request beyond that (JSON)."""


class AnswerWriter(Protocol):
    """Collects events; `body` is the JSON answer after the last."""

    def feed(self, event: Event) -> None: ...
    def body(self) -> bytes: ...


class StreamWriter(Protocol):
    """Turns events into frames; b"" where nothing is due. The first event is the admission. `error` ends a stream that cannot go on."""

    def feed(self, event: Event) -> bytes: ...
    def error(self, error: ApiError) -> bytes: ...


class ErrorFormat(Protocol):
    """What any route of a dialect needs: where the key is, and how errors look."""

    name: str
    key_header: str
    """The header of the dialect's clients for the key. It wins if both are present."""
    header_limits: Mapping[str, int]
    """The most characters of headers that are accepted and ignored, by name in lower case."""

    def error_body(self, error: ApiError) -> dict[str, Any]: ...


class RequestReader(ErrorFormat, Protocol):
    """A dialect's side of a route whose bodies are read."""

    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the values of `request.schema.request_check`, and those that a dialect adds (`BEYOND`). Raises ApiError."""
        ...

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError:
        """Return a refusal of a later step in the names of the fields that were sent."""
        ...


class Dialect(RequestReader, Protocol):
    """How one API shape reads requests and writes answers."""

    def answer(self, head: AnswerHead) -> AnswerWriter: ...
    def stream(self, head: AnswerHead) -> StreamWriter: ...


class OpenAIErrorFormat:
    """The error format of all dialects of OpenAI's shape."""

    key_header = "authorization"
    header_limits: Mapping[str, int] = {}

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """The root-level message is what the TypeScript client shows."""
        return {"error": error.described(), "message": error.message}
