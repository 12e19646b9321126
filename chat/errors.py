"""The failures of API routes: one table of codes with status and type, for all dialects.

Each dialect writes its own bodies. Errors of the engine become an `ApiError` here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.db import InterfaceError, OperationalError

from engine.api import EngineError, ErrorCode

MAX_PROBLEMS = 10
MAX_PROBLEM_CHARS = 1_000
MAX_MESSAGE_BYTES = 3_200
"""Of all problems together. Bodies of at most 16 KiB hold the message up to three times."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How a code reaches the client: HTTP status, `error.type`, and whether SDKs should repeat the request."""

    status: int
    type: str
    should_retry: bool | None = None


INVALID = ErrorKind(400, "invalid_request_error")
ERROR_KINDS = {
    "invalid_json": INVALID,
    "invalid_content_type": INVALID,
    "missing_required_parameter": INVALID,
    "invalid_type": INVALID,
    "invalid_value": INVALID,
    "unsupported_parameter": INVALID,
    "untrusted_chat_template": INVALID,
    "context_length_exceeded": INVALID,
    "invalid_media": INVALID,
    "invalid_host": INVALID,
    "invalid_api_key": ErrorKind(401, "invalid_request_error"),
    "signed_out": ErrorKind(401, "invalid_request_error", False),
    "insufficient_credits": ErrorKind(402, "insufficient_quota", False),
    "permission_denied": ErrorKind(403, "permission_error"),
    "model_not_found": ErrorKind(404, "invalid_request_error"),
    "not_found": ErrorKind(404, "invalid_request_error"),
    "not_resumable": ErrorKind(404, "invalid_request_error"),
    "method_not_allowed": ErrorKind(405, "invalid_request_error"),
    "inference_timeout": ErrorKind(408, "timeout_error", False),
    "request_id_in_use": ErrorKind(409, "invalid_request_error", False),
    "conflict": ErrorKind(409, "invalid_request_error", False),
    "model_not_loaded": ErrorKind(409, "invalid_request_error", False),
    "request_too_large": ErrorKind(413, "invalid_request_error"),
    "rate_limit_exceeded": ErrorKind(429, "rate_limit_error", True),
    "insufficient_quota": ErrorKind(429, "insufficient_quota", False),
    "headers_too_large": ErrorKind(431, "invalid_request_error"),
    "internal_error": ErrorKind(500, "server_error", False),
    "engine_error": ErrorKind(500, "server_error", False),
    "overloaded": ErrorKind(503, "server_error", True),
    "model_loading": ErrorKind(503, "server_error", True),
    "model_unloaded": ErrorKind(503, "server_error", True),
    "model_load_failed": ErrorKind(503, "server_error", False),
    "worker_lost": ErrorKind(503, "server_error", True),
}
STORE_AWAY = (OperationalError, InterfaceError)
"""What a database raises while it is away, full or locked. The same request may succeed later."""
STORE_AWAY_MESSAGE = "The server's database does not answer at the moment; please try again shortly."
INTERNAL_MESSAGE = "The server had an error while processing your request."


FieldNames = Callable[[str], str]
"""From the path of a field in the one request schema to the path that the client sent. Keeps other words."""


def names_unchanged(path: str) -> str:
    """Return `path`, for a dialect that sends the one request schema."""
    return path


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a request. `message` is a sentence; its first word is the field's path where it has one."""

    code: str
    message: str
    param: str | None = None

    def renamed(self, names: FieldNames) -> Problem:
        """Return the problem with the paths that the client sent."""
        path, space, rest = self.message.partition(" ")
        return Problem(self.code, names(path) + space + rest, None if self.param is None else names(self.param))


class ApiError(Exception):
    """One failure of one request.

    `param` is the dotted path of the field at fault. `limit` and `value` are the bound that was exceeded and what was
    sent. `limit_hit` names a limit or budget for the log. `retry_after_s` is sent as 1 to 60. `request_id` is set when
    the response is made.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        problems: Sequence[Problem] = (),
        limit: int | None = None,
        value: int | None = None,
        retry_after_s: float | None = None,
        headers: dict[str, str] | None = None,
        limit_hit: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.limit_hit = limit_hit
        self.message = message
        self.param = param
        self.problems = tuple(problems) or (Problem(code, message, param),)
        self.limit, self.value = limit, value
        self.retry_after_s = retry_after_s
        self.extra_headers = headers or {}
        self.request_id: str | None = None

    def rename_fields(self, names: FieldNames) -> None:
        """Put the paths that the client sent into message and `param`. Call it once, where the error leaves."""
        if names is names_unchanged:
            return
        self.problems = tuple(problem.renamed(names) for problem in self.problems)
        self.message, self.param = _joined(self.problems), self.problems[0].param
        self.args = (self.message,)

    @property
    def kind(self) -> ErrorKind:
        return ERROR_KINDS[self.code]

    @property
    def status(self) -> int:
        return self.kind.status

    def described(self) -> dict[str, str | None]:
        """Return the `error` object of OpenAI's shape."""
        return {"message": self.message, "type": self.kind.type, "param": self.param, "code": self.code}

    def headers(self) -> dict[str, str]:
        headers = dict(self.extra_headers)
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="lightcone"'
        retry_after_s = self.retry_after_s
        if retry_after_s is None and self.kind.should_retry:
            retry_after_s = 1.0
        if retry_after_s is not None:
            headers["Retry-After"] = str(min(60, max(1, -int(-retry_after_s // 1))))
        if self.kind.should_retry is not None:
            headers["x-should-retry"] = "true" if self.kind.should_retry else "false"
        return headers


def problems_error(problems: Sequence[Problem]) -> ApiError:
    """Join problems into one error: code and param of the first, and at most ten sentences of bounded length."""
    kept = [replace(problem, message=problem.message[:MAX_PROBLEM_CHARS]) for problem in problems[:MAX_PROBLEMS]]
    return ApiError(kept[0].code, _joined(kept), kept[0].param, problems=kept)


def _joined(problems: Sequence[Problem]) -> str:
    text = "; ".join(problem.message for problem in problems)
    return text.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore")


class Problems:
    """The problems of one request in the order in which they are found, at most `MAX_PROBLEMS`."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def refuse(self, path: str, message: str, code: str = "invalid_value") -> None:
        """Note that the value at `path` is refused. `message` continues the sentence that the path begins."""
        self._found.append(Problem(code, f"{path} {message}", path))

    @property
    def is_full(self) -> bool:
        return len(self._found) >= MAX_PROBLEMS

    def raise_any(self) -> None:
        if self._found:
            raise problems_error(self._found)


def engine_api_error(error: EngineError) -> ApiError:
    """Return the API's error for a failure of the engine. Internal codes become `internal_error`."""
    if error.code == ErrorCode.INTERNAL_ERROR or error.code not in ERROR_KINDS:
        code = "worker_lost" if error.code == ErrorCode.LOG_LOST else "internal_error"
        return ApiError(code, INTERNAL_MESSAGE)
    return ApiError(str(error.code), error.message, error.param, limit=error.limit, value=error.value)


def api_error(error: Exception) -> ApiError:
    """Return the API's error for any exception: a failure of the engine, a database that is away, or a defect."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineError):
        return engine_api_error(error)
    if isinstance(error, STORE_AWAY):
        return ApiError("overloaded", STORE_AWAY_MESSAGE)
    return ApiError("internal_error", INTERNAL_MESSAGE)
