"""The playground page and its sign-in. The page talks to consumers.py over a WebSocket."""

from __future__ import annotations

from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from chat.access.people import playground_is_open_to
from chat.access.sign_in import PlaygroundSignInForm
from chat.catalog.services import models_for_caller
from chat.playground.page_data import page_data


@never_cache
@require_safe
@login_required(login_url="sign_in")
def index(request: HttpRequest) -> HttpResponse:
    """Render the page with the models and their defaults. Everything else comes over the socket."""
    if not playground_is_open_to(request.user):
        # The socket would refuse, and the page would retry for ever.
        raise PermissionDenied
    models = models_for_caller()
    return render(
        request, "playground/index.html", {"models": models, "page": page_data(models, user_id=request.user.pk)}
    )


class SignIn(auth_views.LoginView):
    """Django's sign-in view with limits on failures."""

    template_name = "playground/sign_in.html"
    authentication_form = PlaygroundSignInForm
    redirect_authenticated_user = True
    next_page = "playground"


class SignOut(auth_views.LogoutView):
    """Django's sign-out view. Running answers go on until their detach grace ends."""

    next_page = "sign_in"
