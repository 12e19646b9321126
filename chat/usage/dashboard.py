"""The usage on the overview of the console: the last day by hours, or the last 30 days."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateformat import format as date_text
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.console.figures import number
from chat.usage.charts import requests_chart, tiles, tokens_chart
from chat.usage.measures import hour_of
from chat.usage.models import DAY, HOUR, Dimension
from chat.usage.prices import cost_text
from chat.usage.scope import usage_scope
from chat.usage.selectors import Asked, Figures, UsageReader
from chat.usage.spans import Span, day_span

SPANS = {"24h": gettext_lazy("Last 24 hours"), "30d": gettext_lazy("Last 30 days")}
MOST_MODELS = 10
UTC = ZoneInfo("UTC")


def dashboard_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the overview to the console's first page; each role sees some usage. `?span=30d` shows days, not hours."""
    return context | {"title": _("Overview")} | _figures(request)


def _figures(request: HttpRequest) -> dict[str, Any]:
    name = "30d" if request.GET.get("span") == "30d" else "24h"
    span, label = _span(name), "d M" if name == "30d" else "H:i"
    reader = UsageReader(usage_scope(request.user), Asked(span, group=Dimension.MODEL))
    found = reader.points(span)
    periods = [(start, found.get(number, Figures())) for number, start in span.periods()]
    points = [(date_text(start, label), figures) for start, figures in periods]
    total = Figures()
    for figures in found.values():
        total.add(figures)
    full = "%Y-%m-%d" if name == "30d" else "%Y-%m-%d %H:%M"
    return {
        "span": name,
        "spans": SPANS.items(),
        "tiles": tiles(total),
        "charts": (requests_chart(points, total), tokens_chart(points, total)),
        "rows": tuple((start.strftime(full), *_cells(figures)) for start, figures in reversed(periods)),
        "by_model": tuple(
            (model, number(one["num_requests"]), number(one["completion_tokens"]), cost_text(one["cost_nanos"]))
            for model, one in reader.groups(span)[:MOST_MODELS]
        ),
    }


def _span(name: str) -> Span:
    now = timezone.now()
    if name == "30d":
        return day_span(now.date() - timedelta(days=29), now.date(), UTC, DAY)
    return Span(hour_of(now) - 23, hour_of(now) + 1, UTC, HOUR)


def _cells(figures: Figures) -> tuple[str, ...]:
    counts = ("num_requests", "num_theirs", "num_ours", "num_left")
    names = (*counts, "prompt_tokens", "cached_tokens", "completion_tokens")
    return (*(number(figures[one]) for one in names), cost_text(figures["cost_nanos"]))
