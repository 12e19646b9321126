"""Forms of signing in and of one's own account: django-allauth's, with our counters of failures and our words."""

from __future__ import annotations

from typing import Any

from allauth.account.forms import ChangePasswordForm as AllauthChangePasswordForm
from allauth.account.forms import LoginForm
from allauth.account.forms import ResetPasswordForm as AllauthResetPasswordForm
from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm, ReauthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.webauthn.forms import AddWebAuthnForm, EditWebAuthnForm
from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from chat.access.addresses import request_address
from chat.access.mail_addresses import accounts_at
from chat.access.sign_in import SignIn, code_is_fresh, sign_in_begin, sign_in_fail, sign_in_succeed, too_many_failures
from chat.access.subjects import user_subject
from chat.audit.services import audit_record

MAX_PASSWORD_CHARS = 4096
MAX_CODE_CHARS = 16
MAX_NAME_CHARS = 60


class SignInForm(LoginForm):
    """Name and password. The field of the name is called `username`, as clients know it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["login"].label = _("User name")
        self.fields["password"].validators.append(MaxLengthValidator(MAX_PASSWORD_CHARS))

    def add_prefix(self, field_name: str) -> str:
        return super().add_prefix("username" if field_name == "login" else field_name)

    def clean_login(self) -> str:
        return str(self.cleaned_data["login"])


class _CountedCode(forms.Form):
    """A form that asks for a code of six digits or a recovery code, with the limits of passwords on failures."""

    user: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["code"]
        field.label = _("Code")
        field.validators.append(MaxLengthValidator(MAX_CODE_CHARS))
        field.widget.attrs |= {"autocomplete": "one-time-code", "maxlength": MAX_CODE_CHARS}

    def clean_code(self) -> str:
        tried = SignIn(f"\0code/{self.user.get_username()}", request_address(context.request))
        begun = sign_in_begin(tried=tried)
        if begun.wait_s:
            raise ValidationError(too_many_failures(begun.wait_s), code="blocked")
        try:
            code: str = super().clean_code()
        except ValidationError:
            sign_in_fail(tried=tried)
            raise
        if not code_is_fresh(account_id=self.user.pk, code=code):
            sign_in_fail(tried=tried)
            raise ValidationError(gettext("This code has been used. Wait for the next one."), code="used")
        sign_in_succeed(tried=tried, begun=begun)
        return code


class CodeForm(_CountedCode, AuthenticateForm):
    """The second step of signing in."""


class ConfirmCodeForm(_CountedCode, ReauthenticateForm):
    """A code that confirms an act on one's account."""


class ActivateCodeForm(_CountedCode, ActivateTOTPForm):
    """The first code of a new authenticator app."""


class AddPasskeyForm(AddWebAuthnForm):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["name"].label = _("Name")
        self.fields["name"].validators.append(MaxLengthValidator(MAX_NAME_CHARS))
        self.fields["name"].widget.attrs["maxlength"] = MAX_NAME_CHARS
        self.fields["passwordless"].label = _("Signs in alone, without a password")
        self.fields["passwordless"].help_text = _("The device then asks for a fingerprint, a face or a PIN.")
        self.fields["passwordless"].initial = True


class RenamePasskeyForm(EditWebAuthnForm):
    name = forms.CharField(label=_("Name"), max_length=MAX_NAME_CHARS)


class ChangePasswordForm(AllauthChangePasswordForm):
    """A change of one's password. Tries with the present one are counted as those of signing in."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["oldpassword"].help_text = ""
        for name in ("oldpassword", "password1", "password2"):
            self.fields[name].validators.append(MaxLengthValidator(MAX_PASSWORD_CHARS))

    def clean_oldpassword(self) -> str:
        from allauth.account.adapter import get_adapter

        password: str = self.cleaned_data["oldpassword"]
        if not get_adapter().reauthenticate(self.user, password):
            raise get_adapter().validation_error("enter_current_password")
        return password


class ResetPasswordForm(AllauthResetPasswordForm):
    """A request for a link by e-mail. Requests are counted as failed sign-ins are, by address and e-mail address."""

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"])
        begun = sign_in_begin(tried=SignIn(f"\0reset/{email}", request_address(context.request)))
        if begun.wait_s:
            raise ValidationError(too_many_failures(begun.wait_s), code="blocked")
        self.users = accounts_at(email)
        return email

    def save(self, request: HttpRequest, **options: Any) -> str:
        for user in self.users:
            audit_record(action="user.reset_link", on=user_subject(user))
        return str(super().save(request, **options))
