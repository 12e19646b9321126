"""Tiles and charts of usage, for the overview and the page of usage: Chart.js, as django-unfold ships it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from chat.console.figures import milliseconds, number, percent, short_number, signed
from chat.usage.prices import NANOS, cost_text
from chat.usage.selectors import Figures

GROUP_COLOURS = ("lc-group-1", "lc-group-2", "lc-group-3", "lc-group-4", "lc-group-5", "lc-group-6")
REST_COLOUR = "lc-group-rest"
Measure = Callable[[Figures], float | None]
Points = Sequence[tuple[str, Figures]]
"""Label and sums of each period, the oldest first."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with the same in words."""

    title: str
    summary: str
    legend: tuple[tuple[str, str], ...]
    """CSS class and name of each part; `--lc-…` of the same name is its colour."""
    data: str
    """Chart.js's data, as JSON."""
    options: str
    kind: str = "bar"
    """A template of django-unfold: `bar` or `line`."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a chart: its CSS class, its name, its value in each period."""

    css: str
    name: str
    measure: Measure


def chart_options(datasets: Sequence[Mapping[str, Any]], *, is_stacked: bool = True) -> str:
    """Return Chart.js's options, as JSON. An axis of whole numbers goes to 2 at least, that of money only so far."""
    are_whole = all(isinstance(value, int) for one in datasets for value in one["data"])
    across = {"stacked": is_stacked, "grid": {"display": False}, "ticks": {"maxTicksLimit": 7, "maxRotation": 0}}
    up = {
        "stacked": is_stacked,
        "suggestedMax": 2 if are_whole else None,
        "border": {"display": False},
        "ticks": {"maxTicksLimit": 4, "format": {"notation": "compact"}},
    }
    return json.dumps(
        {
            "animation": False,
            "maintainAspectRatio": False,
            "interaction": {"mode": "index", "intersect": False},
            "plugins": {"legend": {"display": False}},
            "scales": {"x": across, "y": up},
        }
    )


def tiles(total: Figures, before: Figures | None = None) -> list[tuple[str, str, str]]:
    """Return (name, value, remark) of each tile. Shares of errors leave out requests whose clients left.

    `before`: the sums of the time before, for the remarks.
    """
    ours, theirs = total["num_ours"], total["num_theirs"]

    def compared(name: str, otherwise: str = "") -> str:
        parts = [otherwise, change_text(total[name], before[name]) if before is not None else ""]
        return ", ".join(part for part in parts if part)

    cached = _("%(share)s cached") % {"share": share(total["cached_tokens"], total["prompt_tokens"])}
    reasoning = total["reasoning_tokens"]
    of_reasoning = _("%(number)s of reasoning") % {"number": number(reasoning)} if reasoning else ""
    return [
        (_("Requests"), number(total["num_requests"]), compared("num_requests")),
        (_("Client errors"), number(theirs), compared("num_theirs", share(theirs, total.num_ended))),
        (_("Server errors"), number(ours), compared("num_ours", share(ours, total.num_ended))),
        (_("Clients who left"), number(total["num_left"]), _("not errors") if total["num_left"] else ""),
        (
            _("Prompt tokens"),
            number(total["prompt_tokens"]),
            compared("prompt_tokens", cached),
        ),
        (
            _("Completion tokens"),
            number(total["completion_tokens"]),
            compared("completion_tokens", of_reasoning),
        ),
        *([(_("Cost"), cost_text(total["cost_nanos"]), compared("cost_nanos"))] if total["cost_nanos"] else []),
        (_("First token, median"), milliseconds(total.ttft_ms(0.5)), ""),
        (_("First token, 95th percentile"), milliseconds(total.ttft_ms(0.95)), ""),
        (_("Between tokens, median"), milliseconds(total.gap_ms(0.5)), ""),
        (_("Between tokens, 95th percentile"), milliseconds(total.gap_ms(0.95)), ""),
    ]


def requests_chart(points: Points, total: Figures) -> Chart:
    numbers = {
        "requests": number(total["num_requests"]),
        "theirs": number(total["num_theirs"]),
        "ours": number(total["num_ours"]),
        "left": number(total["num_left"]),
        "most": busiest(points, lambda one: one["num_requests"], _("requests")),
    }
    summary = _(
        "%(requests)s requests: %(theirs)s client errors, %(ours)s server errors, %(left)s whose client left; %(most)s"
    )
    parts = (
        Part("lc-good", _("answered"), lambda one: one.num_answered),
        Part("lc-left", _("client left"), lambda one: one["num_left"]),
        Part("lc-poor", _("client errors (4xx)"), lambda one: one["num_theirs"]),
        Part("lc-bad", _("server errors (5xx)"), lambda one: one["num_ours"]),
    )
    return chart(_("Requests"), summary % numbers, points, parts)


def tokens_chart(points: Points, total: Figures) -> Chart:
    numbers = {
        "prompt": number(total["prompt_tokens"]),
        "completion": number(total["completion_tokens"]),
        "most": busiest(points, lambda one: one["completion_tokens"], _("completion tokens")),
    }
    summary = _("%(prompt)s prompt and %(completion)s completion tokens; %(most)s") % numbers
    parts = (
        Part("lc-cached", _("prompt, from the cache"), lambda one: one["cached_tokens"]),
        Part("lc-prompt", _("prompt"), lambda one: one["prompt_tokens"] - one["cached_tokens"]),
        Part("lc-reasoning", _("reasoning"), lambda one: one["reasoning_tokens"]),
        Part("lc-completion", _("completion"), lambda one: one["completion_tokens"] - one["reasoning_tokens"]),
    )
    return chart(_("Tokens"), summary, points, parts)


def times_chart(points: Points, total: Figures) -> Chart:
    values = {"median": milliseconds(total.ttft_ms(0.5)), "late": milliseconds(total.ttft_ms(0.95))}
    values |= {"gap": milliseconds(total.gap_ms(0.5)), "late_gap": milliseconds(total.gap_ms(0.95))}
    summary = _(
        "First token after %(median)s in half of all requests and %(late)s in 95 of 100; "
        "between tokens %(gap)s and %(late_gap)s."
    )
    parts = (
        Part("lc-group-1", _("first token, median"), lambda one: one.ttft_ms(0.5)),
        Part("lc-group-2", _("first token, 95th percentile"), lambda one: one.ttft_ms(0.95)),
        Part("lc-group-3", _("between tokens, median"), lambda one: one.gap_ms(0.5)),
        Part("lc-group-4", _("between tokens, 95th percentile"), lambda one: one.gap_ms(0.95)),
    )
    return chart(_("Times (ms)"), summary % values, points, parts, kind="line")


def cost_of(figures: Figures) -> float:
    """Return a cost for a chart, which needs no exact sum."""
    return round(figures["cost_nanos"] / NANOS, 6)


def cost_chart(points: Points, total: Figures) -> Chart:
    values = {"cost": cost_text(total["cost_nanos"])}
    values["most"] = busiest(points, cost_of, _("cost"), short_number)
    part = Part("lc-group-1", _("cost"), cost_of)
    return chart(_("Cost"), _("%(cost)s; %(most)s") % values, points, (part,))


def grouped_chart(
    title: str, points: Points, groups: Mapping[Any, str], of: Mapping[tuple[int, Any], Figures], measure: Measure
) -> Chart:
    """Return a chart of a measure by group: of those named, and of the rest of each period.

    `of`: the sums of the groups by the place of the period and the group.
    """
    values = list(groups)
    named = [[measure(of.get((place, value), Figures())) or 0 for place in range(len(points))] for value in values]
    sums = [sum(row[place] for row in named) for place in range(len(points))]
    rest = [max(0, round((measure(one) or 0) - known, 6)) for (_label, one), known in zip(points, sums, strict=True)]
    rows = [*zip(GROUP_COLOURS, groups.values(), named, strict=False)]
    if any(rest):
        rows.append((REST_COLOUR, _("others"), rest))
    totals = sorted(((round(sum(row), 6), name) for _css, name, row in rows if sum(row)), reverse=True)
    summary = "; ".join(f"{name} {short_number(total, 15)}" for total, name in totals)
    data: dict[str, Any] = {
        "labels": [label for label, _figures in points],
        "datasets": [{"label": name, "data": row, "backgroundColor": f"var(--{css})"} for css, name, row in rows],
    }
    legend = tuple((css, name) for css, name, _row in rows)
    return Chart(title, summary or _("none in this time."), legend, json.dumps(data), chart_options(data["datasets"]))


def chart(title: str, summary: str, points: Points, parts: Sequence[Part], kind: str = "bar") -> Chart:
    """Return the chart of the points. `parts`: from the bottom up."""
    datasets = []
    for part in parts:
        colour = f"var(--{part.css})"
        dataset = {"label": part.name, "data": [part.measure(one) for _label, one in points], "backgroundColor": colour}
        datasets.append(dataset if kind == "bar" else dataset | {"borderColor": colour, "pointRadius": 2})
    data = json.dumps({"labels": [label for label, _figures in points], "datasets": datasets})
    legend = tuple((part.css, part.name) for part in parts)
    return Chart(title, summary, legend, data, chart_options(datasets, is_stacked=kind == "bar"), kind)


def busiest(points: Points, measure: Measure, name: str, text: Callable[[float], str] = number) -> str:
    """Say in which period there was most of something."""
    label, top = max(points, key=lambda point: measure(point[1]) or 0)
    amount = measure(top)
    if not amount:
        return _("none in this time.")
    values = {"name": name, "amount": text(amount), "start": label}
    return _("the most %(name)s, %(amount)s, from %(start)s.") % values


def share(part: int, whole: int) -> str:
    return percent(part / whole, 1) if whole else "0 %"


def change_text(now: int, before: int) -> str:
    """Say how much more or less it is than before."""
    if now == before:
        return _("as before")
    if not before:
        return _("none before")
    return _("%(change)s against before") % {"change": f"{signed(100 * (now - before) / before, 1)} %"}
