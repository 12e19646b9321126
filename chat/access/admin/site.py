"""The console's site: django-unfold's, open to everybody who has a role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import LogoutView
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, reverse
from django.utils.http import urlencode
from unfold.sites import UnfoldAdminSite

from chat.access.people import console_is_open_to


class ConsoleSite(UnfoldAdminSite):
    def __init__(self, name: str = "admin") -> None:
        super().__init__(name)
        self.pages: list[URLPattern] = []
        """The pages that belong to no table. Rooms add theirs when they are imported."""

    def extra_urls(self) -> list[URLPattern]:
        return self.pages

    def has_permission(self, request: HttpRequest) -> bool:
        """Return True for people with a role in any organisation. What they see on a page is the page's matter."""
        return console_is_open_to(request.user)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Lead to the one sign-in page. Raises PermissionDenied for a signed-in user who has no role."""
        if request.user.is_authenticated and not console_is_open_to(request.user):
            raise PermissionDenied
        wanted = request.GET.get(REDIRECT_FIELD_NAME) or reverse("admin:index")
        return redirect(f"{reverse('sign_in')}?{urlencode({REDIRECT_FIELD_NAME: wanted})}")

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Lead to the account's own page."""
        return redirect("account_change_password")

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Sign out, as the playground does."""
        answer: HttpResponse = LogoutView.as_view(next_page="sign_in")(request)
        return answer
