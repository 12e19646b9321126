"""Each route of /v1/organization asks the policy of roles, for the person behind the key, in its organisation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from channels.db import database_sync_to_async

from chat.access.admin_keys import admin_key_create
from chat.access.models import Membership
from chat.access.roles import Act, Reach, Role, role_reach
from chat.api.openapi.document import operations
from chat.organization.frame import ROUTES
from tests.chat.organization.conftest import World
from tests.people import member

READS = {Act.ADMIN_KEYS_SEE, Act.PROJECTS_SEE, Act.PEOPLE_SEE, Act.KEYS_SEE, Act.USAGE_SEE, Act.AUDIT_SEE}


def paths() -> list[tuple[str, str]]:
    """Return every method and path, with ids that name nothing."""
    routes = [route.split(" ") for route in operations() if " /v1/organization" in route]
    return [(method, re.sub(r"\{\w+\}", "nothing-0", path)) for method, path in routes]


def test_reading_asks_for_acts_that_see_and_writing_for_others() -> None:
    for method, does in ROUTES:
        assert (does.act in READS) == (method == "get"), does.answer
    assert len(ROUTES) == len(paths())


@pytest.mark.parametrize("role", Role.values)
async def test_a_key_may_what_its_makers_role_may_at_the_time(world: World, opened: Any, role: str) -> None:
    """Keys are revoked with the role that allowed them. Here the role is changed behind the services' back."""

    def made() -> str:
        person = member("adam", "admin", org=world.org)
        text = admin_key_create(actor=person, org=world.org, name="adam's")[1]
        Membership.objects.filter(user=person).update(role=role)
        return text

    client = opened(await database_sync_to_async(made)())
    may_have_keys = role_reach(Role(role), Act.ADMIN_KEYS_MANAGE) == Reach.ORG
    for method, path in paths():
        status = (await client.request(method, path)).status_code
        assert (status != 401) == may_have_keys, (method, path)
        assert status != 500, (method, path)


async def test_an_act_that_the_role_loses_is_refused(world: World, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners and admins may all of it today; the table decides, and no route has a rule of its own."""
    from chat.access import roles

    for act in {does.act for _, does in ROUTES} - {Act.ADMIN_KEYS_MANAGE}:
        lost = {**roles.POLICY, act: dict.fromkeys(Role, Reach.OWN)}
        with monkeypatch.context() as changed:
            changed.setattr(roles, "POLICY", lost)
            asked = {
                Act.ADMIN_KEYS_SEE: ("GET", "admin_api_keys"),
                Act.PROJECTS_SEE: ("GET", "projects"),
                Act.PROJECTS_MANAGE: ("POST", "projects"),
                Act.PEOPLE_SEE: ("GET", "users"),
                Act.PEOPLE_MANAGE: ("POST", "invites"),
                Act.KEYS_SEE: ("GET", f"projects/proj_{world.project.pk}/api_keys"),
                Act.KEYS_MANAGE: ("DELETE", f"projects/proj_{world.project.pk}/api_keys/key_x"),
                Act.LIMITS_MANAGE: ("POST", f"projects/proj_{world.project.pk}/rate_limits/rl-all-models"),
                Act.USAGE_SEE: ("GET", "costs?start_time=0"),
                Act.AUDIT_SEE: ("GET", "audit_logs"),
            }
            method, path = asked[act]
            answer = await api.request(method, f"/v1/organization/{path}", json={} if method == "POST" else None)
        assert answer.status_code == 403, act
        assert "olga" in answer.json()["error"]["message"]
