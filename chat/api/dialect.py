"""What a dialect is: how one API shape reads requests and writes answers. A folder beside this file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from chat.errors import ApiError
from engine.api import EngineError, Event


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What is known of an answer before its first token, for the dialect to write.

    `created`: unix seconds. `prompt_ids`, `prompt_text`: only where asked for. `echo`: text that each choice begins with.
    `names_tokens_by_id`: `token_id:N` stands for the text of tokens in log-probabilities. `stream_interval`: tokens per chunk.
    `answers_function_call`: calls go out in the deprecated form, one at most. `is_call_forced`: an answer
    without text has no content, even if it was cut before its first call. `temperature`, `top_p`: as used. `told`: what the dialect's
    answers tell of the request beyond that (JSON).
    """

    request_id: str
    created: int
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
    prompt_text: str | None = None
    returns_token_ids: bool = False
    names_tokens_by_id: bool = False
    includes_reasoning: bool = True
    echo: str = ""
    stream_interval: int = 1
    answers_function_call: bool = False
    is_call_forced: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    told: Mapping[str, Any] = field(default_factory=dict)


class AnswerWriter(Protocol):
    """Collects events; `body` is the JSON answer after the last."""

    def feed(self, event: Event) -> None: ...
    def body(self) -> bytes: ...


class StreamWriter(Protocol):
    """Turns events into frames; b"" where nothing is due. The first event is the admission. `error` ends a stream that cannot go on."""

    def feed(self, event: Event) -> bytes: ...
    def error(self, error: ApiError) -> bytes: ...


class Door(Protocol):
    """What any route of a dialect needs. `key_header`: where its clients put the key. `header_limits`: headers that are accepted and change
    nothing, in lower case, with the most characters they may have.
    """

    name: str
    key_header: str
    header_limits: Mapping[str, int]

    def error_body(self, error: ApiError) -> dict[str, Any]: ...


class ReadingDoor(Door, Protocol):
    """What a route needs whose bodies are read.

    `read`: the values of `request.schema.request_check`, in which a dialect may fill in what that schema has no field for (`BEYOND`);
    raises ApiError.
    """

    def read(self, body: dict[str, Any]) -> dict[str, Any]: ...


class RewordingDoor(ReadingDoor, Protocol):
    """`reword`: a refusal of the engine, or of the steps behind `read`, in the names of the fields that were sent."""

    def reword(self, error: EngineError, values: dict[str, Any]) -> EngineError: ...


class Dialect(RewordingDoor, Protocol):
    """How one API shape reads requests and writes answers."""

    def answer(self, head: AnswerHead) -> AnswerWriter: ...
    def stream(self, head: AnswerHead) -> StreamWriter: ...
