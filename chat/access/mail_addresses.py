"""E-mail addresses: which accounts have one, compared so that no look-alike finds another's, and who vouched for it.

Rows of django-allauth's table of addresses tell the latter. Only web processes have it among their models.
"""

from __future__ import annotations

import unicodedata

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

MAX_ACCOUNTS = 10


def is_same_address(one: str, other: str) -> bool:
    """Compare two addresses regardless of case, as Unicode does it.

    Databases do it in other ways: for PostgreSQL the upper case of a dotless ı is I, so that it takes two addresses of
    two people for the same.
    """
    return _folded(one) == _folded(other)


def accounts_at(email: str) -> list[User]:
    """Return the active accounts that have an address, ten at most."""
    if not email:
        return []
    found = User.objects.filter(email__iexact=email, is_active=True).order_by("pk")[:MAX_ACCOUNTS]
    return [user for user in found if is_same_address(user.email, email)]


def address_vouch(*, user: User) -> None:
    """Note that others than its holder gave an account its address: an administrator, or an invitation to it.

    Until the address changes, the OpenID provider's account of that address may sign in to the account.
    """
    address = _folded(user.email)
    with transaction.atomic():
        EmailAddress.objects.filter(Q(user=user) | Q(email=address)).delete()
        if address:
            EmailAddress.objects.create(user=user, email=address, verified=True, primary=True)


def is_vouched(user: User) -> bool:
    """Return True if somebody vouched for the present address of an account."""
    vouched = EmailAddress.objects.filter(user=user, verified=True).values_list("email", flat=True)
    return bool(user.email) and any(is_same_address(user.email, one) for one in vouched)


def _folded(address: str) -> str:
    return unicodedata.normalize("NFKC", address).casefold()
