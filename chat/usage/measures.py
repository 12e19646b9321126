"""What runs add to the sums: the keys of their periods, their amounts, and the percentiles of summed histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chat.usage.models import (
    DAY,
    GAP_BOUNDS_MS,
    GAP_COLUMNS,
    HOUR,
    TTFT_BOUNDS_MS,
    TTFT_COLUMNS,
    Dimension,
    StatusClass,
)
from engine.api import Outcome

CLIENT_LEFT = 499
"""The status of a request whose client disconnected before the answer was complete."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SUM_KEY = (
    *("length_h", "start_h", "org_id", "project_id", "key_public_id", "account_id", "model", "route"),
    "status_class",
)
TOTAL_KEY = ("dimension", "length_h", "start_h", "org_id", "value")
COLUMNS: Mapping[str, str] = {
    Dimension.PROJECT: "project_id",
    Dimension.KEY: "key_public_id",
    Dimension.USER: "account_id",
    Dimension.MODEL: "model",
    Dimension.ROUTE: "route",
    Dimension.STATUS: "status_class",
}
"""The column of the sums by dimension."""

Key = tuple[Any, ...]
"""The values of SUM_KEY or TOTAL_KEY."""
Sums = dict[Key, Counter[str]]


def hour_of(instant: datetime) -> int:
    """Return the hours from 1970 to the hour of an instant."""
    return (instant - EPOCH) // timedelta(hours=1)


def instant_of(hour: int) -> datetime:
    return EPOCH + timedelta(hours=hour)


def status_class(status: int) -> str:
    """Return whose fault the end of a request was."""
    if status == CLIENT_LEFT:
        return StatusClass.LEFT.value
    if status >= 500:
        return StatusClass.OURS.value
    return StatusClass.THEIRS.value if status >= 400 else StatusClass.ANSWERED.value


def hours_of(rows: Iterable[Any]) -> Sums:
    """Return the sums by hour of rows of the request log."""
    hours: Sums = defaultdict(Counter)
    for row in rows:
        where = (row.org_id, row.project_id, row.key_public_id, row.account_id or 0, row.model, row.route)
        key = (HOUR, hour_of(row.arrived_at), *where, status_class(row.status))
        hours[key].update(amounts_of(row))
    return hours


def with_days(hours: Mapping[Key, Mapping[str, int]]) -> Sums:
    """Return sums by hour, and those by day that they make."""
    both: Sums = defaultdict(Counter)
    for key, amounts in hours.items():
        _, start_h, *rest = key
        both[key].update(amounts)
        both[(DAY, start_h - start_h % DAY, *rest)].update(amounts)
    return both


def totals_of(sums: Mapping[Key, Mapping[str, int]]) -> Sums:
    """Return the totals by each dimension of sums."""
    totals: Sums = defaultdict(Counter)
    for key, amounts in sums.items():
        fact = dict(zip(SUM_KEY, key, strict=True))
        for dimension, value in values_of(fact):
            totals[(dimension, fact["length_h"], fact["start_h"], fact["org_id"], value)].update(amounts)
    return totals


def values_of(fact: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each dimension with the value of a sum, as text."""
    yield Dimension.ALL.value, ""
    for dimension, column in COLUMNS.items():
        yield str(dimension), str(fact[column])


def amounts_of(row: Any) -> dict[str, int]:
    """Return what a run adds to its sums. A rejected run adds its count alone."""
    kind = status_class(row.status)
    counts = {
        "num_requests": 1,
        "num_left": int(kind == StatusClass.LEFT),
        "num_theirs": int(kind == StatusClass.THEIRS),
        "num_ours": int(kind == StatusClass.OURS),
    }
    if row.outcome == Outcome.REJECTED:
        return counts
    amounts = counts | {
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "completion_tokens": row.completion_tokens,
        "reasoning_tokens": row.reasoning_tokens or 0,
        "cost_nanos": row.cost_nanos,
        "duration_ms": round(row.duration_ms or 0),
        "queue_ms": round(row.queue_ms or 0),
    }
    if audio_ms := _audio_ms(row):
        amounts["audio_ms"] = audio_ms
    if row.ttft_ms is not None:
        amounts[TTFT_COLUMNS[bisect_left(TTFT_BOUNDS_MS, row.ttft_ms)]] = 1
        if row.duration_ms is not None and row.completion_tokens > 1:
            gap_ms = max(0.0, row.duration_ms - row.ttft_ms) / (row.completion_tokens - 1)
            amounts[GAP_COLUMNS[bisect_left(GAP_BOUNDS_MS, gap_ms)]] = 1
    return amounts


def _audio_ms(row: Any) -> int:
    """Return the length of the sound that a run has written down. Rows of a migration may have no media."""
    media = getattr(row, "media", None)
    audio = media.get("audio") if isinstance(media, dict) else None
    return int(audio.get("duration_ms", 0)) if isinstance(audio, dict) else 0


def percentile(counts: Sequence[int], bounds: Sequence[int], share: float) -> float | None:
    """Return the time (ms) of a share of the runs, interpolated as Prometheus does; None without runs.

    `counts`: runs by bucket, of which the last has no upper bound.
    """
    target = sum(counts) * share
    if not target:
        return None
    seen, lower = 0, 0
    for count, upper in zip(counts, bounds, strict=False):
        if count and seen + count >= target:
            return lower + (upper - lower) * (target - seen) / count
        seen, lower = seen + count, upper
    return float(lower)
