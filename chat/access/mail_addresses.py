"""E-mail addresses of accounts: which accounts have one, compared so that no look-alike finds another's."""

from __future__ import annotations

import unicodedata

from django.contrib.auth.models import User

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


def _folded(address: str) -> str:
    return unicodedata.normalize("NFKC", address).casefold()
