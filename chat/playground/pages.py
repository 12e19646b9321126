"""Small answers beside the playground: the manifest that browsers install it by, the page of a defect, the texts."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.utils.translation import get_language
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from chat.api.view import request_id
from chat.playground.strings import page_strings

logger = logging.getLogger(__name__)
ICON_SIZES = (192, 512)


@require_safe
@cache_control(max_age=3600)
def manifest(request: HttpRequest) -> JsonResponse:
    """Return the web app manifest (https://www.w3.org/TR/appmanifest/). The names of its icons may carry hashes."""
    icons = [{"src": static("chat/mark.svg"), "sizes": "any", "type": "image/svg+xml", "purpose": "any"}]
    for size in ICON_SIZES:
        icon = {"src": static(f"chat/icon-{size}.png"), "sizes": f"{size}x{size}", "type": "image/png"}
        icons += [icon | {"purpose": "any"}, icon | {"purpose": "maskable"}]
    described = {
        "id": "/",
        "name": "Lightcone",
        "short_name": "Lightcone",
        "start_url": "/",
        "scope": "/",
        "display": "standalone",
        "background_color": "#141319",
        "theme_color": "#141319",
        "icons": icons,
    }
    return JsonResponse(described, content_type="application/manifest+json")


@require_safe
def strings(request: HttpRequest) -> JsonResponse:
    """Return the playground's texts in the reader's language, by their English form."""
    language = get_language() or "en"
    return JsonResponse({"language": language, "strings": page_strings(language)})


def server_error(request: HttpRequest) -> HttpResponse:
    """Render the page of a defect, whose request id stands in the log beside the traceback."""
    number = request_id(request)
    logger.error("Request %s failed: %s %s", number, request.method, request.path[:200])
    response = render(request, "500.html", {"request_id": number}, status=500)
    response["X-Request-Id"] = number
    return response
