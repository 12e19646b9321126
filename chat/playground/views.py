"""The pages of the playground: the chat, and shared chats.

The chat talks to consumers.py over a WebSocket, and to the routes below /playground/api/.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import get_language, gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_safe

from chat.access.accounts import chats_may_be_shared, playground_caller
from chat.access.addresses import request_address
from chat.access.authentication import configuration_refresh
from chat.access.keys import Caller, KeyInvalid
from chat.access.people import administrators_named, console_is_open_to
from chat.access.policy import may
from chat.access.roles import Act
from chat.access.sign_in import minutes_to_wait
from chat.conversations.drafts import draft_get
from chat.conversations.sharing import PasswordWanted, link_read, link_unlock
from chat.conversations.views import NOT_INDEXED
from chat.errors import ApiError
from chat.playground.kept import state_get
from chat.playground.offered import models_offered
from chat.playground.requests import FIELDS_TAKEN
from chat.playground.strings import page_strings
from engine.api import MAX_FILES


@never_cache
@require_safe
@login_required(login_url="sign_in")
async def index(request: HttpRequest, **address: str) -> HttpResponse:
    """Render the page with what it needs at once. It reads the conversation that its address names itself."""
    user = await request.auser()
    try:
        caller = await database_sync_to_async(playground_caller)(user=user)
    except KeyInvalid:
        # The socket would refuse, and the page would retry for ever.
        return await database_sync_to_async(_closed)(request)
    page = await page_data(request, user=user, caller=caller)
    response: HttpResponse = await database_sync_to_async(render)(request, "playground/index.html", {"page": page})
    response["Permissions-Policy"] = "camera=(), microphone=(self), geolocation=()"  # messages may be spoken
    return response


async def page_data(request: HttpRequest, *, user: Any, caller: Caller) -> dict[str, Any]:
    """Return the page's data. `user`: whose storage the page may read; `max_bytes`: of one message to the socket."""
    await configuration_refresh()
    language = get_language() or "en"
    return {
        "user": user.pk,
        "user_name": user.get_username(),
        "has_console": await database_sync_to_async(console_is_open_to)(user),
        "manages_models": await database_sync_to_async(may)(user, Act.MODELS_MANAGE),
        "csrf_token": get_token(request),
        "models": await models_offered(
            caller=caller, sees_reasons=await database_sync_to_async(may)(user, Act.MODELS_SEE)
        ),
        "fields": sorted(FIELDS_TAKEN),
        "max_bytes": settings.LIGHTCONE_HTTP_LIMITS.max_ws_message_bytes,
        "max_body_bytes": settings.LIGHTCONE_HTTP_LIMITS.max_page_body_bytes,
        "media": {
            "max_items": settings.LIGHTCONE_MEDIA_LIMITS.max_media_items,
            "max_files": MAX_FILES,
            "max_file_bytes": settings.LIGHTCONE_LIMITS.max_file_bytes,
        },
        "language": language,
        "strings": page_strings(language),
        "state": await database_sync_to_async(state_get)(user_id=user.pk),
        "draft": await database_sync_to_async(draft_get)(user_id=user.pk, conversation=None),
        "admins_can_read": settings.LIGHTCONE_CHAT_ADMIN_READ,
        "sharing": await database_sync_to_async(chats_may_be_shared)(user=user),
        "urls": {
            "console": reverse("admin:index"),
            "docs": "/docs",
            "sign_out": reverse("sign_out"),
            "account": reverse("account"),
            "mark": static("chat/mark.svg"),
        },
    }


# NOTE: no token against forged requests. The form changes nothing, and as the page names no referrer, browsers send it
# without an origin, which Django's check would refuse.
@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Render the copy of a conversation that a link shows, for everybody; 404 where the link shows nothing.

    Where the link asks for a password, a form that posts it here comes first.
    """
    try:
        if request.method == "POST":
            password = request.POST.get("password", "")
            copy = link_unlock(token=token, password=password, address=request_address(request))
        else:
            copy = link_read(token=token)
    except PasswordWanted as wanted:
        return shared_response(request, {"problem": _problem(wanted)}, template="playground/shared_locked.html")
    except ApiError:
        return shared_response(request, {"is_gone": True}, status=404)
    day = datetime.fromtimestamp(copy["shared_at"], tz=UTC)
    language = get_language() or "en"
    page = {"language": language, "strings": page_strings(language)}
    context = {"title": copy["title"], "turns": copy["turns"], "day": day, "page": page}
    return shared_response(request, context)


def shared_response(
    request: HttpRequest, context: dict[str, Any], *, status: int = 200, template: str = "playground/shared.html"
) -> HttpResponse:
    response = render(request, template, context, status=status)
    for name, value in NOT_INDEXED.items():
        response[name] = value
    return response


def _problem(wanted: PasswordWanted) -> str:
    """Return why the password is asked for again, empty at first."""
    if not wanted.wait_s:
        return gettext("This password is wrong.") if wanted.is_wrong else ""
    minutes = minutes_to_wait(wanted.wait_s)
    if minutes > 1:
        return gettext("Too many wrong passwords. Try again in %(minutes)s minutes.") % {"minutes": minutes}
    return gettext("Too many wrong passwords. Try again in a minute.")


def _closed(request: HttpRequest) -> HttpResponse:
    """Render the page for an account without access, which says whom to ask."""
    administrators = administrators_named() if settings.LIGHTCONE_NAME_ADMINISTRATORS else []
    return render(request, "playground/closed.html", {"administrators": administrators}, status=403)
