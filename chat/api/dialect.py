"""A dialect: how one API shape reads requests and writes answers, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, TypeVar

from chat.api.request.parsed import ParsedRequest
from chat.errors import ApiError
from engine.api import Admitted, Event

P_co = TypeVar("P_co", bound=ParsedRequest, covariant=True)
RENAMED_FIELDS = {"told": "echo_fields"}
"""Fields of stored heads whose names have changed."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The facts of an answer that are known before its first token, for the dialect to write."""

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
    """As used; so is `top_p`."""
    top_p: float = 1.0
    transcription: Mapping[str, Any] = field(default_factory=dict)
    """What writing down the sound of the messages took, if they had some (JSON)."""
    echo_fields: Mapping[str, Any] = field(default_factory=dict)
    """The further fields of the request that the dialect's answers repeat (JSON)."""

    def admitted(self, admitted: Admitted) -> AnswerHead:
        return replace(
            self,
            num_prompt_tokens=admitted.num_prompt_tokens,
            prompt_ids=admitted.prompt_ids,
            prompt_text=admitted.prompt_text,
        )

    def dump(self) -> dict[str, Any]:
        """Return a head before its admission as JSON."""
        return asdict(self)

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> AnswerHead:
        """Return the head that `dump` wrote, also in another release: unknown names are dropped."""
        renamed = {RENAMED_FIELDS.get(name, name): value for name, value in plain.items()}
        return cls(**{name: value for name, value in renamed.items() if name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class DialectEntry:
    """A dialect in the registry. Modules and objects are named, not imported, so that a process loads what it uses.

    ECHO = DialectEntry(urls=("echo.urls",), error_format="echo.dialect:ECHO_FORMAT", path_prefixes=("/v9",),
                        segments=("v9",), counted_routes=("/v9/echo",), described_in=("echo.openapi",))
    """

    urls: tuple[str, ...]
    """Modules with its `urlpatterns`."""
    error_format: str
    """`module:NAME` of the object that writes its errors."""
    path_prefixes: tuple[str, ...]
    """Paths below these have its error shape. Empty: those of no other dialect."""
    segments: tuple[str, ...]
    """The first segments of its paths. Requests below them never reach pages."""
    counted_routes: tuple[str, ...] = ()
    described_in: tuple[str, ...] = ()
    """Modules that describe its routes for the OpenAPI document (chat/api/openapi/describe.py)."""
    batch_endpoints: Mapping[str, str] = field(default_factory=dict)
    """The module with the `urlpatterns` of each endpoint that lines of batches may ask for."""
    stored_endings: Mapping[str, str] = field(default_factory=dict)
    """`module:function` that ends a stored answer whose run went on alone, by kind of answer."""


@dataclass(frozen=True, slots=True)
class Framing:
    """The frames of a dialect: `end` is the last one, also after an error; `error` returns that of an error."""

    name: str
    end: bytes
    error: Callable[[ApiError], bytes]


class AnswerWriter(Protocol):
    """Collects events; `body` is the JSON answer after the last."""

    def feed(self, event: Event) -> None: ...
    def body(self) -> bytes: ...


class StreamWriter(Protocol):
    """Turns events into frames, b"" if none is due; the first is the admission. `error` ends a broken stream."""

    def feed(self, event: Event) -> bytes: ...
    def error(self, error: ApiError) -> bytes: ...


class ErrorFormat(Protocol):
    """The part of a dialect that every route needs: where the key is, and how errors look."""

    name: str
    key_header: str
    """The header of the dialect's clients for the key. It wins if both are present."""
    header_limits: Mapping[str, int]
    """The most characters of headers that are accepted and ignored, by name in lower case."""

    def error_body(self, error: ApiError) -> dict[str, Any]: ...


class RequestReader(ErrorFormat, Protocol[P_co]):
    """A dialect's side of a route whose bodies are read."""

    def parse(self, body: dict[str, Any]) -> P_co:
        """Check the body and return the typed request. Raises ApiError in the client's field names."""
        ...


class AnswerFormat(ErrorFormat, Protocol):
    """A dialect's side of a route that answers one run."""

    def answer(self, head: AnswerHead) -> AnswerWriter: ...
    def stream(self, head: AnswerHead) -> StreamWriter: ...


class Dialect(RequestReader[P_co], AnswerFormat, Protocol[P_co]):
    """One API shape for chat completions."""

    @property
    def framing(self) -> Framing | None:
        """The frames of its streams if a broken one can be resumed."""


class OpenAIErrorFormat:
    """The error format of all dialects of OpenAI's shape."""

    key_header = "authorization"
    header_limits: Mapping[str, int] = {}

    def error_body(self, error: ApiError) -> dict[str, Any]:
        """Return the body. The TypeScript client shows the message at its root."""
        return {"error": error.described(), "message": error.message}
