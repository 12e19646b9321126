"""The overview of the console: requests, tokens, errors and time to the first token, from the hourly sums.

The charts are computed here as plain numbers; the template writes them as SVG, without a script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from chat.access.permissions import SEE_USAGE
from chat.console.fields import milliseconds
from chat.usage import selectors
from chat.usage.prices import cost_text
from chat.usage.selectors import UsagePoint, UsageSummary

WIDTH, HEIGHT = 440, 180
LEFT, BOTTOM, TOP = 44, 24, 8
SPANS = {"24h": "Last 24 hours", "30d": "Last 30 days"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One part of a stacked bar, in units of the drawing. `kind` is its CSS class."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label and its place on the axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A stacked bar chart. `legend`: (CSS class, name) of each part; `summary`: the chart in words."""

    title: str
    summary: str
    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    legend: tuple[tuple[str, str], ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    baseline: int = HEIGHT - BOTTOM


def dashboard_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the context of the console's first page. `?span=30d` shows days instead of hours.

    Users without the permission to see usage get no figures; the page then shows what they may do.
    """
    context["title"] = "Overview"
    context["sees_usage"] = request.user.has_perm(SEE_USAGE)
    if context["sees_usage"]:
        context.update(_figures(request))
    return context


def _figures(request: HttpRequest) -> dict[str, Any]:
    span = request.GET.get("span") if request.GET.get("span") in SPANS else "24h"
    now = timezone.now()
    usage = selectors.usage_summary(now=now, hours=24) if span == "24h" else selectors.usage_summary(now=now, days=30)
    label = "%H:%M" if span == "24h" else "%d %b"
    return {
        "span": span,
        "spans": SPANS.items(),
        "tiles": _tiles(usage),
        "charts": (_requests_chart(usage, label), _tokens_chart(usage, label)),
        "rows": tuple(
            _row(point, "%Y-%m-%d %H:%M" if span == "24h" else "%Y-%m-%d") for point in reversed(usage.points)
        ),
        "by_model": tuple(
            (name, f"{requests:,}", f"{tokens:,}", cost_text(cost)) for name, requests, tokens, cost in usage.by_model
        ),
    }


def _tiles(usage: UsageSummary) -> list[tuple[str, str, str]]:
    """Return (name, value, remark) of each tile. Shares of errors leave out requests whose clients left."""
    total = usage.total
    num_ended = total.num_requests - total.num_left
    return [
        ("Requests", f"{total.num_requests:,}", ""),
        ("Client errors", f"{total.num_client_errors:,}", _share(total.num_client_errors, num_ended)),
        ("Server errors", f"{total.num_server_errors:,}", _share(total.num_server_errors, num_ended)),
        ("Clients who left", f"{total.num_left:,}", "not errors" if total.num_left else ""),
        ("Prompt tokens", f"{total.prompt_tokens:,}", f"{_share(total.cached_tokens, total.prompt_tokens)} cached"),
        ("Completion tokens", f"{total.completion_tokens:,}", ""),
        *([("Cost", cost_text(total.cost_nanos), "")] if total.cost_nanos else []),
        ("First token, median", milliseconds(usage.ttft_p50_ms), ""),
        ("First token, 95th percentile", milliseconds(usage.ttft_p95_ms), ""),
    ]


def _row(point: UsagePoint, label: str) -> tuple[str, ...]:
    counts = (point.num_requests, point.num_client_errors, point.num_server_errors, point.num_left)
    amounts = (*counts, point.prompt_tokens, point.cached_tokens, point.completion_tokens)
    return (point.start.strftime(label), *(f"{amount:,}" for amount in amounts), cost_text(point.cost_nanos))


def _requests_chart(usage: UsageSummary, label: str) -> Chart:
    total = usage.total
    parts = [
        (point.num_answered, point.num_left, point.num_client_errors, point.num_server_errors) for point in usage.points
    ]
    legend = (
        ("lc-good", "answered"),
        ("lc-left", "client left"),
        ("lc-poor", "client errors (4xx)"),
        ("lc-bad", "server errors (5xx)"),
    )
    summary = (
        f"{total.num_requests:,} requests: {total.num_client_errors:,} client errors, {total.num_server_errors:,} server errors, "
        f"{total.num_left:,} whose client left; {_busiest(usage.points, 'num_requests', 'requests', label)}"
    )
    return _chart("Requests", summary, usage.points, parts, legend, label)


def _tokens_chart(usage: UsageSummary, label: str) -> Chart:
    total = usage.total
    parts = [(point.prompt_tokens, point.completion_tokens) for point in usage.points]
    legend = (("lc-prompt", "prompt"), ("lc-completion", "completion"))
    summary = (
        f"{total.prompt_tokens:,} prompt and {total.completion_tokens:,} completion tokens; "
        f"{_busiest(usage.points, 'completion_tokens', 'completion tokens', label)}"
    )
    return _chart("Tokens", summary, usage.points, parts, legend, label)


def _chart(
    title: str,
    summary: str,
    points: Sequence[UsagePoint],
    parts: Sequence[tuple[int, ...]],
    legend: tuple[tuple[str, str], ...],
    label: str,
) -> Chart:
    top = nice_ceiling(max(sum(part) for part in parts))
    scale = (HEIGHT - BOTTOM - TOP) / top
    slot = (WIDTH - LEFT) / len(points)
    bars: list[Bar] = []
    for index, (point, amounts) in enumerate(zip(points, parts, strict=True)):
        base = float(HEIGHT - BOTTOM)
        for (kind, name), amount in zip(legend, amounts, strict=True):
            height = amount * scale
            base -= height
            if amount:
                text = f"{point.start.strftime(label)}: {amount:,} {name}"
                bars.append(
                    Bar(
                        _round(LEFT + index * slot + slot * 0.14),
                        _round(base),
                        _round(slot * 0.72),
                        _round(height),
                        kind,
                        text,
                    )
                )
    every = max(1, len(points) // 6)
    return Chart(
        title=title,
        summary=summary,
        bars=tuple(bars),
        x_ticks=tuple(
            Tick(_round(LEFT + (index + 0.5) * slot), point.start.strftime(label))
            for index, point in enumerate(points)
            if index % every == 0
        ),
        y_ticks=tuple(
            Tick(_round(HEIGHT - BOTTOM - top * share * scale), _short(top * share)) for share in (0, 0.5, 1)
        ),
        legend=legend,
    )


def nice_ceiling(value: float) -> int:
    """Return the smallest of 2, 4, 10, 20, 40, 100, … that is not below the value. Half of it is a whole number too."""
    if value <= 2:
        return 2
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 10) if step * power >= value)


def _busiest(points: Sequence[UsagePoint], column: str, name: str, label: str) -> str:
    top = max(points, key=lambda point: getattr(point, column))
    amount = getattr(top, column)
    return f"the most {name}, {amount:,}, from {top.start.strftime(label)} UTC." if amount else "none in this time."


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def _round(value: float) -> float:
    return round(value, 1)
