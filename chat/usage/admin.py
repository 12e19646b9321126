"""The console page of the hourly sums, newest first. Every filter uses an index."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from chat.access import selectors
from chat.access.admin.scoped import ScopedPage
from chat.access.key_scope import of_own_keys
from chat.access.roles import Act
from chat.catalog.services import model_names
from chat.console.filters import TableFilter
from chat.console.pages import ReadOnlyNewestFirst, column, instant, milliseconds, number
from chat.usage.models import RequestLog, UsageHour
from chat.usage.prices import cost_text


class ColumnFilter(TableFilter):
    """A filter by equality on one indexed column, whose values are more than those offered."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset

    def shown(self) -> str:
        return super().shown() or self.value() or ""


class ModelFilter(ColumnFilter):
    title = "model"
    parameter_name = column = "model"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in model_names()]


class KeyFilter(ColumnFilter):
    title = "API key"
    parameter_name = "key"
    column = "key_public_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return selectors.key_choices(request.user)


class ProjectFilter(ColumnFilter):
    title = "project"
    parameter_name = "project"
    column = "project_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(pk), name) for pk, name in selectors.project_names(request.user).items()]

    def value(self) -> str | None:
        value = super().value()
        return value if value and value.isascii() and value.isdigit() and len(value) < 19 else None


class TokenColumns:
    """The columns that a request and an hour share."""

    show_completion = column("completion", "completion_tokens", number)
    show_cost = column("Cost", "cost_nanos", lambda nanos: cost_text(nanos) if nanos else "–")

    @display(description="Tokens: prompt (cached)")
    def show_prompt(self, row: RequestLog | UsageHour) -> str:
        return f"{row.prompt_tokens:,} ({row.cached_tokens:,})"


@admin.register(UsageHour)
class UsageHourAdmin(TokenColumns, ReadOnlyNewestFirst, ScopedPage):
    see = Act.USAGE_SEE
    list_display = (
        "show_period",
        "model",
        "key_public_id",
        "show_class",
        "show_requests",
        "show_left",
        "show_prompt",
        "show_completion",
        "show_cost",
        "show_mean_duration",
    )
    list_filter = (ModelFilter, KeyFilter, ProjectFilter)
    list_display_links = None

    def own_rows(self, request: HttpRequest) -> Q:
        return of_own_keys(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super().has_view_permission(request)

    show_period = column("Hour from", "period_start", instant)
    show_class = column("Status", "status_class", lambda first_digit: f"{first_digit}xx")
    show_requests = column("Requests", "num_requests", number)
    show_left = column("Clients who left", "num_left", number)

    @display(description="Mean duration")
    def show_mean_duration(self, hour: UsageHour) -> str:
        return milliseconds(hour.duration_ms / hour.num_requests if hour.num_requests else None)
