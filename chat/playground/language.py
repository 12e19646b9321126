"""The language of pages: the reader's choice (a cookie), else the browser's. The console is in English alone."""

from __future__ import annotations

from django.http import HttpRequest
from django.middleware.locale import LocaleMiddleware
from django.utils import translation


class PageLanguageMiddleware(LocaleMiddleware):
    """Django's middleware, but for the console: half of its words, those of Django, would change their language."""

    def process_request(self, request: HttpRequest) -> None:
        if request.path_info.startswith("/admin/"):
            translation.activate("en")
            request.LANGUAGE_CODE = "en"
        else:
            super().process_request(request)
