"""What a line of an input file must be: one request, with an id of its own. Knows neither the model nor the fields of the request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.conf import settings

from chat.batching.line_splitter import LineSplitter
from chat.dialects.request.fields import echo
from chat.dialects.request.strict_json import json_object_read
from chat.errors import ApiError
from chat.services.batches import MAX_ERRORS

MAX_CUSTOM_ID_CHARS = 512
NOT_IN_BATCHES = ("stream", "background")


class LineRefused(Exception):
    """A line that is no request: a code, a sentence, and the field at fault."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


@dataclass(frozen=True, slots=True)
class InputLine:
    """One request. `body`: as JSON again, for the route that answers it; `model`: the name that it asks for."""

    number: int
    custom_id: str
    body: bytes
    model: str


def line_read(number: int, text: bytes, endpoint: str) -> InputLine:
    """Raises LineRefused."""
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    if len(text) > limit:
        raise LineRefused("invalid_request", f"The line is longer than the limit of {limit} bytes.")
    value = _object(text)
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS or not custom_id.isprintable():
        message = f"custom_id must be a string of 1 to {MAX_CUSTOM_ID_CHARS} printable characters, got {echo(custom_id)}"
        raise LineRefused("invalid_custom_id", message, "custom_id")
    if value.get("method") != "POST":
        raise LineRefused("invalid_method", f"method must be POST, got {echo(value.get('method'))}", "method")
    if value.get("url") != endpoint:
        message = f"url must be the endpoint of the batch, {endpoint}, got {echo(value.get('url'))}"
        raise LineRefused("mismatched_endpoint", message, "url")
    body = value.get("body")
    if not isinstance(body, dict):
        raise LineRefused("invalid_body", f"body must be an object, got {echo(body)}", "body")
    for name in NOT_IN_BATCHES:
        if body.get(name) not in (None, False):
            raise LineRefused("invalid_body", f"body.{name} must be false: the answers of a batch come in its output file", f"body.{name}")
    model = body.get("model")
    return InputLine(number, custom_id, orjson.dumps(body), model if isinstance(model, str) else "")


def _object(text: bytes) -> dict[str, Any]:
    limits = settings.LIGHTCONE_LIMITS
    try:
        # NOTE: two levels more than a body may have, as it is inside the line.
        return json_object_read(text, max_depth=limits.max_json_depth + 2, max_digits=limits.max_json_digits)
    except ApiError as error:
        raise LineRefused("invalid_json_line", error.message.replace("request body", "line")) from None


@dataclass(slots=True)
class InputReport:
    """What a look at all lines of a file found. `errors` as the API shows them; `model`: the one that all lines ask for, or empty."""

    num_lines: int = 0
    model: str = ""
    errors: list[dict[str, Any]] = field(default_factory=list)


def input_check(chunks: Iterable[bytes], endpoint: str) -> InputReport:
    """Read the whole file once; work stops when so many lines are at fault that nobody would read of more. Blocks."""
    splitter = LineSplitter(settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes)
    report = InputReport()
    seen: dict[str, int] = {}
    models: set[str] = set()
    for chunk in chunks:
        for number, text in splitter.feed(chunk):
            _check_line(number, text, endpoint, report, seen, models)
        if _is_hopeless(report):
            break
    else:
        for number, text in splitter.flush():
            _check_line(number, text, endpoint, report, seen, models)
    if not report.num_lines:
        report.errors.append(_error("empty_file", "The input file has no lines."))
    if report.num_lines > settings.LIGHTCONE_MAX_BATCH_LINES:
        message = f"The input file has more than {settings.LIGHTCONE_MAX_BATCH_LINES} lines; split it into several batches."
        report.errors.insert(0, _error("too_many_tasks", message))
    report.model = models.pop() if len(models) == 1 else ""
    return report


def _check_line(number: int, text: bytes, endpoint: str, report: InputReport, seen: dict[str, int], models: set[str]) -> None:
    report.num_lines += 1
    if _is_hopeless(report):
        return
    try:
        line = line_read(number, text, endpoint)
        first = seen.setdefault(line.custom_id, number)
        if first != number:
            message = f"custom_id {echo(line.custom_id)} was used on line {first} already"
            raise LineRefused("duplicate_custom_id", message, "custom_id")
        models.add(line.model)
    except LineRefused as error:
        report.errors.append(_error(error.code, error.message, number, error.param))


def _is_hopeless(report: InputReport) -> bool:
    return len(report.errors) >= MAX_ERRORS or report.num_lines > settings.LIGHTCONE_MAX_BATCH_LINES


def _error(code: str, message: str, line: int | None = None, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}
