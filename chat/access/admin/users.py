"""Console pages of users and groups. `chat.access.people` decides what users may do to each other's accounts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.db.models.signals import pre_delete
from django.dispatch import receiver
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from chat.access.people import (
    DELETED,
    account_change_check,
    account_deletion_problem,
    account_heir,
    account_is_manageable,
    accounts_delete,
)

POWERS = ("is_staff", "is_superuser", "groups", "user_permissions")

admin.site.unregister(User)
admin.site.unregister(Group)


@receiver(pre_delete, sender=User)
def _keep_history(instance: User, **_: Any) -> None:
    """Keep an account's entries in the history of changes by giving them to a stand-in account."""
    entries = LogEntry.objects.filter(user=instance)
    if entries.exists():
        entries.update(user=account_heir(account=instance))


class AccountForm(UserChangeForm):
    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        flags = {
            name: cleaned.get(name, getattr(self.instance, name)) for name in ("is_active", "is_staff", "is_superuser")
        }
        account_change_check(account=self.instance, **flags)
        return cleaned


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    """Django's page in unfold's forms. Nobody gives more than they have, and one administrator stays."""

    form = AccountForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Leave out the stand-ins for deleted accounts."""
        return super().get_queryset(request).exclude(username__startswith=DELETED)

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        return ("last_login", "date_joined", *(() if request.user.is_superuser else POWERS))

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_change_permission(request, obj) and (
            obj is None or account_is_manageable(actor=request.user, account=obj)
        )

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        if obj is None:
            return super().has_delete_permission(request)
        return (
            super().has_delete_permission(request, obj)
            and account_is_manageable(actor=request.user, account=obj)
            and not account_deletion_problem(actor=request.user, account=obj)
        )

    def get_deleted_objects(
        self, objs: Sequence[User], request: HttpRequest
    ) -> tuple[list[str], dict[str, int], set[str], list[str]]:
        """Return what is deleted, the accounts alone, and what prevents it."""
        accounts, actor = list(objs), request.user
        problems = []
        for account in accounts:
            problem = account_deletion_problem(actor=actor, account=account)
            if not problem and not account_is_manageable(actor=actor, account=account):
                problem = "It may do more than you; ask a superuser."
            if problem:
                problems.append(f"{account}: {problem}")
        return [str(account) for account in accounts], {"users": len(accounts)}, set(), problems

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        self._delete(request, [obj])

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._delete(request, list(queryset))

    def _delete(self, request: HttpRequest, accounts: list[User]) -> None:
        try:
            accounts_delete(actor=request.user, accounts=accounts)
        except ValidationError as error:  # another administrator went since the page was shown
            raise PermissionDenied from error


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """Django's page. A group gives permissions, so only superusers make and change them."""

    def has_add_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return bool(request.user.is_superuser)

    has_change_permission = has_delete_permission = has_add_permission
