"""Invitations by OpenAI's published client, with and without mail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.core import mail
from django.utils import timezone

from chat.access.admin_keys import admin_key_create
from chat.access.invitations import invitation_accept, invitation_find
from chat.models import Invitation
from lightcone_site.sign_in import MailSettings
from tests.chat.organization.conftest import World
from tests.chat.organization.test_projects import code_of
from tests.people import member


async def test_an_invitation_is_a_link_that_is_shown_once(world: World, openai: Any) -> None:
    id_ = f"proj_{world.project.pk}"
    made = await openai.invites.create(email="bob@example.com", role="reader", projects=[{"id": id_, "role": "member"}])
    assert (made.object, made.status, made.role) == ("organization.invite", "pending", "member")
    assert made.projects[0].id == id_
    assert made.link.startswith("http://localhost/")
    assert "sends no mail" in made.mail_error
    assert (await openai.invites.retrieve(made.id)).to_dict().keys().isdisjoint({"link"})
    secret = made.link.rstrip("/").rpartition("/")[2]

    def accept() -> None:
        from django.contrib.auth.models import User

        invitation_accept(invitation=invitation_find(secret=secret), user=User.objects.create_user("bob"))

    await database_sync_to_async(accept)()
    assert (await openai.invites.retrieve(made.id)).status == "accepted"
    assert await code_of(openai.invites.delete(made.id)) == (409, None)
    assert [one.name async for one in openai.projects.users.list(id_)] == ["ann", "bob"]


async def test_the_link_is_mailed_where_mail_is_set_up(world: World, openai: Any, settings: Any) -> None:
    settings.LIGHTCONE_MAIL = MailSettings(host="localhost", sender="lightcone@example.com")
    made = await openai.invites.create(email="bob@example.com", role="member")
    (sent,) = mail.outbox
    assert sent.to == ["bob@example.com"]
    assert made.link in sent.body
    assert made.mail_error is None


async def test_invitations_end_and_are_listed_by_pages(world: World, openai: Any) -> None:
    made = [await openai.invites.create(email=f"{name}@example.com", role="member") for name in ("bob", "cy", "dee")]
    assert [one.email async for one in openai.invites.list(limit=2)] == [
        *("bob@example.com", "cy@example.com"),
        "dee@example.com",
    ]
    assert (await openai.invites.delete(made[0].id)).deleted is True
    assert await code_of(openai.invites.retrieve(made[0].id)) == (404, None)
    await Invitation.objects.filter(email="cy@example.com").aupdate(expires_at=timezone.now() - timedelta(days=1))
    assert [one.status async for one in openai.invites.list()] == ["expired", "pending"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"email": "nobody", "role": "member"}, "email"),
        ({"email": "bob@example.com", "role": "king"}, "role"),
        (
            {"email": "bob@example.com", "role": "member", "projects": [{"id": "proj_0", "role": "member"}]},
            "projects.0.id",
        ),
        ({"email": "bob@example.com", "role": "member", "projects": [{"role": "member"}]}, "projects.0.id"),
        ({"email": "bob@example.com", "role": "member", "projects": ["proj_1"]}, "projects.0"),
    ],
)
async def test_bad_invitations_are_refused_by_field(world: World, openai: Any, body: Any, param: str) -> None:
    assert await code_of(openai.invites.create(**body)) == (400, param)
    assert not await Invitation.objects.aexists()


async def test_projects_are_of_the_organisation_and_roles_those_that_the_maker_gives(
    world: World, openai: Any, opened: Any
) -> None:
    projects = [{"id": f"proj_{world.other.pk}", "role": "member"}]
    assert await code_of(openai.invites.create(email="b@example.com", role="member", projects=projects)) == (
        400,
        "projects.0.id",
    )
    projects = [{"id": f"proj_{world.project.pk}", "role": "owner"}]
    assert await code_of(openai.invites.create(email="b@example.com", role="member", projects=projects)) == (
        400,
        "projects.0.role",
    )
    owners = await openai.invites.create(email="b@example.com", role="owner", projects=projects)

    def text() -> str:
        return admin_key_create(actor=member("adam", "admin", org=world.org), org=world.org, name="adam's")[1]

    client = opened(await database_sync_to_async(text)())
    path = "/v1/organization/invites"
    assert (await client.post(path, json={"email": "c@example.com", "role": "owner"})).status_code == 403
    assert (await client.delete(f"{path}/{owners.id}")).status_code == 403
