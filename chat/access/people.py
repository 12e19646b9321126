"""What users may do in the console to API keys and to each other's accounts, and what remains of a deleted account.

A user who is no superuser may change and delete only accounts with no more powers than his own, so that no account is a
way to more rights. One administrator always remains.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet

from chat.access.checks import Right
from chat.access.models import ApiKey, Project, give_permission

USE_PLAYGROUND = "chat.use_playground"
DELETED = "(deleted "
"""The beginning of the names that stand for deleted accounts in the history of changes. Forms refuse such names."""
LAST_ADMINISTRATOR = "This is the only administrator: make another active superuser with staff status first."
OWN_ACCOUNT = "You cannot delete the account that you are signed in with; ask another administrator."
MAX_NAMED = 3
"""Administrators that a user without access is told to ask."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whom to ask. `email` may be empty."""

    name: str
    email: str


def playground_is_open_to(user: Any) -> bool:
    return bool(user.is_active and user.has_perm(USE_PLAYGROUND))


def administrators_named() -> list[Person]:
    """Return whom to ask for access: a few administrators, those with an e-mail address first."""
    is_silent = ExpressionWrapper(Q(email=""), output_field=BooleanField())
    found = _administrators().order_by(is_silent, "pk")[:MAX_NAMED]
    return [Person(user.get_full_name() or user.get_username(), user.email) for user in found]


def playground_grant(*, user: User) -> None:
    """Give a new account the permission to chat. Do nothing before migrations have created the permissions."""
    permission = Permission.objects.filter(_playground_permission()).first()
    if permission is not None:
        user.user_permissions.add(permission)


def account_is_manageable(*, actor: Any, account: User) -> bool:
    """Return True if `actor` is a superuser or has all powers of this account.

    Powers of an inactive account count, as it may become active again. The default permission does not count.
    """
    if actor.is_superuser:
        return True
    return not account.is_superuser and _powers(account) <= _powers(actor)


def account_deletion_problem(*, actor: Any, account: User) -> str:
    """Return why `actor` cannot delete this account, or an empty text. Permissions are not checked here."""
    if account.pk == actor.pk:
        return OWN_ACCOUNT
    return LAST_ADMINISTRATOR if _is_last_administrator(account) else ""


def account_change_check(*, account: User, is_active: bool, is_staff: bool, is_superuser: bool) -> None:
    """Raise ValidationError if the change would leave no administrator. Call it in the transaction of the change."""
    if not (is_active and is_staff and is_superuser):
        _lock_administrators()
        if _is_last_administrator(account):
            raise ValidationError(LAST_ADMINISTRATOR)


def accounts_delete(*, actor: Any, accounts: Collection[User]) -> None:
    """Delete accounts; their history of changes stays. Raises ValidationError."""
    with transaction.atomic():
        _lock_administrators()
        for account in accounts:
            if problem := account_deletion_problem(actor=actor, account=account):
                raise ValidationError(f"{account}: {problem}")
            account.delete()


def account_heir(*, account: User) -> User:
    """Create the stand-in for a deleted account in the history: it has the name, no permission and no sign-in."""
    heir = get_user_model().objects.create_user(
        f"{DELETED}{account.pk}) {account.get_username()}"[:150], is_active=False
    )
    heir.user_permissions.clear()
    return heir


def _is_last_administrator(account: User) -> bool:
    return set(_administrators().values_list("pk", flat=True)) == {account.pk}


def _lock_administrators() -> None:
    """Lock the rows of administrators until the transaction ends, so that two of them cannot remove each other."""
    list(_administrators().select_for_update().order_by("pk").values_list("pk", flat=True))


def _administrators() -> Any:
    return get_user_model().objects.filter(is_superuser=True, is_active=True, is_staff=True)


def _powers(account: Any) -> set[tuple[str, int]]:
    """Return the permissions of an account, those of its groups included, and its projects."""
    permissions = Permission.objects.filter(Q(user=account) | Q(group__user=account)).exclude(_playground_permission())
    return {("permission", pk) for pk in permissions.values_list("pk", flat=True)} | {
        ("project", pk) for pk in account.projects.values_list("pk", flat=True)
    }


def _playground_permission() -> Q:
    app_label, codename = USE_PLAYGROUND.split(".")
    return Q(content_type__app_label=app_label, codename=codename)


@dataclass(frozen=True, slots=True)
class KeyScope:
    """The projects, rights and priorities that a user may give to keys."""

    project_ids: frozenset[int] | None
    """None: all."""
    rights: frozenset[str]
    min_priority: int | None
    """The smallest one that may be given. None: any."""

    def covers(self, key: ApiKey) -> bool:
        """Return True if the text of this key gives the user nothing new."""
        is_own = self.project_ids is None or key.project_id in self.project_ids
        return is_own and self.may_give(key.rights) and self.may_hurry(key.min_priority)

    def may_give(self, rights: Collection[str]) -> bool:
        return self.rights.issuperset(rights)

    def may_hurry(self, priority: int) -> bool:
        return self.min_priority is None or priority >= self.min_priority

    def projects(self) -> QuerySet[Project]:
        every = Project.objects.select_related("org")
        return every if self.project_ids is None else every.filter(pk__in=self.project_ids)


def key_scope(*, user: Any) -> KeyScope:
    """Return the scope of a signed-in user. Superusers may do everything."""
    if user.is_active and user.is_superuser:
        return KeyScope(None, frozenset(Right.values), None)
    given = {
        right for right in Right.values if right == Right.INFERENCE or user.has_perm(f"chat.{give_permission(right)}")
    }
    return KeyScope(
        project_ids=frozenset(user.projects.values_list("pk", flat=True)),
        rights=frozenset(given),
        min_priority=None if user.has_perm("chat.give_urgency") else 0,
    )
