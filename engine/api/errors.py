"""The tree of errors. `code` is for programs, `message` for people, `param` names the request field.

    EngineError
    ├── RequestError        the request is at fault: the web answers 4xx
    ├── EngineUnavailable   the engine cannot take or finish the request now: 503
    ├── EngineFailure       our fault: 500
    └── ModelLoadError      a model file cannot be served; raised at start only

`chat` maps codes to HTTP statuses, once.
"""

from __future__ import annotations

from enum import StrEnum

MAX_LOAD_ERROR = 2000
"""Characters of a ModelLoadError."""


class ErrorCode(StrEnum):
    """Stable codes, which reach clients as `error.code`."""

    INVALID_VALUE = "invalid_value"
    INVALID_TYPE = "invalid_type"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    INFERENCE_TIMEOUT = "inference_timeout"
    OVERLOADED = "overloaded"
    MODEL_LOADING = "model_loading"
    MODEL_UNLOADED = "model_unloaded"
    WORKER_LOST = "worker_lost"
    LOG_LOST = "log_lost"
    ENGINE_ERROR = "engine_error"
    INTERNAL_ERROR = "internal_error"
    MODEL_LOAD_FAILED = "model_load_failed"


class EngineError(Exception):
    """Any failure that the engine reports. `message` names the mistake, the limit and the remedy.

    A message about one field begins with `param`, so that a client's own name can take its place. `limit` and `value`:
    the bound that was exceeded and what was sent, where a caller may word them anew.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        param: str | None = None,
        *,
        limit: int | None = None,
        value: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.limit = limit
        self.value = value


class RequestError(EngineError):
    """The request cannot be served as it is."""


class EngineUnavailable(EngineError):
    """The engine is full, loading, draining or lost; the same request may succeed later."""


class EngineFailure(EngineError):
    """A defect or a device failure; the message is fixed text without details."""


class ModelLoadError(EngineError):
    """A model file or folder is unreadable, truncated, hostile or of an unknown architecture.

    The message is one line of printable characters, however long the names of the file are that it quotes.
    """

    def __init__(self, message: str) -> None:
        cut = message if len(message) <= MAX_LOAD_ERROR else f"{message[:MAX_LOAD_ERROR]}…"
        line = "".join(character if character.isprintable() else " " for character in cut)
        super().__init__(ErrorCode.MODEL_LOAD_FAILED, line)
