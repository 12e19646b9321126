"""How long a session lasts: until it is idle for too long, and in any case not longer than SESSION_COOKIE_AGE.

Idle is LIGHTCONE_SESSION_IDLE_MINUTES without a request. The row of a session is written at most once a minute, however
many requests use it.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_logged_in

SEEN, BEGUN = "seen_at", "begun_at"
TOUCH_S = 60


def sessions_connect() -> None:
    """Let each sign-in begin the time of its session."""
    user_logged_in.connect(_begin, dispatch_uid="session_begin")


def _begin(sender: Any, request: Any, **_: Any) -> None:
    if hasattr(request, "session"):
        for name in (SEEN, BEGUN):
            request.session.pop(name, None)
        session_touch(request.session)


def session_touch(session: Any) -> bool:
    """Move the end of a session, unless that was done within the last minute. Return True if it has to be saved."""
    now = int(time.time())
    if now - session.get(SEEN, 0) < TOUCH_S:
        return False
    left_s = session.setdefault(BEGUN, now) + settings.SESSION_COOKIE_AGE - now
    session[SEEN] = now
    session.set_expiry(max(1, min(settings.LIGHTCONE_SESSION_IDLE_MINUTES * 60, left_s)))
    return True
