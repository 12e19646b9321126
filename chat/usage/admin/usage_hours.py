"""Console pages of the hourly sums, newest first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from chat.console.fields import instant, milliseconds
from chat.console.newest_first import ReadOnlyNewestFirst
from chat.usage.admin.request_log import KeyFilter, ModelFilter, ProjectFilter
from chat.usage.models import UsageHour
from chat.usage.prices import cost_text


@admin.register(UsageHour)
class UsageHourAdmin(ReadOnlyNewestFirst):
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

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super().has_view_permission(request)

    @display(description="Hour from")
    def show_period(self, hour: UsageHour) -> str:
        return instant(hour.period_start)

    @display(description="Status")
    def show_class(self, hour: UsageHour) -> str:
        return f"{hour.status_class}xx"

    @display(description="Requests")
    def show_requests(self, hour: UsageHour) -> str:
        return f"{hour.num_requests:,}"

    @display(description="Clients who left")
    def show_left(self, hour: UsageHour) -> str:
        return f"{hour.num_left:,}"

    @display(description="Tokens: prompt (cached)")
    def show_prompt(self, hour: UsageHour) -> str:
        return f"{hour.prompt_tokens:,} ({hour.cached_tokens:,})"

    @display(description="completion")
    def show_completion(self, hour: UsageHour) -> str:
        return f"{hour.completion_tokens:,}"

    @display(description="Cost")
    def show_cost(self, hour: UsageHour) -> str:
        return cost_text(hour.cost_nanos) if hour.cost_nanos else "–"

    @display(description="Mean duration")
    def show_mean_duration(self, hour: UsageHour) -> str:
        return milliseconds(hour.duration_ms / hour.num_requests if hour.num_requests else None)
