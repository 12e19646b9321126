"""What every page may show of the roles of its user."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from chat.access.people import console_is_open_to, playground_is_open_to


def roles(request: HttpRequest) -> dict[str, Any]:
    """Return `has_console` and `has_playground`, which are read from the database only where a page asks for them."""
    return {
        "has_console": SimpleLazyObject(lambda: console_is_open_to(request.user)),
        "has_playground": SimpleLazyObject(lambda: playground_is_open_to(request.user)),
    }
