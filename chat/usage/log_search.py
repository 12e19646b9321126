"""Find requests in the log, newest first, at a bounded cost.

One indexed column leads: its index is walked in the order of the list, and all other conditions are compared with the
rows that it finds (`chat.usage.log_scope.unindexed`). Where they fit few rows that would be the whole log, so only
`LOOKED_AT` rows are looked at, and the reader may go on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from chat.usage.models import RequestLog

Logs: TypeAlias = QuerySet[RequestLog]

LOOKED_AT = 20_000
MAX_FOUND = 500
"""Requests that a prefix finds by its indexes; one that finds more is compared row by row."""
MIN_ID_DIGITS = 6
"""Of a run id. Fewer stand for hours of requests, and often for something else."""
LAST = "\U0010ffff"
TEXTS = ("client_request_id", "user_label", "batch_id")


@dataclass(frozen=True, slots=True)
class Found:
    """A page of requests. `looked_until`: the oldest row that was looked at, if there may be more beyond it."""

    rows: list[RequestLog]
    looked_until: UUID | None = None


def logs_page(rows: Logs, *, columns: Mapping[str, Any], bounds: Q, is_sifted: bool, size: int) -> Found:
    """Return the newest `size` of `rows`, or fewer, of those looked at.

    `columns`: values of indexed columns that all rows have; `bounds`: what limits their ids; `is_sifted`: there are
    conditions beside these, or more than one column.
    """
    rows = rows.filter(bounds).order_by("-pk")
    if not is_sifted and len(columns) < 2:
        return Found(list(rows.filter(**columns)[:size]))
    lead, until = _lead(columns, bounds)
    found = rows.filter(**lead)
    if until is None:
        return Found(list(found[:size]))
    page = list(found.filter(pk__gte=until)[:size])
    return Found(page, until if len(page) < size else None)


def best_column(columns: Mapping[str, Any], bounds: Q) -> dict[str, Any]:
    """Return the column whose index finds the fewest rows, with its value."""
    return _lead(columns, bounds)[0] if len(columns) > 1 else dict(columns)


def _lead(columns: Mapping[str, Any], bounds: Q) -> tuple[dict[str, Any], UUID | None]:
    """Return the column whose newest rows reach back the farthest, and the last row to look at, None if it ends before.

    Each look reads entries of one index alone.
    """
    best: tuple[dict[str, Any], UUID | None] | None = None
    for lead in [{name: value} for name, value in columns.items()] or [{}]:
        ids = RequestLog.objects.filter(bounds, **lead).order_by("-pk").values_list("pk", flat=True)
        until = next(iter(ids[LOOKED_AT : LOOKED_AT + 1]), None)
        if until is None:
            return lead, None
        if best is None or best[1] is None or until < best[1]:
            best = lead, until
    assert best is not None
    return best


def logs_with_prefix(rows: Logs, term: str) -> tuple[Logs, bool]:
    """Keep the rows of which an id or the user's label begins with a text.

    Return True beside if the rows are few and known: no other index is needed.
    """
    by_id = _id_range(term)
    conditions = [*(_begins(name, term) for name in TEXTS), *([] if by_id is None else [by_id])]
    ids: set[UUID] = set()
    for condition in conditions:
        # NOTE: in any order, as all rows with the prefix would be sorted otherwise.
        found = RequestLog.objects.filter(condition).order_by()
        some = list(found.values_list("pk", flat=True)[: MAX_FOUND + 1])
        if len(some) > MAX_FOUND:
            break
        ids.update(some)
    else:
        return rows.filter(pk__in=ids), True
    hidden = {f"text_of_{name}": Cast(name, TextField()) for name in TEXTS}
    fits = by_id if by_id is not None else Q()
    for alias in hidden:
        fits |= Q(**{f"{alias}__startswith": term})
    return rows.alias(**hidden).filter(fits), False


def _begins(name: str, term: str) -> Q:
    """Return a condition that an index serves: SQLite has none for LIKE, and PostgreSQL's compare by locale."""
    if connection.vendor == "sqlite":
        return Q(**{f"{name}__gte": term, f"{name}__lt": term + LAST})
    return Q(**{f"{name}__startswith": term})


def _id_range(term: str) -> Q | None:
    """Return the condition of run ids that begin so; None if that is no beginning of one."""
    digits = term.replace("-", "").lower()
    if not MIN_ID_DIGITS <= len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return None
    return Q(pk__gte=UUID(hex=digits.ljust(32, "0")), pk__lte=UUID(hex=digits.ljust(32, "f")))
