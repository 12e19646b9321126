"""Projects and people by OpenAI's published client: what it makes, what it is refused, and whose it never sees."""

from __future__ import annotations

from typing import Any

import httpx
import openai as openai_package
import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User

from chat.access.keys import key_create
from chat.models import ApiKey, Membership, Project
from tests.chat.organization.conftest import World
from tests.people import member


async def code_of(call: Any) -> tuple[int, str | None]:
    """Return the status of a refused call, and the field at fault."""
    with pytest.raises(openai_package.APIStatusError) as caught:
        await call
    return caught.value.status_code, caught.value.param  # type: ignore[return-value]


async def test_projects_are_made_renamed_and_listed_by_pages(world: World, openai: Any) -> None:
    made = [await openai.projects.create(name=name) for name in ("Mail", "Shop")]
    assert made[0].object == "organization.project"
    assert made[0].status == "active"
    assert (await openai.projects.update(made[0].id, name="Post")).name == "Post"
    assert (await openai.projects.retrieve(made[0].id)).name == "Post"
    assert [one.name async for one in openai.projects.list(limit=1)] == ["Search", "Post", "Shop"]
    page = await openai.projects.list(limit=2)
    assert (page.has_more, page.last_id) == (True, made[0].id)
    assert await code_of(openai.projects.create(name="Shop")) == (400, None)
    assert await code_of(openai.projects.create(name="x" * 121)) == (400, "name")
    assert await code_of(openai.projects.create(name="Far", geography="EU")) == (400, "geography")


async def test_an_archived_project_serves_nothing_and_keeps_its_history(world: World, openai: Any, opened: Any) -> None:
    client = opened(world.chat_text)
    id_ = f"proj_{world.project.pk}"
    assert await code_of(openai.projects.archive(id_)) == (400, None), "chats count to the last one"
    await openai.projects.create(name="Shop")
    assert (await client.get("/v1/models")).status_code == 200
    archived = await openai.projects.archive(id_)
    assert archived.status == "archived"
    assert archived.archived_at
    assert (await client.get("/v1/models")).status_code == 401
    assert [one.name async for one in openai.projects.list()] == ["Shop"]
    assert [one.name async for one in openai.projects.list(include_archived=True)] == ["Search", "Shop"]
    assert await code_of(openai.projects.update(id_, name="Else")) == (400, None)
    assert await code_of(openai.projects.users.create(id_, user_id=f"user-{world.owner.pk}", role="owner")) == (
        400,
        None,
    )
    assert await ApiKey.objects.filter(project=world.project, disabled_at=None).acount() == 1


async def test_rows_of_other_organisations_are_not_there(world: World, openai: Any) -> None:
    stranger = await database_sync_to_async(member)("sam", "owner", org=world.other.org)
    for id_ in (f"proj_{world.other.pk}", "proj_0", "proj_x", "Search", f"proj_{'9' * 30}"):
        assert await code_of(openai.projects.retrieve(id_)) == (404, None)
        assert await code_of(openai.projects.archive(id_)) == (404, None)
        assert await code_of(openai.projects.users.list(id_)) == (404, None)
    for id_ in (f"user-{stranger.pk}", "user-x", str(world.ann.pk)):
        assert await code_of(openai.users.retrieve(id_)) == (404, None)
        assert await code_of(openai.users.delete(id_)) == (404, None)
    assert await code_of(
        openai.projects.users.create(f"proj_{world.project.pk}", user_id=f"user-{stranger.pk}", role="member")
    ) == (400, "user_id")


async def test_people_come_to_a_project_and_leave_it_with_their_keys(world: World, openai: Any) -> None:
    users, id_ = openai.projects.users, f"proj_{world.project.pk}"
    bob = await database_sync_to_async(member)("bob", "member", org=world.org, email="bob@example.com")
    assert [(one.name, one.role) async for one in users.list(id_)] == [("ann", "member")]
    added = await users.create(id_, email="BOB@example.com", role="member")
    assert (added.id, added.object) == (f"user-{bob.pk}", "organization.project.user")
    assert [one.name async for one in users.list(id_, limit=1)] == ["ann", "bob"]
    key, _ = await database_sync_to_async(key_create)(project=world.project, name="bob's", owner=bob)
    assert (await users.delete(f"user-{bob.pk}", project_id=id_)).deleted is True
    assert (await ApiKey.objects.aget(pk=key.pk)).disabled_at is not None
    assert await code_of(users.retrieve(f"user-{bob.pk}", project_id=id_)) == (404, None)
    assert await code_of(users.create(id_, role="member")) == (400, "user_id")


async def test_projects_have_the_roles_of_the_organisation(world: World, openai: Any) -> None:
    users, id_ = openai.projects.users, f"proj_{world.project.pk}"
    ann = f"user-{world.ann.pk}"
    assert (await users.update(ann, project_id=id_, role="member")).role == "member"
    assert await code_of(users.update(ann, project_id=id_, role="owner")) == (400, "role")
    assert (await users.create(id_, user_id=f"user-{world.owner.pk}", role="owner")).role == "owner"


async def test_roles_change_as_far_as_the_maker_of_the_key_may(
    world: World, openai: Any, api: httpx.AsyncClient
) -> None:
    ann = f"user-{world.ann.pk}"
    assert [(one.name, one.role) async for one in openai.users.list(limit=1)] == [("olga", "owner"), ("ann", "member")]
    assert [one.id async for one in openai.users.list(emails=["ANN@example.com", "nobody@example.com"])] == [ann]
    assert (await openai.users.update(ann, role="billing")).role == "billing"
    assert (await openai.users.update(ann, role="reader")).role == "member"
    assert await code_of(openai.users.update(ann, role="king")) == (400, "role")
    assert await code_of(openai.users.update(ann, role="viewer", technical_level="high")) == (400, "technical_level")
    olga = f"user-{world.owner.pk}"
    assert await code_of(openai.users.update(olga, role="admin")) == (400, None), "the last owner"
    assert await code_of(openai.users.delete(olga)) == (400, None)
    assert (await openai.users.delete(ann)).deleted is True
    assert not await Membership.objects.filter(user=world.ann).aexists()
    assert await User.objects.filter(pk=world.ann.pk).aexists()


async def test_a_key_of_an_admin_makes_no_owner(world: World, opened: Any) -> None:
    from chat.access.admin_keys import admin_key_create

    def key() -> str:
        adam = member("adam", "admin", org=world.org)
        return admin_key_create(actor=adam, org=world.org, name="adam's")[1]

    client = opened(await database_sync_to_async(key)())
    ann, olga = (f"/v1/organization/users/user-{one.pk}" for one in (world.ann, world.owner))
    assert (await client.post(ann, json={"role": "owner"})).status_code == 403
    assert (await client.post(olga, json={"role": "member"})).status_code == 403
    assert (await client.delete(olga)).status_code == 403
    assert (await client.post(ann, json={"role": "admin"})).status_code == 200


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("projects?limit=0", "limit"),
        ("projects?limit=101", "limit"),
        ("projects?after=user-1", "after"),
        ("projects?before=proj_1", "before"),
        ("users?order=asc", "order"),
        ("admin_api_keys?order=up", "order"),
        ("admin_api_keys?after=key_none", "after"),
    ],
)
async def test_bad_parameters_are_named(api: httpx.AsyncClient, path: str, param: str) -> None:
    answer = await api.get(f"/v1/organization/{path}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_nothing_is_half_saved(world: World, api: httpx.AsyncClient) -> None:
    before = await Project.objects.acount()
    for body in ({}, {"name": ""}, {"name": None}, {"name": 7}, {"name": "a\0b"}, {"name": "ok", "more": 1}):
        assert (await api.post("/v1/organization/projects", json=body)).status_code == 400, body
    assert await Project.objects.acount() == before
