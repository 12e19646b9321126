"""Audit entries of accounts and sign-ins, by Django's signals.

Accounts are changed by Django's own pages and commands (`createsuperuser`, `changepassword`) beside ours, and sessions
begin and end in its views: signals alone hear of all of them.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import post_delete, post_save, pre_save
from django.http import HttpRequest

from chat.access.people import DELETED
from chat.access.subjects import user_subject
from chat.audit.actions import ActorKind
from chat.audit.origin import Origin, origin
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values

AUDITED = ("username", "email", "first_name", "last_name", "is_active", "is_superuser")
UNKNOWN = "(no such account)"
"""In place of a typed name that no account has: people type passwords into the wrong field."""


def account_audit_connect() -> None:
    """Hear of every change of an account and of every sign-in."""
    pre_save.connect(_before_save, sender=User, dispatch_uid="account_audit")
    post_save.connect(_after_save, sender=User, dispatch_uid="account_audit")
    post_delete.connect(_after_delete, sender=User, dispatch_uid="account_audit")
    user_logged_in.connect(_signed_in, dispatch_uid="account_audit")
    user_logged_out.connect(_signed_out, dispatch_uid="account_audit")
    user_login_failed.connect(_sign_in_failed, dispatch_uid="account_audit")

    if apps.is_installed("allauth.account"):  # workers serve no pages
        factor_audit_connect()


def factor_audit_connect() -> None:
    """Hear of second factors, of the OpenID provider and of passwords that a link has set, from django-allauth."""
    from allauth.account.signals import password_reset
    from allauth.mfa import signals as factors
    from allauth.socialaccount.signals import social_account_added

    factors.authenticator_added.connect(_factor_added, dispatch_uid="account_audit")
    factors.authenticator_removed.connect(_factor_removed, dispatch_uid="account_audit")
    factors.authenticator_reset.connect(_codes_made, dispatch_uid="account_audit")
    factors.authentication_failed.connect(_code_failed, dispatch_uid="account_audit")
    social_account_added.connect(_provider_added, dispatch_uid="account_audit")
    password_reset.connect(_link_used, dispatch_uid="account_audit")


def _factor_added(sender: Any, user: Any, authenticator: Any, **_: Any) -> None:
    audit_record(action="user.factor_add", on=user_subject(user), after={"factor": str(authenticator)})


def _factor_removed(sender: Any, user: Any, authenticator: Any, **_: Any) -> None:
    audit_record(action="user.factor_remove", on=user_subject(user), before={"factor": str(authenticator)})


def _codes_made(sender: Any, user: Any, **_: Any) -> None:
    audit_record(action="user.codes", on=user_subject(user))


def _code_failed(sender: Any, user: Any, **_: Any) -> None:
    audit_record(action="user.sign_in_failed", on=user_subject(user), after={"reason": "wrong code"})


def _provider_added(sender: Any, sociallogin: Any, **_: Any) -> None:
    account = sociallogin.account
    audit_record(
        action="user.provider_add", on=user_subject(account.user), after={"id": account.uid}, by=_as_user(account.user)
    )


def _link_used(sender: Any, user: Any, **_: Any) -> None:
    audit_record(action="user.reset_used", on=user_subject(user))


def _before_save(sender: Any, instance: Any, raw: bool, update_fields: frozenset[str] | None, **_: Any) -> None:
    """Note what is stored, if the save may change it: that of a sign-in writes its time alone.

    The stand-in for a deleted account is no account.
    """
    is_visit = update_fields is not None and update_fields <= {"last_login"}
    if not raw and not is_visit and not _is_stand_in(instance):
        instance.audit_stored = User.objects.filter(pk=instance.pk).values(*AUDITED, "password").first() or {}


def _after_save(sender: Any, instance: Any, created: bool, raw: bool, **options: Any) -> None:
    stored = instance.__dict__.pop("audit_stored", None)
    if stored is None:
        return
    if created:
        audit_record(action="user.create", on=user_subject(instance), after=row_values(instance, AUDITED))
        return
    password = stored.pop("password")
    present = row_values(instance, AUDITED)
    audit_record(action="user.change", on=user_subject(instance), before=stored, after=present)
    if password != instance.password and not _is_rehash(options["update_fields"]):
        audit_record(action="user.password", on=user_subject(instance))


def _is_stand_in(account: Any) -> bool:
    return bool(account.get_username().startswith(DELETED))


def _is_rehash(update_fields: frozenset[str] | None) -> bool:
    """Return True where Django stores a password again by a newer method, as its owner signs in."""
    return update_fields == {"password"} and origin().kind == ActorKind.NOBODY


def _after_delete(sender: Any, instance: Any, **_: Any) -> None:
    audit_record(action="user.delete", on=user_subject(instance), before=row_values(instance, AUDITED))


def _signed_in(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    method = _method(request, user)
    audit_record(
        action="user.sign_in", on=user_subject(user), after={"method": method} if method else None, by=_as_user(user)
    )


def _method(request: HttpRequest | None, user: Any) -> str:
    """Return how somebody has shown who they are, such as `password, totp`."""
    if not apps.is_installed("allauth.account") or not hasattr(request, "session"):
        return ""
    from allauth.account.authentication import get_authentication_records

    used = [one.get("type") or one["method"] for one in get_authentication_records(request, user)]
    return ", ".join(dict.fromkeys("OpenID provider" if one == "socialaccount" else one for one in used))


def _signed_out(sender: Any, request: HttpRequest | None, user: Any, **_: Any) -> None:
    if user is not None:
        audit_record(action="user.sign_out", on=user_subject(user), by=_as_user(user))


def _sign_in_failed(sender: Any, credentials: dict[str, Any], **_: Any) -> None:
    sign_in_failed_record(name=str(credentials.get(get_user_model().USERNAME_FIELD, "")))


def sign_in_failed_record(*, name: str, reason: str = "wrong name or password") -> None:
    """Record a failed sign-in under a typed name."""
    account = None if "\0" in name else get_user_model().objects.filter(username=name).first()
    subject = Subject(name=UNKNOWN) if account is None else user_subject(account)
    audit_record(action="user.sign_in_failed", on=subject, after={"reason": reason})


def _as_user(user: Any) -> Origin:
    """Return the origin of this request as that of a user who comes or goes with it."""
    here = origin()
    return Origin(ActorKind.USER, str(user.pk), user.get_username(), here.address, here.source, here.request_id)
