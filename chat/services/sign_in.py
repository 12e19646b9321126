"""Sign-in of people, with a bound on failures per account and address (counted in Valkey, so all web processes agree).

While Valkey is away sign-in works without the bound: locking every administrator out would be the greater harm.
"""

from __future__ import annotations

import hashlib
import logging

import redis
from django import forms
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpRequest

from chat.addresses import request_address

logger = logging.getLogger(__name__)
WINDOW_S = 15 * 60


def _failures_key(account: str, address: str) -> str:
    digest = hashlib.sha256(f"{account.lower()}\0{address}".encode()).hexdigest()[:32]
    return f"{settings.LIGHTCONE_DEPLOYMENT}:sign-in:{digest}"


def _client() -> redis.Redis:
    return redis.Redis.from_url(settings.LIGHTCONE_REDIS_URL, socket_timeout=1, socket_connect_timeout=1)


def sign_in_is_blocked(*, account: str, address: str) -> bool:
    """Whether this account and address have failed too often within the window."""
    try:
        with _client() as client:
            return int(client.get(_failures_key(account, address)) or 0) >= int(settings.LIGHTCONE_MAX_LOGIN_FAILURES)
    except redis.RedisError as error:
        logger.warning("sign-in failures cannot be counted: %s", error)
        return False


def sign_in_record_failure(*, account: str, address: str) -> None:
    """Count one failure; the window starts with the first."""
    key = _failures_key(account, address)
    try:
        with _client() as client:
            pipe = client.pipeline()
            pipe.set(key, 0, nx=True, ex=WINDOW_S)
            pipe.incr(key)
            pipe.execute()
    except redis.RedisError as error:
        logger.warning("sign-in failures cannot be counted: %s", error)


class ThrottledAuthenticationForm(AuthenticationForm):
    """Django's form with the bound; used by the playground and the console."""

    request: HttpRequest

    def clean(self) -> dict[str, object]:
        account = str(self.cleaned_data.get("username") or "")
        address = request_address(self.request)
        if sign_in_is_blocked(account=account, address=address):
            raise forms.ValidationError("Too many failed sign-ins. Try again in 15 minutes.", code="blocked")
        try:
            cleaned: dict[str, object] = super().clean()
            return cleaned
        except forms.ValidationError:
            sign_in_record_failure(account=account, address=address)
            raise

    def confirm_login_allowed(self, user: AbstractBaseUser) -> None:
        """Only staff has a place to go after signing in."""
        super().confirm_login_allowed(user)
        if not getattr(user, "is_staff", False):
            raise forms.ValidationError("This account has no access to the playground. Ask an administrator.", code="no_access")
