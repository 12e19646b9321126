"""The console's sign-in: unfold's form with limits on failures. The admin site imports it while it is set up."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from unfold.forms import AuthenticationForm

from chat.access.sign_in import ThrottledAuthenticationForm


class ConsoleSignInForm(ThrottledAuthenticationForm, AuthenticationForm):
    """The sign-in form of the console, for staff."""


def console_login(request: HttpRequest) -> HttpResponse:
    """Render the console's sign-in page. Raises PermissionDenied for a signed-in user who is not staff."""
    from django.contrib import admin  # the site imports this module while it is set up

    if request.method == "GET" and request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied
    answer: HttpResponse = admin.site.login(request)
    return answer
