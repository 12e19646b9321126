"""The routes of service accounts and of their keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from chat.access.models import ApiKey, ServiceAccount
from chat.access.roles import Act
from chat.access.service_accounts import (
    service_account_create,
    service_account_delete,
    service_account_key_create,
    service_account_rename,
    service_accounts_listed,
)
from chat.api.request.fields import bad_value
from chat.organization.bodies import ServiceAccountCreate, ServiceAccountKeyCreate, ServiceAccountModify
from chat.organization.frame import (
    KEY,
    PAGING,
    SERVICE_ACCOUNT,
    Asked,
    Does,
    admin_view,
    deleted,
    each,
    id_read,
    missing,
    page_answer,
    unix_seconds,
)
from chat.organization.projects import project_found

KIND = "organization.project.service_account"


def accounts_list(asked: Asked, project_id: str) -> dict[str, Any]:
    rows = service_accounts_listed().filter(project=project_found(asked, project_id))
    return page_answer(asked, rows, each(account_object), prefix=SERVICE_ACCOUNT)


def account_create(asked: Asked, project_id: str) -> dict[str, Any]:
    """Make an account and, unless told otherwise, its first key, which is shown in this answer alone."""
    project, name = project_found(asked, project_id), asked.values["name"]
    is_alone = bool(asked.values.get("create_service_account_only"))
    if is_alone and "expires_in_seconds" in asked.values:
        raise bad_value("expires_in_seconds", "is for the key, which create_service_account_only leaves out")
    with transaction.atomic():
        account = service_account_create(project=project, name=name, actor=asked.person)
        made = None if is_alone else _key_made(asked, account, name)
    return account_object(account) | {"api_key": made}


def account_retrieve(asked: Asked, project_id: str, account_id: str) -> dict[str, Any]:
    return account_object(_account(asked, project_id, account_id))


def account_modify(asked: Asked, project_id: str, account_id: str) -> dict[str, Any]:
    account = _account(asked, project_id, account_id)
    service_account_rename(account=account, name=asked.values["name"], actor=asked.person)
    return account_object(account)


def account_delete(asked: Asked, project_id: str, account_id: str) -> dict[str, Any]:
    service_account_delete(account=_account(asked, project_id, account_id), actor=asked.person)
    return deleted(KIND, account_id)


def key_create(asked: Asked, project_id: str, account_id: str) -> dict[str, Any]:
    account = _account(asked, project_id, account_id)
    return _key_made(asked, account, asked.values.get("name") or account.name)


def _key_made(asked: Asked, account: ServiceAccount, name: str) -> dict[str, Any]:
    key, text = service_account_key_create(account=account, name=name, actor=asked.person, expires_at=_expiry(asked))
    return _key_object(key) | {"value": text}


def _expiry(asked: Asked) -> datetime | None:
    seconds = asked.values.get("expires_in_seconds")
    return None if seconds is None else timezone.now() + timedelta(seconds=seconds)


def _key_object(key: ApiKey) -> dict[str, Any]:
    return {
        "id": f"{KEY}{key.public_id}",
        "object": f"{KIND}.api_key",
        "name": key.name,
        "created_at": unix_seconds(key.created_at),
        "expires_at": unix_seconds(key.expires_at),
    }


def _account(asked: Asked, project_id: str, account_id: str) -> ServiceAccount:
    project = project_found(asked, project_id)
    rows = service_accounts_listed().filter(project=project, pk=id_read(SERVICE_ACCOUNT, account_id))
    found: ServiceAccount | None = rows.first()
    if found is None:
        raise missing("service account of this project", account_id, f"projects/{project_id}/service_accounts")
    return found


def account_object(account: ServiceAccount) -> dict[str, Any]:
    return {
        "id": f"{SERVICE_ACCOUNT}{account.pk}",
        "object": KIND,
        "name": account.name,
        "role": "member",
        "created_at": unix_seconds(account.created_at),
    }


SEE, MANAGE = Act.PROJECTS_SEE, Act.PROJECTS_MANAGE
accounts = admin_view(
    get=Does(accounts_list, SEE, query=PAGING), post=Does(account_create, MANAGE, ServiceAccountCreate())
)
account = admin_view(
    get=Does(account_retrieve, SEE),
    post=Does(account_modify, MANAGE, ServiceAccountModify()),
    delete=Does(account_delete, MANAGE),
)
account_keys = admin_view(post=Does(key_create, MANAGE, ServiceAccountKeyCreate()))
