"""Second factors of others: what an owner takes away where somebody has lost theirs."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.db import transaction

from chat.access.subjects import user_subject
from chat.audit.services import audit_record


def factors_remove(*, user: User) -> int:
    """Remove all second factors and recovery codes of an account, and return their number.

    The password alone then signs it in.
    """
    with transaction.atomic():
        factors = list(Authenticator.objects.filter(user=user))
        if factors:
            audit_record(
                action="user.factor_remove",
                on=user_subject(user),
                before={"factors": sorted(str(one) for one in factors)},
            )
        Authenticator.objects.filter(user=user).delete()
    return len(factors)
