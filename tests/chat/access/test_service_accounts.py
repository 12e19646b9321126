"""Service accounts: who deletes their keys, and what two people do at once."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied, ValidationError

from chat.access.keys import key_create
from chat.access.projects import project_archive
from chat.access.service_accounts import (
    service_account_create,
    service_account_delete,
    service_account_key_create,
    service_account_rename,
)
from chat.models import ApiKey, Org, Project, ServiceAccount
from tests.people import member


def test_nobody_deletes_an_account_whose_keys_may_more(project: Project) -> None:
    other = Org.objects.create(name="Other")
    project = Project.objects.create(org=other, name="Theirs")
    olga = member("olga", "owner", org=other)
    account = service_account_create(project=project, name="deploy", actor=olga)
    service_account_key_create(account=account, name="small", actor=olga)
    key, _ = service_account_key_create(account=account, name="urgent", actor=olga)
    ApiKey.objects.filter(pk=key.pk).update(min_priority=-1)
    with pytest.raises(PermissionDenied, match="urgent"):
        service_account_delete(account=account, actor=olga)
    assert not ApiKey.objects.exclude(deleted_at=None).exists()
    assert ServiceAccount.objects.get().deleted_at is None
    ApiKey.objects.filter(pk=key.pk).update(min_priority=0)
    service_account_delete(account=account, actor=olga)
    assert not ApiKey.objects.filter(deleted_at=None).exists()


def test_nothing_is_made_of_what_somebody_has_ended_meanwhile(project: Project) -> None:
    olga = member("olga", "owner")
    Project.objects.create(org=project.org, name="Second")
    account = service_account_create(project=project, name="deploy", actor=olga)
    held = ServiceAccount.objects.select_related("project__org").get(pk=account.pk)
    service_account_delete(account=account, actor=olga)
    with pytest.raises(ValidationError, match="has been deleted"):
        service_account_key_create(account=held, name="late", actor=olga)
    with pytest.raises(ValidationError, match="has been deleted"):
        service_account_rename(account=held, name="late", actor=olga)
    project_archive(project=Project.objects.get(pk=project.pk), actor=olga)
    with pytest.raises(ValidationError, match="is archived"):
        key_create(project=project, name="late")
    with pytest.raises(ValidationError, match="is archived"):
        service_account_create(project=project, name="late", actor=olga)
    assert not ApiKey.objects.exists()
