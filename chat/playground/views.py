"""The playground page and its sign-in. The page talks to consumers.py over a WebSocket."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import get_language
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chat.access.people import playground_is_open_to
from chat.access.sign_in import PlaygroundSignInForm
from chat.catalog.model_facts import model_facts
from chat.catalog.services import NEUTRAL, ModelEntry, models_for_caller, sampling_defaults_effective
from chat.playground.requests import FIELDS_TAKEN
from engine.api import ModelKind

WITH_A_SLIDER = ("temperature", "top_p")


@never_cache
@require_safe
@login_required(login_url="sign_in")
def index(request: HttpRequest, **address: str) -> HttpResponse:
    """Render the page with what it needs at once. It reads the conversation that its address names itself."""
    if not playground_is_open_to(request.user):
        # The socket would refuse, and the page would retry for ever.
        raise PermissionDenied
    return render(request, "playground/index.html", {"page": page_data(request)})


def chat_models() -> list[ModelEntry]:
    """Return the models that chat, the default first, each followed by its adapters."""
    found = [entry for entry in models_for_caller() if model_facts(entry.path).kind == ModelKind.CHAT]
    return [replace(entry, adapter=adapter) for entry in found for adapter in ("", *entry.adapters)]


def page_data(request: HttpRequest) -> dict[str, Any]:
    """Return the page's data. `user`: whose storage the page may read; `max_bytes`: of one message to the socket."""
    return {
        "user": request.user.pk,
        "user_name": request.user.get_username(),
        "is_staff": request.user.is_staff,
        "csrf_token": get_token(request),
        "models": [model_object(model) for model in chat_models()],
        "fields": sorted(FIELDS_TAKEN),
        "max_bytes": settings.LIGHTCONE_HTTP_LIMITS.max_ws_message_bytes,
        "language": get_language(),
        "strings": {},
        "state": {},
        "admins_can_read": settings.LIGHTCONE_CHAT_ADMIN_READ,
        "urls": {
            "console": reverse("admin:index"),
            "docs": "/docs",
            "sign_out": reverse("sign_out"),
            "mark": static("chat/mark.svg"),
        },
    }


def model_object(model: ModelEntry) -> dict[str, Any]:
    is_default = model.is_default and not model.adapter
    return {"id": model.full_name, "is_default": is_default, "defaults": model_defaults(model)}


def model_defaults(model: ModelEntry) -> dict[str, Any]:
    """Return the model's defaults that are not neutral, and those that the panel always shows."""
    effective = sampling_defaults_effective(model.sampling_defaults)
    return {name: value for name, value in effective.items() if name in WITH_A_SLIDER or value != NEUTRAL[name]}


class SignIn(auth_views.LoginView):
    """Django's sign-in view with limits on failures."""

    template_name = "playground/sign_in.html"
    authentication_form = PlaygroundSignInForm
    redirect_authenticated_user = True
    next_page = "playground"


class SignOut(auth_views.LogoutView):
    """Django's sign-out view. Running answers go on until their detach grace ends."""

    next_page = "sign_in"
