"""Reads of the hourly sums for the dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import TruncDay

from chat.usage.models import TTFT_BOUNDS_MS, TTFT_COLUMNS, UsageHour

SUMMED_COLUMNS = ("num_requests", "num_left", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos")


@dataclass(frozen=True, slots=True)
class UsagePoint:
    """The sums of one hour or day: requests, client errors (4xx), server errors (5xx), clients that left, tokens."""

    start: datetime
    num_requests: int = 0
    num_client_errors: int = 0
    num_server_errors: int = 0
    num_left: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_nanos: int = 0

    @property
    def num_answered(self) -> int:
        """Return the number of requests that were answered without an error."""
        return self.num_requests - self.num_client_errors - self.num_server_errors - self.num_left


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """The usage of a span: points without gaps, oldest first, their sums, and percentiles of the first token's time."""

    points: tuple[UsagePoint, ...]
    total: UsagePoint
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    by_model: tuple[tuple[str, int, int, int], ...]
    """Name, requests, completion tokens and cost of the models with the most requests."""


def usage_summary(*, of: QuerySet[UsageHour], now: datetime, hours: int = 0, days: int = 0) -> UsageSummary:
    """Return the usage of the last `hours` by hour, or of the last `days` by day (UTC), the current one included.

    `of`: the sums that count.
    """
    step = timedelta(hours=1) if hours else timedelta(days=1)
    last = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    last = last if hours else last.replace(hour=0)
    starts = [last - step * i for i in range((hours or days) - 1, -1, -1)]
    rows = of.filter(period_start__gte=starts[0], period_start__lt=last + step)
    period = F("period_start") if hours else TruncDay("period_start", tzinfo=UTC)
    errors = {
        "num_client_errors": Sum(F("num_requests") - F("num_left"), filter=Q(status_class=4), default=0),
        "num_server_errors": Sum("num_requests", filter=Q(status_class=5), default=0),
    }
    sums = errors | {column: Sum(column, default=0) for column in SUMMED_COLUMNS}
    found = {row.pop("period"): row for row in rows.order_by().values(period=period).annotate(**sums)}
    points = tuple(UsagePoint(start=start, **found.get(start, {})) for start in starts)
    total = rows.aggregate(**sums, **{column: Sum(column, default=0) for column in TTFT_COLUMNS})
    histogram = [total.pop(column) for column in TTFT_COLUMNS]
    by_model = (
        rows.values("model")
        .annotate(requests=Sum("num_requests"), tokens=Sum("completion_tokens"), cost=Sum("cost_nanos"))
        .order_by("-requests")
        .values_list("model", "requests", "tokens", "cost")
    )
    return UsageSummary(
        points=points,
        total=UsagePoint(start=starts[0], **total),
        ttft_p50_ms=histogram_percentile(histogram, 0.5),
        ttft_p95_ms=histogram_percentile(histogram, 0.95),
        by_model=tuple(by_model[:10]),
    )


def histogram_percentile(counts: list[int], share: float) -> float | None:
    """Return the first token's time (ms) of a share of the runs, interpolated as Prometheus does; None without runs."""
    target = sum(counts) * share
    if not target:
        return None
    seen, lower = 0, 0
    for count, upper in zip(counts, TTFT_BOUNDS_MS, strict=False):
        if count and seen + count >= target:
            return lower + (upper - lower) * (target - seen) / count
        seen, lower = seen + count, upper
    return float(lower)
