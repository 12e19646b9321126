"""Signed-in browsers of an account: the list, and signing them out.

`UserSession`, of django-allauth, tells whose browser has a session, and from where. Only web processes have its table
among their models.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from allauth.usersessions.models import UserSession
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from chat.access.sessions import session_touch
from chat.access.subjects import user_subject
from chat.audit.services import audit_record

MAX_LISTED = 100


class IdleSessionMiddleware:
    """Middleware that notes the use of a session. A request without one costs nothing."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        if iscoroutinefunction(self.get_response):
            return self._answer(request)
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            browser_seen(request)
        answer: HttpResponse = self.get_response(request)
        return answer

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            await sync_to_async(browser_seen)(request)
        answer: HttpResponse = await self.get_response(request)
        return answer


def browser_seen(request: HttpRequest) -> None:
    """Note the use of a signed-in session, and from where it is used."""
    if request.path_info == reverse("admin:live_snapshot"):
        return  # a page asks that by itself
    if SESSION_KEY in request.session and session_touch(request.session) and request.user.is_authenticated:
        UserSession.objects.create_from_request(request)


def browsers_of(user: Any) -> list[UserSession]:
    """Return where an account is signed in, the latest first. Rows of sessions that have ended are removed.

    Those whose session is gone are so by one query; the listed ones alone are asked whether their session still holds.
    """
    known = UserSession.objects.filter(user=user)
    live = Session.objects.filter(expire_date__gt=timezone.now())
    known.exclude(session_key__in=live.values("session_key")).delete()
    return [one for one in known.order_by("-last_seen_at", "-pk")[:MAX_LISTED] if not one.purge()]


def browser_sign_out(*, user: User, browser_id: int) -> bool:
    """End a session of an account. Return False if there is none of this id."""
    browser = UserSession.objects.filter(user=user, pk=browser_id).first()
    if browser is None:
        return False
    _end(browser)
    return True


def browsers_sign_out(*, user: User, except_key: str | None = None) -> int:
    """End all sessions of an account, but for the one of this session key, and return their number."""
    others = [one for one in UserSession.objects.filter(user=user) if one.session_key != except_key]
    for browser in others:
        _end(browser)
    return len(others)


def _end(browser: UserSession) -> None:
    audit_record(
        action="user.session_end",
        on=user_subject(browser.user),
        before={"address": browser.ip, "browser": browser_name(browser.user_agent)},
    )
    browser.end()


NAMES = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python", "Python"),
)
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_name(user_agent: str) -> str:
    """Return a short name such as `Firefox, Linux`, or the beginning of what the browser calls itself."""
    found = [next((name for mark, name in known if mark in user_agent), "") for known in (NAMES, SYSTEMS)]
    return ", ".join(filter(None, found)) or user_agent[:40] or "?"
