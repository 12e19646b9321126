"""Every writing route of /v1/organization leaves one entry with the key and the person as whom it acts."""

from __future__ import annotations

from typing import Any

import httpx
from channels.db import database_sync_to_async

from tests.chat.audit.secrets_of_tests import entries_after, last_entry
from tests.chat.organization.conftest import World

ROOT = "/v1/organization"
CASES: dict[str, tuple[str, str, Any]] = {
    "POST /admin_api_keys": ("admin_key.create", "/admin_api_keys", {"name": "next"}),
    "DELETE /admin_api_keys/{key_id}": ("admin_key.revoke", "/admin_api_keys/{admin_key}", None),
    "POST /projects": ("project.create", "/projects", {"name": "Shop"}),
    "POST /projects/{project_id}": ("project.change", "/projects/{project}", {"name": "Found"}),
    "POST /projects/{project_id}/users": (
        *("project.change", "/projects/{project}/users"),
        {"user_id": "{owner}", "role": "owner"},
    ),
    "DELETE /projects/{project_id}/users/{user_id}": ("project.change", "/projects/{project}/users/{ann}", None),
    "POST /projects/{project_id}/service_accounts": (
        *("service_account.create key.create", "/projects/{project}/service_accounts"),
        {"name": "deploy"},
    ),
    "POST /projects/{project_id}/service_accounts/{account_id}": (
        *("service_account.change", "/projects/{project}/service_accounts/{account}"),
        {"name": "release"},
    ),
    "POST /projects/{project_id}/service_accounts/{account_id}/api_keys": (
        *("key.create", "/projects/{project}/service_accounts/{account}/api_keys"),
        {"name": "second"},
    ),
    "DELETE /projects/{project_id}/service_accounts/{account_id}": (
        *("key.delete service_account.delete", "/projects/{project}/service_accounts/{account}"),
        None,
    ),
    "DELETE /projects/{project_id}/api_keys/{key_id}": ("key.delete", "/projects/{project}/api_keys/{key}", None),
    "POST /invites": ("invite.create", "/invites", {"email": "bob@example.com", "role": "member"}),
    "DELETE /invites/{invite_id}": ("invite.revoke", "/invites/{invite}", None),
    "POST /projects/{project_id}/rate_limits/{rate_limit_id}": (
        *("project.change", "/projects/{project}/rate_limits/rl-all-models"),
        {"max_requests_per_1_minute": "60"},
    ),
    "POST /projects/{project_id}/archive": ("project.archive", "/projects/{project}/archive", None),
    "POST /users/{user_id}": ("member.change", "/users/{ann}", {"role": "viewer"}),
    "DELETE /users/{user_id}": ("member.delete", "/users/{ann}", None),
}
"""By route: the action of its entry, the path and the body."""
CHANGES_NOTHING = {"POST /projects/{project_id}/users/{user_id}"}


def routes(names: Any) -> set[str]:
    return {name.replace(" ", f" {ROOT}", 1) for name in names}


async def test_each_route_leaves_one_entry(world: World, api: httpx.AsyncClient) -> None:
    names = {
        "project": f"proj_{world.project.pk}",
        "owner": f"user-{world.owner.pk}",
        "ann": f"user-{world.ann.pk}",
    }
    made = await api.post(f"{ROOT}/admin_api_keys", json={"name": "old"})
    names["admin_key"] = made.json()["id"]
    made = await api.post(f"{ROOT}/invites", json={"email": "eve@example.com", "role": "reader"})
    names["invite"] = made.json()["id"]
    keys = await api.get(f"{ROOT}/projects/{names['project']}/api_keys")
    names["key"] = keys.json()["data"][0]["id"]
    account = {"name": "old", "create_service_account_only": True}
    made = await api.post(f"{ROOT}/projects/{names['project']}/service_accounts", json=account)
    names["account"] = made.json()["id"]
    await api.post(f"{ROOT}/projects", json={"name": "Kept"})
    for route, (action, path, body) in CASES.items():
        last = await database_sync_to_async(last_entry)()
        sent = body and {name: str(value).format(**names) for name, value in body.items()}
        method = route.partition(" ")[0]
        answer = await api.request(method, ROOT + path.format(**names), json=sent, headers={"X-Request-Id": "asked-1"})
        assert answer.status_code == 200, (route, answer.text)
        entries = await database_sync_to_async(entries_after)(last)
        assert [entry.action for entry in entries] == action.split(), route
        entry = entries[-1]
        assert (entry.actor_kind, entry.actor_id) == ("adminkey", world.key.public_id), route
        assert entry.actor_name == "terraform (olga)"
        assert (entry.address, entry.request_id, entry.org_id) == ("192.0.2.7", "asked-1", world.org.pk), route
        assert entry.source.startswith(f"API: {method} {ROOT}/")
