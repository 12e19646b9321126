"""Validate the lines of an input file, each one request with a unique id. The request's fields are not checked here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from django.conf import settings

from chat.api.request.fields import echo
from chat.api.request.strict_json import json_bounds, json_object_read
from chat.batches.services import MAX_ERRORS
from chat.errors import ApiError

MAX_CUSTOM_ID_CHARS = 512
NOT_IN_BATCHES = ("stream", "background")
BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Splits content, however it is cut, into (number from 1, bytes without line end), without blank lines.

    `feed` returns complete lines, `flush` the last. A longer line is cut to `max_bytes` + 1, which shows that it is too
    long.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._number = 0
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[tuple[int, bytes]]:
        *whole, rest = piece.split(b"\n")
        lines = []
        for part in whole:
            self._keep(part)
            lines += self.flush()
        self._keep(rest)
        return lines

    def flush(self) -> list[tuple[int, bytes]]:
        self._number += 1
        line = bytes(self._rest)
        self._rest.clear()
        if self._number == 1:
            line = line.removeprefix(BOM)
        line = line.removesuffix(b"\r")
        return [(self._number, line)] if line.strip() else []

    def _keep(self, part: bytes) -> None:
        self._rest += part[: self._max_bytes + 1 - len(self._rest)]


class LineRefused(Exception):
    """Raised for an invalid line, with what the API shows of it: a code, a sentence, and the field at fault."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param

    def described(self, number: int | None = None) -> dict[str, Any]:
        return {"code": self.code, "line": number, "message": self.message, "param": self.param}


@dataclass(frozen=True, slots=True)
class InputLine:
    """One request of a batch. `body`: JSON for the route that answers it; `model`: the name it asks for."""

    number: int
    custom_id: str
    body: bytes
    model: str


def line_read(number: int, text: bytes, endpoint: str) -> InputLine:
    """Read one line. Raises LineRefused."""
    limit = settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
    if len(text) > limit:
        raise LineRefused("invalid_request", f"The line is longer than the limit of {limit} bytes.")
    value = _object(text)
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID_CHARS or not custom_id.isprintable():
        bounds = f"1 to {MAX_CUSTOM_ID_CHARS} printable characters"
        raise LineRefused(
            "invalid_custom_id", f"custom_id must be a string of {bounds}, got {echo(custom_id)}", "custom_id"
        )
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
            message = f"body.{name} must be false: the answers of a batch come in its output file"
            raise LineRefused("invalid_body", message, f"body.{name}")
    model = body.get("model")
    return InputLine(number, custom_id, orjson.dumps(body), model if isinstance(model, str) else "")


def _object(text: bytes) -> dict[str, Any]:
    try:
        # NOTE: two levels more than a body may have, as it is inside the line.
        return json_object_read(text, json_bounds(more_depth=2))
    except ApiError as error:
        raise LineRefused("invalid_json_line", error.message.replace("request body", "line")) from None


class InputCheck:
    """Validates an input: `feed` it the content in pieces until it is hopeless, then `flush`, and read `errors`."""

    def __init__(self, endpoint: str) -> None:
        self.num_lines = 0
        self.errors: list[dict[str, Any]] = []
        self._endpoint = endpoint
        self._splitter = LineSplitter(settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes)
        self._first_uses: dict[str, int] = {}
        self._models: set[str] = set()

    @property
    def is_hopeless(self) -> bool:
        return len(self.errors) >= MAX_ERRORS or self.num_lines > settings.LIGHTCONE_MAX_BATCH_LINES

    @property
    def model(self) -> str:
        return next(iter(self._models)) if len(self._models) == 1 else ""

    def feed(self, piece: bytes) -> None:
        for number, text in self._splitter.feed(piece):
            self._look(number, text)

    def flush(self) -> None:
        for number, text in self._splitter.flush():
            self._look(number, text)
        if not self.num_lines:
            self.errors.append(LineRefused("empty_file", "The input file has no lines.").described())
        if self.num_lines > settings.LIGHTCONE_MAX_BATCH_LINES:
            most = settings.LIGHTCONE_MAX_BATCH_LINES
            message = f"The input file has more than {most} lines; split it into several batches."
            self.errors.insert(0, LineRefused("too_many_tasks", message).described())

    def _look(self, number: int, text: bytes) -> None:
        if self.is_hopeless:
            return
        self.num_lines += 1
        try:
            line = line_read(number, text, self._endpoint)
            first = self._first_uses.setdefault(line.custom_id, number)
            if first != number:
                message = f"custom_id {echo(line.custom_id)} was used on line {first} already"
                raise LineRefused("duplicate_custom_id", message, "custom_id")
            self._models.add(line.model)
        except LineRefused as error:
            self.errors.append(error.described(number))
