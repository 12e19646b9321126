"""The console's page of the request log, newest first. Every filter uses an index."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from chat.access import selectors
from chat.access.admin.scoped import ScopedPage
from chat.access.roles import Act
from chat.catalog.services import model_names
from chat.console.pages import ReadOnlyNewestFirst, column, instant, milliseconds, number
from chat.relay.state.keys import run_id_floor
from chat.usage.models import RequestLog
from chat.usage.prices import cost_text
from chat.usage.scope import own_usage
from engine.api import Outcome

SPANS = {"1h": ("last hour", 1), "24h": ("last 24 hours", 24), "7d": ("last 7 days", 168), "30d": ("last 30 days", 720)}
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "show_cost")
STATUSES = (200, 400, 401, 403, 404, 408, 413, 429, 499, 500, 503)


class TimeFilter(DropdownFilter):
    """A filter by age: a range of the primary key, as run ids begin with their time."""

    title = "time"
    parameter_name = "span"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in SPANS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[RequestLog]) -> QuerySet[RequestLog]:
        if self.value() in SPANS:
            since = timezone.now() - timedelta(hours=SPANS[self.value()][1])
            return queryset.filter(pk__gte=run_id_floor(since))
        return queryset


class ColumnFilter(DropdownFilter):
    """A filter by equality on one indexed column."""

    column = ""

    def has_output(self) -> bool:
        return True

    def value(self) -> str | None:
        value = super().value()
        return None if value is None or "\0" in value else value

    def queryset(self, request: HttpRequest, queryset: QuerySet[RequestLog]) -> QuerySet[RequestLog]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset


class OutcomeFilter(ColumnFilter):
    title = "outcome"
    parameter_name = column = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(outcome.value, outcome.value.replace("_", " ")) for outcome in Outcome]


class StatusFilter(ColumnFilter):
    title = "status"
    parameter_name = column = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(status), str(status)) for status in STATUSES]

    def value(self) -> str | None:
        value = super().value()
        return value if value in {str(status) for status in STATUSES} else None


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


@admin.register(RequestLog)
class RequestLogAdmin(ReadOnlyNewestFirst, ScopedPage):
    see = Act.LOGS_SEE
    list_display = (
        "show_time",
        "show_outcome",
        "status",
        "model",
        "key_public_id",
        "show_prompt",
        "show_completion",
        "show_cost",
        "show_ttft",
        "show_duration",
        "finish_reason",
    )
    list_filter = (TimeFilter, OutcomeFilter, StatusFilter, ModelFilter, KeyFilter, ProjectFilter)
    search_fields = ("run_id",)
    search_help_text = "Run id, the id that the client sent, or a batch's: exact"
    fieldsets = (
        (None, {"fields": ("run_id", "show_arrived", "outcome", "status", "finish_reason", "error_code")}),
        (
            "Request",
            {
                "fields": (
                    "model_asked",
                    "model",
                    "dialect",
                    "route",
                    "is_stream",
                    "client_request_id",
                    "batch_id",
                    "user_label",
                    "metadata",
                )
            },
        ),
        (
            "Tokens",
            {"fields": TOKENS},
        ),
        ("Time", {"fields": ("show_queue", "show_ttft", "show_duration", "attempts", "worker")}),
        ("Caller", {"fields": ("key_public_id", "show_project", "address", "user_agent", "retry_count", "patience_s")}),
    )

    show_completion = column("completion", "completion_tokens", number)
    show_cost = column("Cost", "cost_nanos", lambda nanos: cost_text(nanos) if nanos else "–")

    @display(description="Tokens: prompt (cached)")
    def show_prompt(self, log: RequestLog) -> str:
        return f"{log.prompt_tokens:,} ({log.cached_tokens:,})"

    def own_rows(self, request: HttpRequest) -> Q:
        return own_usage(request.user)

    def get_search_results(self, request: HttpRequest, queryset: QuerySet, search_term: str) -> tuple[QuerySet, bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.startswith("batch_"):
            return queryset.filter(batch_id=term.replace("\0", "")), False
        try:
            return queryset.filter(pk=UUID(hex=term)), False
        except ValueError:
            return queryset.filter(client_request_id=term), False

    @display(description="Time (UTC)")
    def show_time(self, log: RequestLog) -> str:
        return f"{log.arrived_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    show_arrived = column("Arrived", "arrived_at", instant)
    show_queue = column("Time in queue", "queue_ms", milliseconds)
    show_ttft = column("First token", "ttft_ms", milliseconds)
    show_duration = column("Duration", "duration_ms", milliseconds)

    @display(
        description="Outcome",
        label={
            "finished": "success",
            "stopped": "info",
            "disconnected": "warning",
            "timed out": "warning",
            "rejected": "warning",
            "interrupted": "danger",
            "failed": "danger",
            "worker lost": "danger",
        },
    )
    def show_outcome(self, log: RequestLog) -> str:
        return log.outcome.replace("_", " ")

    @display(description="Project")
    def show_project(self, log: RequestLog) -> str:
        return selectors.project_name(log.project_id)
