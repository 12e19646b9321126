"""What django-allauth asks of us: who is let in, how tries are counted, where pages lead, how secrets are stored.

Only web processes have its pages. Its own limits are off: they count in the cache of one process.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.sites.shortcuts import get_current_site
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from chat.access.account_audit import sign_in_failed_record
from chat.access.addresses import ip_address, request_address
from chat.access.chat_projects import default_project
from chat.access.invitations import InvitationEnded, invitation_accept, invitation_open
from chat.access.mail import mail_send_later
from chat.access.mail_addresses import accounts_at, is_vouched
from chat.access.memberships import membership_create
from chat.access.models import Invitation
from chat.access.people import console_is_open_to, playground_is_open_to
from chat.access.roles import Role
from chat.access.sign_in import SignIn, sign_in_begin, sign_in_fail, sign_in_succeed, too_many_failures

logger = logging.getLogger(__name__)
NO_ACCESS = _("This account has no role in an organisation. Ask an administrator.")
INVITATION = "invitation"
"""Where a session keeps the id of an invitation while its browser is at the OpenID provider."""
UNSAID = ("account/messages/logged_in.txt", "account/messages/logged_out.txt")
"""Messages that tell what the page shows anyway."""


def is_admitted(user: Any) -> bool:
    """Return True for active accounts with a role, and for superusers."""
    return bool(user.is_active) and (console_is_open_to(user) or playground_is_open_to(user))


class AccountAdapter(DefaultAccountAdapter):
    error_messages = DefaultAccountAdapter.error_messages | {
        "username_password_mismatch": _("Enter the correct username and password. Both are case-sensitive."),
        "enter_current_password": _("This is not your password."),
        "incorrect_password": _("This is not your password."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        """Return the account of a name and password, None if they are wrong. The try is counted before any hashing.

        Sign-in and each confirmation by password come here. Raises ValidationError after too many failures, and for
        accounts without access.
        """
        tried = SignIn(str(credentials.get("username", "")), request_address(request))
        begun = sign_in_begin(tried=tried)
        if begun.wait_s:
            raise ValidationError(too_many_failures(begun.wait_s), code="blocked")
        user = authenticate(request, **credentials)
        if user is None:
            sign_in_fail(tried=tried)
            return None
        if not is_admitted(user):
            sign_in_fail(tried=tried)
            sign_in_failed_record(name=tried.account, reason="this account may not sign in here")
            raise ValidationError(NO_ACCESS, code="no_access")
        sign_in_succeed(tried=tried, begun=begun)
        return user

    def is_ajax(self, request: HttpRequest) -> bool:
        """Return True for a script that asks for JSON, as that of passkeys does. What is sent does not matter."""
        return bool(request.headers.get("Accept") == "application/json")

    def pre_login(self, request: HttpRequest, user: Any, **options: Any) -> HttpResponse | None:
        """Refuse accounts without access, however they have shown who they are."""
        if is_admitted(user):
            return None
        sign_in_failed_record(name=user.get_username(), reason="this account may not sign in here")
        messages.error(request, NO_ACCESS)
        return redirect("sign_in")

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return reverse("playground" if playground_is_open_to(request.user) else "admin:index")

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def is_reauthentication_required(self, *, app: str, **options: Any) -> bool:
        """Return False for people who come by the OpenID provider alone: they have nothing to confirm with here."""
        has_way = bool(self.get_reauthentication_methods(self.request.user))
        return has_way and bool(super().is_reauthentication_required(app=app, **options))

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the client's address; that of no machine on a Unix socket."""
        try:
            return str(ip_address(request_address(request)))
        except ValueError:
            return "0.0.0.0"  # noqa: S104

    def add_message(
        self, request: HttpRequest, level: int, message_template: str | None = None, *args: Any, **options: Any
    ) -> None:
        if message_template not in UNSAID:
            super().add_message(request, level, message_template, *args, **options)

    def send_password_reset_mail(self, user: Any, email: str, context: dict[str, Any]) -> None:
        """Send the link to the stored address, not to the one that was typed: they may differ, and so may who reads."""
        super().send_password_reset_mail(user, user.email, context)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Have a mail sent later: a failure, or the time that it takes, would tell that the address is known."""
        words = {"request": self.request, "email": email, "current_site": get_current_site(self.request)}
        mail_send_later(mail=self.render_mail(template_prefix, email, words | context))


class FactorAdapter(DefaultMFAAdapter):
    """Second factors, whose secrets are stored encrypted, by a key made of the installation's secret."""

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _cipher().decrypt(encrypted_text.encode()).decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        return super().get_public_key_credential_rp_entity() | {"name": "Lightcone"}

    def get_totp_label(self, user: Any) -> str:
        return str(user.get_username())


class ProviderAdapter(DefaultSocialAccountAdapter):
    """People of the OpenID provider: known ones by its id, or by a verified address that one account alone has.

    Somebody else than the account's holder must have vouched for its address: who types the address of a colleague into
    an account of their own would otherwise share it with the colleague.
    """

    def list_apps(self, request: HttpRequest, provider: Any = None, client_id: Any = None) -> list[SocialApp]:
        """Return the provider of the settings. Rows of the database have no effect."""
        described = settings.LIGHTCONE_OIDC.apps()
        apps = [SocialApp(provider="openid_connect", **one) for one in described]
        return [
            app
            for app in apps
            if provider in (None, app.provider, app.provider_id) and client_id in (None, app.client_id)
        ]

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        if sociallogin.is_existing or sociallogin.state.get("process") == "connect":
            return
        account = self._account_by_address(sociallogin)
        if account is None:
            return
        if not is_vouched(account):
            sign_in_failed_record(
                name=account.get_username(), reason="nobody has confirmed that this account's address is its holder's"
            )
            messages.error(
                request,
                gettext(
                    "An account here has your address, and nobody has confirmed that it is yours. "
                    "Sign in with its password, then connect %(name)s on the page of your account."
                )
                % {"name": settings.LIGHTCONE_OIDC.name},
            )
            raise ImmediateHttpResponse(redirect("sign_in"))
        sociallogin.connect(request, account)

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Return True for invited people, and where the settings give everybody a role. Others are sent back."""
        is_invited = self._invitation(request) is not None
        if (is_invited or settings.LIGHTCONE_OIDC.role) and not self._is_address_taken(sociallogin):
            return True
        sign_in_failed_record(name="", reason="the OpenID provider's account belongs to nobody here")
        messages.error(
            request,
            gettext("Nobody here has this account of %(name)s. Ask an administrator to invite you.")
            % {"name": settings.LIGHTCONE_OIDC.name},
        )
        raise ImmediateHttpResponse(redirect("sign_in"))

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        invitation = self._invitation(request)
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
            if invitation is not None:
                invitation_accept(invitation=invitation, user=user)
            else:
                membership_create(user=user, org=default_project().org, role=Role(settings.LIGHTCONE_OIDC.role))
        request.session.pop(INVITATION, None)
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Lead back to the sign-in page, with a sentence."""
        logger.warning("Sign-in by the OpenID provider failed: %s %s", error, exception)
        sign_in_failed_record(name="", reason="the OpenID provider did not confirm it")
        messages.error(
            request,
            gettext("%(name)s did not confirm who you are. Try again.") % {"name": settings.LIGHTCONE_OIDC.name},
        )
        raise ImmediateHttpResponse(HttpResponseRedirect(reverse("sign_in")))

    def serialize_instance(self, instance: Any) -> Any:
        """Return what a pending sign-in keeps of a row, without what we have read for it."""
        instance.__dict__.pop("lightcone_standing", None)
        return super().serialize_instance(instance)

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: Any) -> str:
        return reverse("account")

    def _invitation(self, request: HttpRequest) -> Invitation | None:
        """Return the invitation whose link this browser came from, if it still invites."""
        try:
            return invitation_open(invitation_id=request.session.get(INVITATION, 0))
        except InvitationEnded:
            return None

    def _account_by_address(self, sociallogin: SocialLogin) -> User | None:
        """Return the one active account that has a verified address of this sign-in.

        A mail server may tell ſam from sam, so that an address that needs Unicode finds none that does not.
        """  # noqa: RUF002
        verified = [one.email for one in sociallogin.email_addresses if one.verified]
        found = [user for email in verified for user in accounts_at(email) if email.isascii() == user.email.isascii()]
        return found[0] if len(found) == 1 else None

    def _is_address_taken(self, sociallogin: SocialLogin) -> bool:
        return any(User.objects.filter(email__iexact=one.email).exists() for one in sociallogin.email_addresses)


def _cipher() -> Fernet:
    digest = hashlib.sha256(b"second factors" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(digest))
