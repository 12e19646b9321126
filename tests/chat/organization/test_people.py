"""People of the organisation: what two do at once, and lists that are too long."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from chat.access.memberships import membership_change, membership_delete
from chat.access.roles import Role
from chat.errors import ApiError
from chat.models import Membership, Project
from chat.organization.frame import _answered
from tests.chat.organization.conftest import World
from tests.people import member


def test_a_role_changes_without_what_was_read_before(project: Project) -> None:
    held = member("ann").memberships.get()
    Membership.objects.filter(pk=held.pk).update(may_chat=False)
    membership_change(membership=held, role=Role.AUDITOR)
    assert not Membership.objects.get(pk=held.pk).may_chat
    assert not held.may_chat


def test_the_second_of_two_deletions_is_answered(project: Project) -> None:
    held = member("ann").memberships.get()

    def answer(asked: Any) -> dict[str, Any]:
        membership_delete(membership=held)
        return {}

    membership_delete(membership=Membership.objects.get(pk=held.pk))
    with pytest.raises(ApiError, match="has deleted") as caught:
        _answered(answer, None, {})  # type: ignore[arg-type]  # nothing is read of it
    assert caught.value.status == 409


async def test_too_many_addresses_are_refused_by_name(world: World, api: httpx.AsyncClient) -> None:
    addresses = [f"user{number}@example.com" for number in range(101)]
    answer = await api.get("/v1/organization/users", params={"emails[]": addresses})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "emails")
    assert (await api.get("/v1/organization/users", params={"emails[]": addresses[:100]})).status_code == 200
