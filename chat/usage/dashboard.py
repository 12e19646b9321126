"""The overview of the console, from the hourly sums, with charts of django-unfold (Chart.js)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from chat.access.key_scope import of_own_keys
from chat.access.policy import visible
from chat.access.roles import Act
from chat.console.pages import milliseconds
from chat.usage import selectors
from chat.usage.models import UsageHour
from chat.usage.prices import cost_text
from chat.usage.selectors import UsagePoint, UsageSummary

SPANS = {"24h": "Last 24 hours", "30d": "Last 30 days"}
CHART_OPTIONS = json.dumps(
    {
        "animation": False,
        "maintainAspectRatio": False,
        "interaction": {"mode": "index", "intersect": False},
        "plugins": {"legend": {"display": False}},
        "scales": {
            "x": {"stacked": True, "grid": {"display": False}, "ticks": {"maxTicksLimit": 7, "maxRotation": 0}},
            "y": {
                "stacked": True,
                "suggestedMax": 2,
                "border": {"display": False},
                "ticks": {"maxTicksLimit": 4, "precision": 0, "format": {"notation": "compact"}},
            },
        },
    }
)


@dataclass(frozen=True, slots=True)
class Chart:
    """A stacked bar chart."""

    title: str
    summary: str
    """The chart in words."""
    legend: tuple[tuple[str, str], ...]
    """CSS class and name of each part; `--lc-…` of the same name is its colour."""
    data: str
    """Chart.js's data, as JSON."""
    options: str = CHART_OPTIONS


def dashboard_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the console's first page, for users who may see usage. `?span=30d` shows days, not hours."""
    context["title"] = "Overview"
    context["sees_usage"] = request.user.has_perm("chat.view_usagehour")
    if context["sees_usage"]:
        context.update(_figures(request))
    return context


def _figures(request: HttpRequest) -> dict[str, Any]:
    span = request.GET.get("span") if request.GET.get("span") in SPANS else "24h"
    now = timezone.now()
    hours = visible(UsageHour.objects.all(), request.user, Act.USAGE_SEE, own=of_own_keys(request.user))
    spans = {"hours": 24} if span == "24h" else {"days": 30}
    usage = selectors.usage_summary(of=hours, now=now, **spans)
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
    summary = (
        f"{total.num_requests:,} requests: {total.num_client_errors:,} client errors, "
        f"{total.num_server_errors:,} server errors, {total.num_left:,} whose client left; "
        f"{_busiest(usage.points, 'num_requests', 'requests', label)}"
    )
    parts = (
        ("lc-good", "answered", "num_answered"),
        ("lc-left", "client left", "num_left"),
        ("lc-poor", "client errors (4xx)", "num_client_errors"),
        ("lc-bad", "server errors (5xx)", "num_server_errors"),
    )
    return _chart("Requests", summary, usage.points, parts, label)


def _tokens_chart(usage: UsageSummary, label: str) -> Chart:
    total = usage.total
    summary = (
        f"{total.prompt_tokens:,} prompt and {total.completion_tokens:,} completion tokens; "
        f"{_busiest(usage.points, 'completion_tokens', 'completion tokens', label)}"
    )
    parts = (("lc-prompt", "prompt", "prompt_tokens"), ("lc-completion", "completion", "completion_tokens"))
    return _chart("Tokens", summary, usage.points, parts, label)


def _chart(
    title: str, summary: str, points: Sequence[UsagePoint], parts: tuple[tuple[str, str, str], ...], label: str
) -> Chart:
    """Return the chart of the points. `parts`: (CSS class, name, field of a point), from the bottom up."""
    datasets = [
        {"label": name, "data": [getattr(point, field) for point in points], "backgroundColor": f"var(--{kind})"}
        for kind, name, field in parts
    ]
    data = json.dumps({"labels": [point.start.strftime(label) for point in points], "datasets": datasets})
    return Chart(title, summary, tuple((kind, name) for kind, name, _ in parts), data)


def _busiest(points: Sequence[UsagePoint], column: str, name: str, label: str) -> str:
    top = max(points, key=lambda point: getattr(point, column))
    amount = getattr(top, column)
    return f"the most {name}, {amount:,}, from {top.start.strftime(label)} UTC." if amount else "none in this time."


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"
