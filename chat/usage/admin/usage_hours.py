"""Console pages of the hourly sums, newest first."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display

from chat.console.fields import column, instant, milliseconds, number
from chat.console.newest_first import ReadOnlyNewestFirst
from chat.usage.admin.request_log import KeyFilter, ModelFilter, ProjectFilter, TokenColumns
from chat.usage.models import UsageHour


@admin.register(UsageHour)
class UsageHourAdmin(TokenColumns, ReadOnlyNewestFirst):
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

    show_period = column("Hour from", "period_start", instant)
    show_class = column("Status", "status_class", lambda first_digit: f"{first_digit}xx")
    show_requests = column("Requests", "num_requests", number)
    show_left = column("Clients who left", "num_left", number)

    @display(description="Mean duration")
    def show_mean_duration(self, hour: UsageHour) -> str:
        return milliseconds(hour.duration_ms / hour.num_requests if hour.num_requests else None)
