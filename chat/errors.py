"""What can go wrong on an API route, as a status, two words and a sentence; the one table for all dialects.

An `ApiError` knows nothing of body shapes: each dialect writes its own (`api/*/errors.py`). Errors of the engine become
one here, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from engine.api import EngineError, ErrorCode

MAX_PROBLEMS = 10
MAX_PROBLEM_CHARS = 1_000
MAX_MESSAGE_BYTES = 3_200
"""Of all problems together: bodies hold the message up to three times, where 200 echoed characters of each problem may take two bytes, and
are at most 16 KiB."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a code reaches the client: HTTP status, `error.type`, and whether SDKs should repeat the request."""

    status: int
    type: str
    should_retry: bool | None = None


INVALID = Answer(400, "invalid_request_error")
ANSWERS = {
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
    "invalid_api_key": Answer(401, "invalid_request_error"),
    "insufficient_credits": Answer(402, "insufficient_quota", False),
    "permission_denied": Answer(403, "permission_error"),
    "model_not_found": Answer(404, "invalid_request_error"),
    "not_found": Answer(404, "invalid_request_error"),
    "not_resumable": Answer(404, "invalid_request_error"),
    "method_not_allowed": Answer(405, "invalid_request_error"),
    "inference_timeout": Answer(408, "timeout_error", False),
    "request_id_in_use": Answer(409, "invalid_request_error", False),
    "request_too_large": Answer(413, "invalid_request_error"),
    "rate_limit_exceeded": Answer(429, "rate_limit_error", True),
    "insufficient_quota": Answer(429, "insufficient_quota", False),
    "headers_too_large": Answer(431, "invalid_request_error"),
    "internal_error": Answer(500, "server_error", False),
    "engine_error": Answer(500, "server_error", False),
    "overloaded": Answer(503, "server_error", True),
    "model_loading": Answer(503, "server_error", True),
    "model_unloaded": Answer(503, "server_error", True),
    "model_load_failed": Answer(503, "server_error", False),
    "worker_lost": Answer(503, "server_error", True),
}
STORE_AWAY = (OperationalError, InterfaceError)
"""What a database raises that is away, full or locked; the same request may succeed later."""
STORE_AWAY_MESSAGE = "The server's database does not answer at the moment; please try again shortly."
INTERNAL_MESSAGE = "The server had an error while processing your request."


class ApiError(Exception):
    """One failure of one request. `param` is the dotted path of the field at fault; `retry_after_s` is sent as 1..60.

    `request_id` is filled in where the answer is made, for dialects whose bodies hold it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        *,
        retry_after_s: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.extra_headers = headers or {}
        self.request_id: str | None = None

    @property
    def answer(self) -> Answer:
        return ANSWERS[self.code]

    @property
    def status(self) -> int:
        return self.answer.status

    def described(self) -> dict[str, str | None]:
        """The `error` object that every dialect has in its body."""
        return {"message": self.message, "type": self.answer.type, "param": self.param, "code": self.code}

    def headers(self) -> dict[str, str]:
        """The response headers that go with the status."""
        headers = dict(self.extra_headers)
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="lightcone"'
        retry_after_s = self.retry_after_s
        if (
            retry_after_s is None
            and (self.status == 503 or self.code == "rate_limit_exceeded")
            and self.answer.should_retry
        ):
            retry_after_s = 1.0
        if retry_after_s is not None:
            headers["Retry-After"] = str(min(60, max(1, -int(-retry_after_s // 1))))
        if self.answer.should_retry is not None:
            headers["x-should-retry"] = "true" if self.answer.should_retry else "false"
        return headers


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a request; `message` is a sentence that begins with the field's name."""

    code: str
    message: str
    param: str | None = None


def problems_error(problems: list[Problem]) -> ApiError:
    """All problems as one error: code and param are the first one's, at most ten sentences of bounded length."""
    sentences = [problem.message[:MAX_PROBLEM_CHARS] for problem in problems[:MAX_PROBLEMS]]
    message = "; ".join(sentences).encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    return ApiError(problems[0].code, message, problems[0].param)


def engine_api_error(error: EngineError) -> ApiError:
    """The engine's failure in the words of the API; codes that are ours alone become `internal_error`."""
    if error.code == ErrorCode.INTERNAL_ERROR or error.code not in ANSWERS:
        code = "worker_lost" if error.code == ErrorCode.LOG_LOST else "internal_error"
        return ApiError(code, INTERNAL_MESSAGE)
    return ApiError(str(error.code), error.message, error.param)


def unforeseen_error(error: Exception, headers: dict[str, str] | None = None) -> ApiError:
    """An exception that no step has turned into an answer: a database that is away, or a defect of ours."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, STORE_AWAY):
        return ApiError("overloaded", STORE_AWAY_MESSAGE, headers=headers)
    return ApiError("internal_error", INTERNAL_MESSAGE, headers=headers)
