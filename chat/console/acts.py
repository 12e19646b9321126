"""Pages about one act of the console: one that asks before it, and one that shows a secret that it made, once."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.translation import gettext as _


def confirm_page(
    request: HttpRequest, *, act: str, subject: str, effect: str, back: str, is_dangerous: bool = False
) -> TemplateResponse:
    """Return the page that names what an act hits and does. Its button posts to the same address."""
    title = _("%(act)s %(subject)s") % {"act": act, "subject": subject}
    context = {"title": title, "act": act, "subject": subject, "effect": effect, "back": back}
    return act_page(request, "admin/confirm_act.html", context | {"is_dangerous": is_dangerous})


def shown_once_page(request: HttpRequest, template: str, context: dict[str, Any]) -> TemplateResponse:
    """Return a page with a secret, which no cache keeps."""
    answer = act_page(request, template, context)
    add_never_cache_headers(answer)
    return answer


def act_page(request: HttpRequest, template: str, context: dict[str, Any]) -> TemplateResponse:
    """Return a page of the console outside of Django's own."""
    return TemplateResponse(request, template, admin.site.each_context(request) | {"is_popup": False} | context)
