"""The console's site: django-unfold's, open to everybody who has a role."""

from __future__ import annotations

from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite

from chat.access.people import console_is_open_to


class ConsoleSite(UnfoldAdminSite):
    def has_permission(self, request: HttpRequest) -> bool:
        """Return True for people with a role in any organisation. What they see on a page is the page's matter."""
        return console_is_open_to(request.user)
