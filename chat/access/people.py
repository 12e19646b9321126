"""Accounts: who manages whose, whom to ask, and what remains of a deleted one.

A user who does not own the installation manages only accounts whose every role he could give, so that no account is a
way to more rights. One superuser and, in each organisation that has one, an owner always remain.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from chat.access.admin_keys import admin_keys_revoke
from chat.access.keys import key_delete
from chat.access.memberships import LAST_OWNER, is_last_owner, orgs_lock
from chat.access.models import Membership
from chat.access.policy import may, orgs_reached, standing_of
from chat.access.roles import Act, Role

DELETED = "(deleted "
"""The beginning of the names that stand for deleted accounts in the history of changes. Forms refuse such names."""
LAST_ADMINISTRATOR = _("This is the only superuser: make another active superuser first.")
OWN_ACCOUNT = _("You cannot delete the account that you are signed in with; ask another administrator.")
MAX_NAMED = 3
"""Administrators that a user without access is told to ask."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whom to ask. `email` may be empty."""

    name: str
    email: str


def playground_is_open_to(user: Any) -> bool:
    return may(user, Act.CHAT)


def console_is_open_to(user: Any) -> bool:
    """Return True for superusers and for people with a role in an organisation, who see what their role shows."""
    standing = standing_of(user)
    return standing.owns_installation or bool(standing.roles)


def administrators_named() -> list[Person]:
    """Return whom to ask for access: a few administrators, those with an e-mail address first."""
    is_silent = ExpressionWrapper(Q(email=""), output_field=BooleanField())
    found = _superusers().order_by(is_silent, "pk")[:MAX_NAMED]
    return [Person(user.get_full_name() or user.get_username(), user.email) for user in found]


def people_seen(*, actor: Any, people: QuerySet[User]) -> QuerySet[User]:
    """Return those of `people` whose organisations show them to `actor`, without the stand-ins for deleted accounts."""
    people = people.exclude(username__startswith=DELETED)
    if standing_of(actor).owns_installation:
        return people
    return people.filter(pk__in=Membership.objects.filter(org__in=orgs_reached(actor, Act.PEOPLE_SEE)).values("user"))


def account_is_manageable(*, actor: Any, account: User) -> bool:
    """Return True if `actor` is a superuser, or could give every role that this account has.

    Roles of an inactive account count, as it may become active again.
    """
    if actor.is_superuser:
        return True
    standing = standing_of(actor)
    held = account.memberships.values_list("org_id", "role")
    return not account.is_superuser and all(role in standing.roles_given(org_id=org_id) for org_id, role in held)


def account_password_is_settable(*, actor: Any, account: User) -> bool:
    """Return True for superusers, and for those who own every organisation of an account that they manage."""
    if actor.is_superuser:
        return True
    owned = {org_id for org_id, role in standing_of(actor).roles.items() if role == Role.OWNER}
    places = set(account.memberships.values_list("org_id", flat=True))
    return bool(places) and places <= owned and account_is_manageable(actor=actor, account=account)


def account_deletion_problem(*, actor: Any, account: User) -> str:
    """Return why `actor` cannot delete this account, or an empty text. Permissions are not checked here."""
    if account.pk == actor.pk:
        return str(OWN_ACCOUNT)
    return _needed_as(account)


def account_change_check(*, account: User, is_active: bool, is_superuser: bool) -> None:
    """Raise ValidationError if the change would leave no superuser, or an organisation without its owner.

    Call it in the transaction of the change.
    """
    if is_active and is_superuser:
        return
    _lock_needed([account])
    if _is_last_superuser(account):
        raise ValidationError(LAST_ADMINISTRATOR)
    if not is_active and (problem := _needed_as(account)):
        raise ValidationError(problem)


def accounts_delete(*, actor: Any, accounts: Collection[User]) -> None:
    """Delete accounts and the keys that are theirs; their history of changes stays. Raises ValidationError."""
    with transaction.atomic():
        _lock_needed(accounts)
        for account in accounts:
            if problem := account_deletion_problem(actor=actor, account=account):
                raise ValidationError(f"{account}: {problem}")
            for key in account.keys.filter(deleted_at=None):
                key_delete(key=key)
            admin_keys_revoke(owner=account)
            account.delete()


def account_heir(*, account: User) -> User:
    """Create the stand-in for a deleted account in the history: it has the name, no role and no sign-in."""
    return get_user_model().objects.create_user(
        f"{DELETED}{account.pk}) {account.get_username()}"[:150], is_active=False
    )


def _needed_as(account: User) -> str:
    """Return what the installation would lose with this account, or an empty text."""
    if _is_last_superuser(account):
        return str(LAST_ADMINISTRATOR)
    owned = account.memberships.filter(role=Role.OWNER).select_related("org", "user")
    return next((str(LAST_OWNER % {"org": one.org}) for one in owned if is_last_owner(membership=one)), "")


def _is_last_superuser(account: User) -> bool:
    return set(_superusers().values_list("pk", flat=True)) == {account.pk}


def _lock_needed(accounts: Collection[User]) -> None:
    """Lock superusers and what the accounts own until the transaction ends, so that no two remove each other."""
    list(_superusers().select_for_update().order_by("pk").values_list("pk", flat=True))
    owned = Membership.objects.filter(user__in=[account.pk for account in accounts], role=Role.OWNER)
    orgs_lock(org_ids=owned.values_list("org_id", flat=True))


def _superusers() -> Any:
    return get_user_model().objects.filter(is_superuser=True, is_active=True)
