"""The console's sign-in: unfold's form with limits on failures. The admin site imports it while it is set up."""

from __future__ import annotations

from django import forms
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.forms import AuthenticationForm as DjangoAuthenticationForm
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext
from unfold.forms import AuthenticationForm

from chat.access.people import console_is_open_to
from chat.access.sign_in import ThrottledAuthenticationForm


class ConsoleSignInForm(ThrottledAuthenticationForm, AuthenticationForm):
    """The sign-in form of the console, for people who have a role."""

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        DjangoAuthenticationForm.confirm_login_allowed(self, user)
        if not console_is_open_to(user):
            raise forms.ValidationError(
                gettext("This account has no role in an organisation. Ask an administrator."), code="no_access"
            )


def console_login(request: HttpRequest) -> HttpResponse:
    """Render the console's sign-in page. Raises PermissionDenied for a signed-in user who has no role."""
    from django.contrib import admin  # the site imports this module while it is set up

    if request.method == "GET" and request.user.is_authenticated and not console_is_open_to(request.user):
        raise PermissionDenied
    answer: HttpResponse = admin.site.login(request)
    return answer
