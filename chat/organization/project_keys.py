"""The routes of the API keys of a project. New ones are made by people, in the console, and by service accounts."""

from __future__ import annotations

from typing import Any

from chat.access.key_scope import KeyScope
from chat.access.keys import key_delete
from chat.access.models import ApiKey, Membership
from chat.access.roles import Act, Reach, Role, role_reach
from chat.access.selectors import keys_listed
from chat.errors import ApiError
from chat.organization.frame import (
    KEY,
    PAGING,
    SERVICE_ACCOUNT,
    USER,
    Asked,
    Does,
    admin_view,
    deleted,
    keys_page,
    missing,
    unix_seconds,
)
from chat.organization.projects import project_found, project_role

KIND = "organization.project.api_key"


def keys_list(asked: Asked, project_id: str) -> dict[str, Any]:
    return keys_page(asked, keys_listed().filter(project=project_found(asked, project_id)), keys_described)


def key_retrieve(asked: Asked, project_id: str, key_id: str) -> dict[str, Any]:
    return keys_described([_key(asked, project_id, key_id)])[0]


def key_remove(asked: Asked, project_id: str, key_id: str) -> dict[str, Any]:
    key = _key(asked, project_id, key_id)
    if not KeyScope(asked.person).covers(key):
        text = f"{asked.person.get_username()} may not give what this key may, and so not delete it."
        raise ApiError("permission_denied", text)
    key_delete(key=key)
    return deleted(KIND, key_id)


def _key(asked: Asked, project_id: str, key_id: str) -> ApiKey:
    project = project_found(asked, project_id)
    found: ApiKey | None = None
    if key_id.startswith(KEY):
        found = keys_listed().filter(project=project, public_id=key_id.removeprefix(KEY)).first()
    if found is None:
        raise missing("API key of this project", key_id, f"projects/{project_id}/api_keys")
    return found


def keys_described(keys: list[Any]) -> list[dict[str, Any]]:
    """Describe keys of one project, with the roles of their owners, in two queries."""
    owners = [key.owner_id for key in keys if key.owner_id is not None]
    if not owners:
        return [_described(key, None, is_inside=False) for key in keys]
    project = keys[0].project
    roles = dict(Membership.objects.filter(org=project.org_id, user__in=owners).values_list("user_id", "role"))
    inside = set(project.members.filter(pk__in=owners).values_list("pk", flat=True))
    return [_described(key, roles.get(key.owner_id), is_inside=key.owner_id in inside) for key in keys]


def _described(key: Any, role: str | None, *, is_inside: bool) -> dict[str, Any]:
    is_active = True
    if key.owner_id is not None:
        reach = role_reach(Role(role), Act.KEYS_MANAGE) if role else Reach.NONE
        is_active = key.owner.is_active and (reach == Reach.ORG or (reach == Reach.OWN and is_inside))
    return {
        "id": f"{KEY}{key.public_id}",
        "object": KIND,
        "name": key.name,
        "redacted_value": f"lc_{key.public_id}_…{key.last4 or ''}",
        "created_at": unix_seconds(key.created_at),
        "expires_at": unix_seconds(key.expires_at),
        "last_used_at": unix_seconds(key.last_used_at),
        "disabled_at": unix_seconds(key.disabled_at),
        "owner": _owner(key, role),
        "owner_project_access": "active" if is_active and not key.project.archived_at else "inactive",
    }


def _owner(key: Any, role: str | None) -> dict[str, Any]:
    """Return whose key it is. A key of the project names nobody."""
    if key.owner_id is not None:
        user = key.owner
        person = {
            "id": f"{USER}{user.pk}",
            "name": user.get_full_name() or user.get_username(),
            "email": user.email,
            "created_at": unix_seconds(user.date_joined),
            "role": project_role(role) if role else "none",
        }
        return {"type": "user", "user": person}
    if key.service_account_id is not None:
        account = key.service_account
        program = {
            "id": f"{SERVICE_ACCOUNT}{account.pk}",
            "name": account.name,
            "created_at": unix_seconds(account.created_at),
            "role": "member",
        }
        return {"type": "service_account", "service_account": program}
    return {"type": None}


keys = admin_view(get=Does(keys_list, Act.KEYS_SEE, query=PAGING))
key = admin_view(get=Does(key_retrieve, Act.KEYS_SEE), delete=Does(key_remove, Act.KEYS_MANAGE))
