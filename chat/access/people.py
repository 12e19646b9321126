"""What people may do to each other's accounts in the console, and what stays of an account that is deleted.

Nobody gets more than he has by way of another's account: who is no superuser changes and deletes only accounts that may do no more than
his own. One administrator always stays.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from chat.access.permissions import USE_PLAYGROUND

DELETED = "(deleted "
"""How the names of accounts begin that stand for deleted ones in the history of changes; forms take no such name."""
LAST_ADMINISTRATOR = "This is the only administrator: make another active superuser with staff status first."
OWN_ACCOUNT = "You cannot delete the account that you are signed in with; ask another administrator."


def playground_grant(*, user: User) -> None:
    """Let a new account chat. Does nothing in a database whose permissions are still to be made, which migrations do."""
    app_label, codename = USE_PLAYGROUND.split(".")
    permission = Permission.objects.filter(content_type__app_label=app_label, codename=codename).first()
    if permission is not None:
        user.user_permissions.add(permission)


def account_is_manageable(*, actor: Any, account: User) -> bool:
    """Return True if `actor` may change this account as far as its powers go: he has all of them, or is a superuser.

    Powers of an account that is not active count, as it may be made active again; the default permission does not.
    """
    if actor.is_superuser:
        return True
    return not account.is_superuser and _powers(account) <= _powers(actor)


def account_deletion_problem(*, actor: Any, account: User) -> str:
    """Say why `actor` cannot delete this account; empty where he can, as far as this is about people and not permissions."""
    if account.pk == actor.pk:
        return OWN_ACCOUNT
    return LAST_ADMINISTRATOR if _is_last_administrator(account) else ""


def account_change_check(*, account: User, is_active: bool, is_staff: bool, is_superuser: bool) -> None:
    """Raise ValidationError where the change would leave no administrator. Called in the transaction of the change."""
    if not (is_active and is_staff and is_superuser):
        _lock_administrators()
        if _is_last_administrator(account):
            raise ValidationError(LAST_ADMINISTRATOR)


def accounts_delete(*, actor: Any, accounts: Collection[User]) -> None:
    """Delete accounts for good; what they did stays in the history of changes. Raises ValidationError."""
    with transaction.atomic():
        _lock_administrators()
        for account in accounts:
            if problem := account_deletion_problem(actor=actor, account=account):
                raise ValidationError(f"{account}: {problem}")
            account.delete()


def account_heir(*, account: User) -> User:
    """Make the account that stands for one that is being deleted: it has its name, cannot sign in and may do nothing."""
    heir = get_user_model().objects.create_user(
        f"{DELETED}{account.pk}) {account.get_username()}"[:150], is_active=False
    )
    heir.user_permissions.clear()
    return heir


def _is_last_administrator(account: User) -> bool:
    administrators = set(_administrators().values_list("pk", flat=True))
    return administrators == {account.pk}


def _lock_administrators() -> None:
    """Make others who take an administrator away wait until this transaction ends, so that two cannot take each other away."""
    list(_administrators().select_for_update().order_by("pk").values_list("pk", flat=True))


def _administrators() -> Any:
    return get_user_model().objects.filter(is_superuser=True, is_active=True, is_staff=True)


def _powers(account: Any) -> set[tuple[str, int]]:
    """Permissions, of groups too, and projects."""
    app_label, codename = USE_PLAYGROUND.split(".")
    permissions = Permission.objects.filter(Q(user=account) | Q(group__user=account)).exclude(
        content_type__app_label=app_label, codename=codename
    )
    return {("permission", pk) for pk in permissions.values_list("pk", flat=True)} | {
        ("project", pk) for pk in account.projects.values_list("pk", flat=True)
    }
