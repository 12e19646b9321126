"""The ASGI application: API routes without middleware, pages through settings.MIDDLEWARE, and the sockets of pages."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lightcone_site.settings")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()

# NOTE: these import models, so Django has to be set up first. All pages are among them: no request waits for imports.
from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import re_path  # noqa: E402

from chat.api.middleware import ApiHandler, is_api_path  # noqa: E402
from chat.live.urls import websocket_urlpatterns as live_urlpatterns  # noqa: E402
from chat.playground.origin import refuse_socket, same_origin_only  # noqa: E402
from chat.playground.urls import websocket_urlpatterns  # noqa: E402
from lightcone_site import urls  # noqa: E402, F401

api = ApiHandler()


async def http(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Choose the handler by the first segment of the path, never by a header."""
    handler = api if is_api_path(scope["path"]) else pages
    await handler(scope, receive, send)


sockets = URLRouter([*websocket_urlpatterns, *live_urlpatterns, re_path("", refuse_socket)])

application = ProtocolTypeRouter({"http": http, "websocket": same_origin_only(AuthMiddlewareStack(sockets))})
