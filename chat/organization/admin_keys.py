"""The routes of admin keys."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from chat.access.admin_keys import admin_key_create, admin_key_revoke, admin_keys_listed
from chat.access.models import AdminKey, Membership
from chat.access.roles import Act
from chat.api.request.fields import bad_value, echo
from chat.organization.bodies import AdminKeyCreate
from chat.organization.frame import (
    KEY,
    PAGING,
    USER,
    Asked,
    Does,
    admin_view,
    deleted,
    keys_page,
    missing,
    unix_seconds,
)

KIND = "organization.admin_api_key"


def keys_list(asked: Asked) -> dict[str, Any]:
    order = asked.request.GET.get("order", "asc")
    if order not in ("asc", "desc"):
        raise bad_value("order", f"must be asc or desc, got {echo(order)}")
    return keys_page(asked, admin_keys_listed().filter(org=asked.org), keys_described, order=order)


def key_create(asked: Asked) -> dict[str, Any]:
    """Make a key for the same person. It is valid no longer, and nowhere else, than the key that makes it."""
    key, raw = admin_key_create(
        actor=asked.person,
        org=asked.org,
        name=asked.values["name"],
        networks=asked.caller.key.networks,
        expires_at=_expiry(asked),
    )
    return keys_described([key])[0] | {"value": raw}


def _expiry(asked: Asked) -> datetime | None:
    most: datetime | None = asked.caller.key.expires_at
    seconds = asked.values.get("expires_in_seconds")
    if seconds is None:
        return most
    expires_at = timezone.now() + timedelta(seconds=seconds)
    if most is not None and expires_at > most:
        text = f"must end before the key that makes it, which expires at {unix_seconds(most)}"
        raise bad_value("expires_in_seconds", text)
    return expires_at


def key_retrieve(asked: Asked, key_id: str) -> dict[str, Any]:
    return keys_described([_key(asked, key_id)])[0]


def key_delete(asked: Asked, key_id: str) -> dict[str, Any]:
    admin_key_revoke(key=_key(asked, key_id))
    return deleted(KIND, key_id)


def _key(asked: Asked, key_id: str) -> AdminKey:
    found: AdminKey | None = None
    if key_id.startswith(KEY):
        found = admin_keys_listed().filter(org=asked.org, public_id=key_id.removeprefix(KEY)).first()
    if found is None:
        raise missing("admin key", key_id, "admin_api_keys")
    return found


def keys_described(keys: list[AdminKey]) -> list[dict[str, Any]]:
    owners = {key.owner_id for key in keys if key.owner_id is not None}
    roles = dict(
        Membership.objects.filter(user__in=owners, org__in={key.org_id for key in keys}).values_list("user", "role")
    )
    return [_described(key, roles.get(key.owner_id, "")) for key in keys]


def _described(key: AdminKey, role: str) -> dict[str, Any]:
    return {
        "id": f"{KEY}{key.public_id}",
        "object": KIND,
        "name": key.name,
        "redacted_value": key.shown,
        "created_at": unix_seconds(key.created_at),
        "expires_at": unix_seconds(key.expires_at),
        "last_used_at": unix_seconds(key.last_used_at),
        "owner": None if key.owner is None else _owner(key.owner, role),
    }


def _owner(person: User, role: str) -> dict[str, Any]:
    return {
        "type": "user",
        "object": "organization.user",
        "id": f"{USER}{person.pk}",
        "name": person.get_full_name() or person.get_username(),
        "created_at": unix_seconds(person.date_joined),
        "role": role or "owner",
    }


admin_keys = admin_view(
    get=Does(keys_list, Act.ADMIN_KEYS_SEE, query=(*PAGING, "order")),
    post=Does(key_create, Act.ADMIN_KEYS_MANAGE, AdminKeyCreate()),
)
admin_key = admin_view(get=Does(key_retrieve, Act.ADMIN_KEYS_SEE), delete=Does(key_delete, Act.ADMIN_KEYS_MANAGE))
