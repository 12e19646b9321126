"""The page of an invitation's link: make an account, join with the one that is signed in, or come by the provider."""

from __future__ import annotations

from typing import Any

from allauth.account.fields import PasswordField, SetPasswordField
from allauth.account.utils import perform_login
from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from chat.access.account_pages import provider_login
from chat.access.addresses import request_address
from chat.access.allauth_adapters import INVITATION
from chat.access.invitations import InvitationEnded, invitation_accept, invitation_find
from chat.access.mail_addresses import address_vouch, is_same_address
from chat.access.models import Invitation
from chat.access.people import DELETED
from chat.access.sign_in import SignIn, sign_in_begin, too_many_failures
from chat.access.sign_in_forms import MAX_PASSWORD_CHARS


class NewPersonForm(forms.ModelForm):
    """The account that an invited person makes."""

    password1 = SetPasswordField(label=_("Password"), max_length=MAX_PASSWORD_CHARS)
    password2 = PasswordField(label=_("Password again"), autocomplete="new-password", max_length=MAX_PASSWORD_CHARS)

    class Meta:
        model = User
        fields = ("username", "first_name", "last_name", "email")
        labels = {
            "username": _("User name"),
            "first_name": _("First name"),
            "last_name": _("Last name"),
            "email": _("E-mail address"),
        }
        help_texts = {"username": ""}

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        if name.startswith(DELETED):
            raise ValidationError(gettext("Choose another name."))
        if User.objects.filter(username__iexact=name).exists():
            raise ValidationError(gettext("Somebody has this name. Choose another one."))
        return name

    def clean_email(self) -> str:
        email: str = self.cleaned_data["email"]
        if email and User.objects.filter(email__iexact=email).exists():
            raise ValidationError(
                gettext("Another account has this address. Sign in with it, then open the link again.")
            )
        return email

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        if "password1" in cleaned and cleaned["password1"] != cleaned.get("password2", cleaned["password1"]):
            self.add_error("password2", gettext("This is not the same password."))
        return cleaned


@never_cache
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, secret: str) -> HttpResponse:
    """Show to what somebody is invited, and accept it."""
    try:
        found = _found(request, secret)
        if request.method == "POST" and request.user.is_authenticated:
            return _joined(request, found)
        return _new_person(request, found)
    except InvitationEnded as ended:
        request.session.pop(INVITATION, None)
        return render(request, "account/invitation.html", {"problem": str(ended)}, status=410)


def _found(request: HttpRequest, secret: str) -> Invitation:
    """Return the invitation. Wrong links are counted as failed sign-ins of their address."""
    tried = SignIn("\0invitation", request_address(request))
    try:
        return invitation_find(secret=secret)
    except InvitationEnded:
        begun = sign_in_begin(tried=tried)
        if begun.wait_s:
            raise InvitationEnded(too_many_failures(begun.wait_s)) from None
        raise


def _joined(request: HttpRequest, found: Invitation) -> HttpResponse:
    try:
        accepted = invitation_accept(invitation=found, user=request.user)
    except ValidationError:
        messages.error(
            request, gettext("You are a member of this organisation already. The link still works for somebody else.")
        )
        return redirect("account")
    request.session.pop(INVITATION, None)
    messages.success(request, gettext("You are now in %(org)s.") % {"org": accepted.org})
    return redirect("account")


def _new_person(request: HttpRequest, found: Invitation) -> HttpResponse:
    form = NewPersonForm(request.POST or None, initial={"email": found.email})
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            user = form.save(commit=False)
            user.set_password(form.cleaned_data["password1"])
            user.save()
            invitation_accept(invitation=found, user=user)
            if is_same_address(user.email, found.email):  # it was mailed there, or chosen by who invites
                address_vouch(user=user)
        answer: HttpResponse = perform_login(request, User.objects.get(pk=user.pk), email_verification="none")
        return answer
    provider = provider_login(request)
    if provider is not None and not request.user.is_authenticated:
        request.session[INVITATION] = found.pk
    return render(request, "account/invitation.html", {"invitation": found, "form": form, "provider": provider})
