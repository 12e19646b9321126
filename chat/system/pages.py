"""The system page of the console, and what is wrong on its first page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from chat.access.policy import may
from chat.access.roles import Act
from chat.alerts.models import Event
from chat.alerts.selectors import open_alerts
from chat.alerts.texts import alert_text, alert_title
from chat.console.pages import instant
from chat.system.about import packages, settings_shown, versions
from chat.system.facts import problems_of, system_sections
from chat.system.guide import guide_steps
from chat.usage.dashboard import dashboard_context


def system(request: HttpRequest) -> HttpResponse:
    """Show stores, queues, versions, licences and settings. Raises PermissionDenied."""
    if not may(request.user, Act.SYSTEM_SEE):
        raise PermissionDenied
    sections = system_sections()
    context = admin.site.each_context(request) | {
        "title": _("System"),
        "sections": sections,
        "problems": problems_of(sections),
        "versions": versions(),
        "packages": packages(),
        "settings_shown": settings_shown(),
    }
    return TemplateResponse(request, "admin/system.html", context)


def overview_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add what is wrong now and the first steps to the first page, for those who see and run the system.

    Open alerts are shown to all whom they concern, those of budgets too.
    """
    context = dashboard_context(request, context) | {"open_alerts": _alerts_shown(request)}
    if may(request.user, Act.SYSTEM_SEE):
        context["problems"] = problems_of(system_sections(is_brief=True))
    if may(request.user, Act.MODELS_MANAGE):
        context["guide"] = guide_steps(request)
    return context


def _alerts_shown(request: HttpRequest) -> list[dict[str, str]]:
    return [
        {
            "title": alert_title(alert, Event.FIRING),
            "text": alert_text(alert),
            "since": instant(alert.since),
            "link": reverse("admin:chat_alert_change", args=[alert.pk]),
        }
        for alert in open_alerts(request.user)
    ]


admin.site.pages.append(path("system/", admin.site.admin_view(system), name="system"))
