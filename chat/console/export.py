"""Files of large tables: CSV and JSON lines, written by pages of rows so that memory stays bounded."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from channels.db import database_sync_to_async
from django.db.models import QuerySet
from django.http import StreamingHttpResponse

ROWS_AT_ONCE = 500
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How cells begin that spreadsheets would compute."""
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}

Values = Callable[[Any], Mapping[str, Any]]


def csv_cell(value: Any) -> Any:
    """Return a value as a cell that no spreadsheet computes: a text that begins like a formula gets an apostrophe."""
    if isinstance(value, Mapping | list):
        value = orjson.dumps(value).decode()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return rows of values as CSV (RFC 4180)."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def pages_of(rows: QuerySet[Any]) -> Iterator[list[Any]]:
    """Yield rows by pages, the largest primary key first, a query for each."""
    rows = rows.order_by("-pk")
    page = list(rows[:ROWS_AT_ONCE])
    while page:
        yield page
        page = list(rows.filter(pk__lt=page[-1].pk)[:ROWS_AT_ONCE])


def written(page: list[Any], values: Values, format_name: str) -> bytes:
    """Return a page of rows in a format. `values`: the columns of a row by name, as JSON holds them."""
    if format_name == "csv":
        return csv_lines([list(values(row).values()) for row in page])
    return b"".join(orjson.dumps(values(row)) + b"\n" for row in page)


def heading(columns: Sequence[str], format_name: str) -> bytes:
    return csv_lines([columns]) if format_name == "csv" else b""


def export_response(
    pages: Iterator[list[Any]], *, columns: Sequence[str], values: Values, format_name: str, name: str
) -> StreamingHttpResponse:
    """Return a file of rows as a stream, a page of them at a time."""

    async def pieces() -> AsyncIterator[bytes]:
        yield heading(columns, format_name)
        while page := await database_sync_to_async(next)(pages, None):
            yield written(page, values, format_name)

    response = StreamingHttpResponse(pieces(), content_type=CONTENT_TYPES[format_name])
    response["Content-Disposition"] = f'attachment; filename="{name}.{format_name}"'
    response["Cache-Control"] = "no-store"
    return response
