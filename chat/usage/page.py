"""The console's page of usage and costs: tiles, charts, tables by period and by group, and files of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import escape
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _

from chat.access.policy import may, orgs_reached
from chat.access.roles import Act
from chat.console.export import CONTENT_TYPES, export_response
from chat.console.figures import milliseconds, number
from chat.console.zones import zone_names, zone_of_browser
from chat.usage.charts import (
    GROUP_COLOURS,
    Chart,
    change_text,
    cost_chart,
    cost_of,
    grouped_chart,
    requests_chart,
    share,
    tiles,
    times_chart,
    tokens_chart,
)
from chat.usage.form import FILTERS, GROUPS, Choice, UsageForm
from chat.usage.log_export import export_record
from chat.usage.measures import instant_of
from chat.usage.models import HOUR, Dimension
from chat.usage.names import name_for, names_of
from chat.usage.prices import NANOS, cost_text
from chat.usage.scope import UsageScope, usage_scope
from chat.usage.selectors import MOST_GROUPS, ORG, Figures, UsageReader
from chat.usage.spans import Span

PERIODS_AT_ONCE = {HOUR: 24, 24: 7}
"""Of a file, by the length of the periods."""
IN_THE_LOG = {
    Dimension.PROJECT: ("project", "{}"),
    Dimension.KEY: ("key", "{}"),
    Dimension.MODEL: ("model", "{}"),
    Dimension.USER: ("account", "#{}"),
    Dimension.ROUTE: ("route", "{}"),
}
"""The filter of the request log by dimension, and how its values are written."""
COUNTS = (
    *("num_requests", "num_theirs", "num_ours", "num_left"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
)
FILE_COLUMNS = (
    *("from", "until", "group_by", "group", "name"),
    *("requests", "client_errors", "server_errors", "clients_left"),
    *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost", "currency"),
    *("first_token_ms_p50", "first_token_ms_p95", "token_gap_ms_p50", "token_gap_ms_p95"),
)
PARTS = ("periods", "groups")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    name: str
    cells: str
    """Cells of the table, as HTML."""
    change: str = ""
    """How many requests more or less there were before."""
    narrow: str = ""
    """The query string of this page with what the row is about alone."""
    log: str = ""
    """The address of its requests in the log."""


def usage(request: HttpRequest) -> HttpResponse:
    """Show what the user sees of the usage. Raises PermissionDenied."""
    scope, form, choice = _asked(request)
    asked = choice.asked
    reader, span = UsageReader(scope, asked), asked.span
    found = reader.points(span)
    periods = [(start, found.get(number, Figures())) for number, start in span.periods()]
    points = [(_label(span, start), figures) for start, figures in periods]
    total = Figures()
    for figures in found.values():
        total.add(figures)
    before = reader.total(span.before())
    groups = reader.groups(span) if asked.group else []
    names = names_of(asked.group, [value for value, _figures in groups[:MOST_GROUPS]])
    context = {
        "title": _("Usage"),
        "form": form,
        "notes": choice.notes,
        "is_own": scope.is_own,
        "zone_names": zone_names(),
        "span_text": _span_text(span),
        "tiles": tiles(total, before),
        "charts": _charts(reader, points, total, names),
        "group_name": GROUPS.get(asked.group, ""),
        "groups": [*_group_rows(request, reader, groups[:MOST_GROUPS], names)],
        "num_more_groups": max(0, len(groups) - MOST_GROUPS),
        "has_many_groups": len(groups) > MOST_GROUPS,
        "periods": [Row(_label(span, start, is_full=True), _cells(figures)) for start, figures in reversed(periods)],
        "total": _cells(total),
        "filters": _filter_chips(request, asked.filters, has_rows=bool(total["num_requests"])),
        "exports": _exports(request, asked.group),
    }
    return TemplateResponse(request, "admin/usage.html", admin.site.each_context(request) | context)


def usage_export(request: HttpRequest, part: str, format_name: str) -> HttpResponseBase:
    """Stream what the page shows of periods or groups, all groups included. Raises PermissionDenied."""
    if part not in PARTS or format_name not in CONTENT_TYPES:
        raise Http404
    scope, form, choice = _asked(request)
    if not form.is_valid():
        return redirect(f"{reverse('admin:usage')}?{request.GET.urlencode()}")
    reader = UsageReader(scope, choice.asked)
    what: Any = {"act": Act.USAGE_SEE, "action": "usage.export", "filters": request.GET.dict()}
    export_record(user=request.user, format_name=format_name, **what)
    rows = _period_pages(reader) if part == "periods" else _group_pages(reader)
    return export_response(
        rows, columns=FILE_COLUMNS, values=dict, format_name=format_name, name=f"lightcone-usage-{part}"
    )


def _asked(request: HttpRequest) -> tuple[UsageScope, UsageForm, Choice]:
    if not may(request.user, Act.USAGE_SEE):
        raise PermissionDenied
    scope = usage_scope(request.user)
    form = UsageForm(request.GET, zone_of_browser(request))
    if orgs_reached(request.user, Act.USAGE_SEE).count() < 2:
        form.fields["group"].choices = [one for one in GROUPS.items() if one[0] != ORG]
    return scope, form, form.choice(is_quick=scope.totals is not None)


def _charts(
    reader: UsageReader, points: Sequence[tuple[str, Figures]], total: Figures, names: Mapping[Any, str]
) -> list[Chart]:
    has_cost = bool(total["cost_nanos"])
    if not names:
        charts = [requests_chart(points, total), tokens_chart(points, total), times_chart(points, total)]
        return [*charts, cost_chart(points, total)] if has_cost else charts
    span = reader.asked.span
    first = dict(list(names.items())[: len(GROUP_COLOURS)])
    places = {number: place for place, (number, _start) in enumerate(span.periods())}
    found = reader.points_of(span, first)
    of = {(places[number], value): figures for (number, value), figures in found.items()}
    charts = [
        grouped_chart(_("Requests"), points, first, of, lambda one: one["num_requests"]),
        grouped_chart(_("Tokens"), points, first, of, lambda one: one["prompt_tokens"] + one["completion_tokens"]),
    ]
    return [*charts, grouped_chart(_("Cost"), points, first, of, cost_of)] if has_cost else charts


def _group_rows(
    request: HttpRequest, reader: UsageReader, groups: Sequence[tuple[Any, Figures]], names: Mapping[Any, str]
) -> Iterator[Row]:
    """Yield the rows of the table of groups."""
    asked = reader.asked
    if not groups:
        return
    before = reader.groups_of(asked.span.before(), [value for value, _figures in groups])
    sees_log = may(request.user, Act.LOGS_SEE)
    for value, figures in groups:
        text = str(value)
        change = change_text(figures["num_requests"], before.get(value, Figures())["num_requests"])
        narrow = _query(request, **{asked.group: text, "group": ""}) if asked.group in FILTERS and text else ""
        log = ""
        if sees_log and text not in ("", "0") and asked.group in IN_THE_LOG:
            name, written = IN_THE_LOG[Dimension(asked.group)]
            query = urlencode({name: written.format(text), **_log_times(asked.span)})
            log = f"{reverse('admin:chat_requestlog_changelist')}?{query}"
        yield Row(names[value], _cells(figures), change, narrow, log)


def _log_times(span: Span) -> dict[str, str]:
    """Return the filters of the request log by the time of a span."""
    ends = {"from": span.start_h, "until": span.end_h}
    return {name: f"{instant_of(hour).astimezone(UTC):%Y-%m-%dT%H:%M}" for name, hour in ends.items()}


def _cells(figures: Figures) -> str:
    """Return the cells of a row as HTML. Together, as templates take long over thousands of them."""
    counts = tuple(number(figures[name]) for name in COUNTS)
    times = (figures.ttft_ms(0.5), figures.ttft_ms(0.95), figures.gap_ms(0.5), figures.gap_ms(0.95))
    errors = share(figures["num_ours"] + figures["num_theirs"], figures.num_ended)
    texts = (*counts, errors, cost_text(figures["cost_nanos"]), *(milliseconds(one) for one in times))
    cells = str(escape("\n".join(texts))).replace("\n", "</td><td>")
    return mark_safe(f"<td>{cells}</td>")  # noqa: S308  (escaped above)


def _filter_chips(request: HttpRequest, filters: Mapping[str, Any], *, has_rows: bool) -> list[tuple[str, str, str]]:
    """Return the dimension, the name and the query string without it, of each filter.

    `has_rows`: the user sees rows of these values. Of others only what the user sees elsewhere has a name.
    """
    return [
        (
            str(GROUPS[name]),
            names_of(name, [value])[value] if has_rows else name_for(request.user, name, value),
            _query(request, **{name: ""}),
        )
        for name, value in filters.items()
    ]


def _query(request: HttpRequest, **changed: str) -> str:
    """Return the query string of this page with some values changed, without those that are empty."""
    values = {name: value for name, value in {**request.GET.dict(), **changed}.items() if value}
    return f"?{urlencode(values)}"


def _exports(request: HttpRequest, group: str) -> list[tuple[str, str]]:
    """Return name and address of each file."""
    parts = [("periods", _("over time")), *([("groups", _("the table"))] if group else [])]
    formats = (("csv", "CSV"), ("jsonl", "JSON"))
    return [
        (f"{name} {format_label}" if group else format_label, f"{_export_url(part, format_name)}{_query(request)}")
        for part, name in parts
        for format_name, format_label in formats
    ]


def _export_url(part: str, format_name: str) -> str:
    return reverse("admin:usage_export", args=[part, format_name])


def _period_pages(reader: UsageReader) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each period and group, the oldest first."""
    asked = reader.asked
    for span in asked.span.parts(PERIODS_AT_ONCE[asked.span.length_h]):
        starts = dict(span.periods())
        ends = dict(zip(starts, [*list(starts.values())[1:], _instant(span, span.end_h)], strict=True))
        rows = reader.every_point(span)
        names = names_of(asked.group, {value for _number, value, _figures in rows})
        page = [
            _file_row((starts[number], ends[number]), asked.group, value, names[value], figures)
            for number, value, figures in rows
        ]
        if page:
            yield page


def _group_pages(reader: UsageReader) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of the groups over the whole span, those with most requests first."""
    asked = reader.asked
    times = (_instant(asked.span, asked.span.start_h), _instant(asked.span, asked.span.end_h))
    groups = reader.groups(asked.span, every_histogram=True)
    for begin in range(0, len(groups), MOST_GROUPS):
        some = groups[begin : begin + MOST_GROUPS]
        names = names_of(asked.group, [value for value, _figures in some])
        yield [_file_row(times, asked.group, value, names[value], figures) for value, figures in some]


def _file_row(times: tuple[datetime, datetime], group: str, value: Any, name: str, figures: Figures) -> dict[str, Any]:
    """Return a row of a file by column."""
    shares = (figures.ttft_ms(0.5), figures.ttft_ms(0.95), figures.gap_ms(0.5), figures.gap_ms(0.95))
    cost = f"{Decimal(figures['cost_nanos']) / NANOS:f}"
    values = (
        *(instant.isoformat() for instant in times),
        *(group, str(value), name if group else ""),
        *(figures[one] for one in COUNTS),
        *(cost, settings.LIGHTCONE_CURRENCY),
        *(None if one is None else round(one, 1) for one in shares),
    )
    return dict(zip(FILE_COLUMNS, values, strict=True))


def _instant(span: Span, hour: int) -> datetime:
    return instant_of(hour).astimezone(span.zone)


def _label(span: Span, start: datetime, *, is_full: bool = False) -> str:
    if span.length_h == HOUR:
        return f"{start:%Y-%m-%d %H:%M}" if is_full or span.end_h - span.start_h > 24 else f"{start:%H:%M}"
    return f"{start:%Y-%m-%d}"


def _span_text(span: Span) -> str:
    """Say from when to when, and in which zone."""
    first, end = _instant(span, span.start_h), _instant(span, span.end_h)
    values = {"first": f"{first:%Y-%m-%d %H:%M}", "end": f"{end:%Y-%m-%d %H:%M}", "zone": span.zone.key}
    return _("%(first)s to %(end)s, %(zone)s") % values


admin.site.pages += [
    path("usage/", admin.site.admin_view(usage), name="usage"),
    path("usage/<str:part>.<str:format_name>", admin.site.admin_view(usage_export), name="usage_export"),
]
