"""The console's sign-in: unfold's form with the bounds on failures. Outside chat.admin, as the admin site imports it while it is made."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from unfold.forms import AuthenticationForm

from chat.access.sign_in import ThrottledAuthenticationForm


class ConsoleSignInForm(ThrottledAuthenticationForm, AuthenticationForm):
    """Staff only."""


def console_login(request: HttpRequest) -> HttpResponse:
    """The console's page to sign in; who is signed in and no staff is told so instead. Raises PermissionDenied."""
    from django.contrib import admin  # which is made by now

    if request.method == "GET" and request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied
    answer: HttpResponse = admin.site.login(request)
    return answer
