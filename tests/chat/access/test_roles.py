"""The policy of roles: complete, no role above the owner, and nobody gives more than they hold."""

from __future__ import annotations

import pytest

from chat.access.roles import POLICY, Act, Reach, Role, role_covers, role_reach, roles_given_by


def test_each_act_says_how_far_each_role_goes() -> None:
    assert set(POLICY) == set(Act)
    assert all(set(reaches) == set(Role) for reaches in POLICY.values())


@pytest.mark.parametrize("role", Role)
def test_an_owner_covers_every_role_and_nobody_else_covers_an_owner(role: Role) -> None:
    assert role_covers(Role.OWNER, role)
    assert role_covers(role, Role.OWNER) == (role == Role.OWNER)


@pytest.mark.parametrize("giver", Role)
def test_nobody_gives_a_role_that_may_more(giver: Role) -> None:
    for given in roles_given_by(giver):
        assert all(role_reach(given, act) <= role_reach(giver, act) for act in Act)


def test_admins_give_roles_below_theirs_and_others_none() -> None:
    assert roles_given_by(Role.OWNER) == tuple(Role)
    assert Role.OWNER not in roles_given_by(Role.ADMIN)
    assert {Role.ADMIN, Role.MEMBER, Role.VIEWER, Role.BILLING} <= set(roles_given_by(Role.ADMIN))
    assert all(roles_given_by(role) == () for role in (Role.MEMBER, Role.VIEWER, Role.BILLING, Role.AUDITOR))


def test_who_manages_sees() -> None:
    for act in Act:
        area, verb = act.value.split(".")
        seen = f"{area}.see"
        if verb == "manage" and seen in set(Act):
            assert all(role_reach(role, Act(seen)) >= role_reach(role, act) for role in Role)


def test_a_viewer_changes_nothing() -> None:
    kept = {act for act in Act if role_reach(Role.VIEWER, act) > Reach.NONE}
    assert all(act.value.endswith(".see") for act in kept - {Act.CHAT})
