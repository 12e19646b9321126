"""What a caller may do on an API route, beyond having a good key."""

from __future__ import annotations

from chat.errors import ApiError
from chat.models.access import Right
from chat.services.keys import Caller


def right_require(caller: Caller, right: str) -> None:
    """Raise ApiError 403 unless the key has the right, one of `Right`."""
    if not caller.has_right(right):
        raise ApiError(
            "permission_denied", f"This API key does not have the right {Right(right).label!r}; give it in the console under API keys."
        )
