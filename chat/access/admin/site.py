"""The console's site: django-unfold's, open to everybody who has a role."""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import URLPattern
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
