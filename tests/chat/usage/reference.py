"""A slow reference of the sums: each row of the log by itself, and plain dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from chat.models import RequestLog, UsageSum, UsageTotal
from chat.usage.models import AMOUNTS, GAP_BOUNDS_MS, TTFT_BOUNDS_MS

FACT = ("org_id", "project_id", "key_public_id", "account_id", "model", "route")
Sums = dict[tuple[Any, ...], dict[str, Any]]


def expected(rows: Iterable[RequestLog]) -> tuple[Sums, Sums]:
    """Return the facts and the totals that the rows of the log come to."""
    facts: Sums = defaultdict(lambda: defaultdict(int))
    totals: Sums = defaultdict(lambda: defaultdict(int))
    for row in rows:
        kind = "left" if row.status == 499 else {4: "theirs", 5: "ours"}.get(row.status // 100, "answered")
        where = [0 if getattr(row, name) is None else getattr(row, name) for name in FACT]
        values = {"all": "", "project": row.project_id, "key": row.key_public_id, "user": row.account_id or 0}
        values |= {"model": row.model, "route": row.route, "status": kind}
        hour = int(row.arrived_at.timestamp() // 3600)
        for length_h, start_h in ((1, hour), (24, hour // 24 * 24)):
            cells = [facts[(length_h, start_h, *where, kind)]]
            cells += [totals[(length_h, start_h, row.org_id, name, str(value))] for name, value in values.items()]
            for cell in cells:
                add(cell, row, kind)
    return facts, totals


def add(cell: dict[str, Any], row: RequestLog, kind: str) -> None:
    cell["num_requests"] += 1
    if kind != "answered":
        cell[f"num_{kind}"] += 1
    if row.outcome == "rejected":
        return
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_nanos"):
        cell[name] += getattr(row, name) or 0
    for name in ("duration_ms", "queue_ms"):
        cell[name] += round(getattr(row, name) or 0)
    if row.ttft_ms is not None:
        cell[f"ttft {sum(bound < row.ttft_ms for bound in TTFT_BOUNDS_MS)}"] += 1
        if row.duration_ms is not None and row.completion_tokens > 1:
            gap_ms = max(0, row.duration_ms - row.ttft_ms) / (row.completion_tokens - 1)
            cell[f"gap {sum(bound < gap_ms for bound in GAP_BOUNDS_MS)}"] += 1


def stored() -> tuple[Sums, Sums]:
    """Return the facts and totals that are stored, without those that corrections have emptied."""
    facts = {
        (row.length_h, row.start_h, *(getattr(row, name) for name in FACT), row.status_class): row
        for row in UsageSum.objects.all()
    }
    totals = {
        (row.length_h, row.start_h, row.org_id, row.dimension, row.value): row for row in UsageTotal.objects.all()
    }
    return _cells(facts), _cells(totals)


def _cells(rows: dict[tuple[Any, ...], Any]) -> Sums:
    return {key: cell for key, row in rows.items() if (cell := _cell(row))["num_requests"]}


def _cell(row: Any) -> dict[str, Any]:
    cell = {name: getattr(row, name) for name in AMOUNTS}
    for kind, bounds in (("ttft", TTFT_BOUNDS_MS), ("gap", GAP_BOUNDS_MS)):
        columns = [*(f"{kind}_le_{bound}" for bound in bounds), f"{kind}_over_{bounds[-1]}"]
        cell |= {f"{kind} {place}": getattr(row, name) for place, name in enumerate(columns)}
    return {name: value for name, value in cell.items() if value or name == "num_requests"}


def plain(sums: Sums) -> Sums:
    """Return sums without zeros."""
    return {key: {name: value for name, value in cell.items() if value} for key, cell in sums.items()}
