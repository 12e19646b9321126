"""Rights of callers on API routes, and permissions of signed-in users on pages."""

from __future__ import annotations

from typing import Any

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.errors import ApiError

USE_PLAYGROUND = "chat.use_playground"
SEE_USAGE = "chat.view_usagehour"


def right_require(caller: Caller, right: str) -> None:
    """Raise ApiError 403 unless the key has the right, one of `Right`."""
    if not caller.has_right(right):
        raise ApiError(
            "permission_denied",
            f"This API key does not have the right {Right(right).label!r}; give it in the console under API keys.",
        )


def playground_is_open_to(user: Any) -> bool:
    """Return True if this user may chat. Every new account may, until an administrator takes the permission away."""
    return bool(user.is_active and user.has_perm(USE_PLAYGROUND))
