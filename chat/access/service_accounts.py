"""Service accounts: make, rename and delete them, and make their keys. Their keys are deleted as all others are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.access.active_projects import active_lock, check_active
from chat.access.key_scope import KeyScope
from chat.access.keys import key_create, key_delete
from chat.access.models import ApiKey, Project, ServiceAccount
from chat.access.policy import may
from chat.access.roles import Act, Reach
from chat.access.subjects import service_account_subject
from chat.audit.services import audit_record


def service_account_create(*, project: Project, name: str, actor: Any) -> ServiceAccount:
    """Make an account without a key. Raises PermissionDenied, or ValidationError for a name that is bad or taken."""
    _check_may(actor, project)
    check_active(project)
    account = ServiceAccount(project=project, name=name)
    account.full_clean()
    with transaction.atomic():
        active_lock(project)
        account.save()
        after = {"name": name, "project": project.name}
        audit_record(action="service_account.create", on=service_account_subject(account), after=after)
    return account


def service_account_rename(*, account: ServiceAccount, name: str, actor: Any) -> None:
    """Give an account another name. Raises PermissionDenied, or ValidationError also in an archived project."""
    _check_may(actor, account.project)
    check_active(account.project)
    account.name = name
    account.full_clean()
    with transaction.atomic():
        before = {"name": _locked(account).name}
        account.save(update_fields=["name"])
        on = service_account_subject(account)
        audit_record(action="service_account.change", on=on, before=before, after={"name": name})


def service_account_delete(*, account: ServiceAccount, actor: Any) -> None:
    """Delete an account and its keys. Its name, usage and log stay.

    Raises PermissionDenied, also for a key that may what `actor` may not give.
    """
    _check_may(actor, account.project)
    scope = KeyScope(actor)
    with transaction.atomic():
        if not ServiceAccount.objects.select_for_update(no_key=True).filter(pk=account.pk, deleted_at=None):
            return
        keys = list(account.keys.filter(deleted_at=None).select_related("project"))
        for key in keys:
            if not scope.covers(key):
                refusal = _("You may not give what the key %(key)s may, and so not delete it.")
                raise PermissionDenied(refusal % {"key": key})
        for key in keys:
            key_delete(key=key)
        ServiceAccount.objects.filter(pk=account.pk).update(deleted_at=timezone.now())
        audit_record(action="service_account.delete", on=service_account_subject(account))


def service_account_key_create(
    *, account: ServiceAccount, name: str, actor: Any, expires_at: datetime | None = None
) -> tuple[ApiKey, str]:
    """Make a key of an account, for inference, and return it with its text. Raises PermissionDenied, ValidationError.

    Whoever manages keys gives it rights and limits, as to every key.
    """
    _check_may(actor, account.project)
    with transaction.atomic():
        _locked(account)
        return key_create(project=account.project, name=name, service_account=account, expires_at=expires_at)


def service_accounts_listed() -> QuerySet[ServiceAccount]:
    """Return the accounts that are not deleted, with project and organisation."""
    return ServiceAccount.objects.filter(deleted_at=None).select_related("project__org")


def _locked(account: ServiceAccount) -> ServiceAccount:
    """Return an account as it is now, locked until the transaction ends. Raises ValidationError if it is deleted."""
    stored: ServiceAccount | None = (
        ServiceAccount.objects.select_for_update(no_key=True).filter(pk=account.pk, deleted_at=None).first()
    )
    if stored is None:
        refusal = _("The service account %(account)s has been deleted: choose another one.")
        raise ValidationError(refusal % {"account": account})
    return stored


def _check_may(actor: Any, project: Project) -> None:
    if not may(actor, Act.PROJECTS_MANAGE, org_id=project.org_id, least=Reach.ORG):
        refusal = _("Your role in %(org)s does not let you manage service accounts.")
        raise PermissionDenied(refusal % {"org": project.org})
