"""Service accounts and keys of projects, by OpenAI's published client; whose usage a service account's is."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from openai import BadRequestError

from chat.access.admin_keys import admin_key_create
from chat.access.keys import key_caller, key_create
from chat.models import ApiKey, RequestLog, ServiceAccount
from chat.usage.names import name_for, names_of
from chat.usage.services import usage_records_write
from tests.chat.organization.conftest import World
from tests.chat.organization.test_projects import code_of
from tests.chat.records import record
from tests.people import member


async def test_an_account_comes_with_a_key_that_works(world: World, openai: Any, opened: Any) -> None:
    accounts, id_ = openai.projects.service_accounts, f"proj_{world.project.pk}"
    made = await accounts.create(id_, name="deploy", expires_in_seconds=3600)
    assert (made.object, made.role) == ("organization.project.service_account", "member")
    assert made.api_key.value.startswith("lc_")
    client = opened(made.api_key.value)
    assert (await client.get("/v1/models")).status_code == 200
    assert (await accounts.create(id_, name="bare", create_service_account_only=True)).api_key is None
    assert [one.name async for one in accounts.list(id_, limit=1)] == ["deploy", "bare"]
    second = await accounts.api_keys.create(made.id, project_id=id_, name="next")
    assert (second.name, second.expires_at) == ("next", None)
    assert (await accounts.update(made.id, project_id=id_, name="release")).name == "release"
    assert (await accounts.delete(made.id, project_id=id_)).deleted is True
    assert (await client.get("/v1/models")).status_code == 401
    assert (await opened(second.value).get("/v1/models")).status_code == 401
    assert await code_of(accounts.retrieve(made.id, project_id=id_)) == (404, None)
    assert (await accounts.create(id_, name="release")).name == "release", "the name is free again"


async def test_bad_accounts_are_refused(world: World, openai: Any) -> None:
    accounts, id_ = openai.projects.service_accounts, f"proj_{world.project.pk}"
    await accounts.create(id_, name="deploy")
    with pytest.raises(BadRequestError, match="has a service account of this name: choose another"):
        await accounts.create(id_, name="deploy")
    assert await code_of(accounts.create(id_, name="")) == (400, "name")
    refused = accounts.create(id_, name="a", create_service_account_only=True, expires_in_seconds=60)
    assert await code_of(refused) == (400, "expires_in_seconds")
    assert await code_of(accounts.create(f"proj_{world.other.pk}", name="a")) == (404, None)
    assert await ServiceAccount.objects.acount() == 1
    assert await ApiKey.objects.filter(name="deploy").acount() == 1


async def test_an_account_outlives_who_made_it(world: World, openai: Any, opened: Any) -> None:
    made = await openai.projects.service_accounts.create(f"proj_{world.project.pk}", name="deploy")
    await database_sync_to_async(member)("next", "owner", org=world.org)
    await openai.users.delete(f"user-{world.owner.pk}")
    assert (await opened(made.api_key.value).get("/v1/models")).status_code == 200


async def test_keys_name_whose_they_are(world: World, openai: Any) -> None:
    keys, id_ = openai.projects.api_keys, f"proj_{world.project.pk}"
    await openai.projects.service_accounts.create(id_, name="deploy")
    await database_sync_to_async(key_create)(project=world.project, name="ann's", owner=world.ann)
    found = {one.name: one async for one in keys.list(id_, limit=1)}
    assert list(found) == ["app", "deploy", "ann's"]
    assert found["deploy"].owner.service_account.name == "deploy"
    assert found["ann's"].owner.user.id == f"user-{world.ann.pk}"
    assert found["app"].owner.type is None
    assert {one.owner_project_access for one in found.values()} == {"active"}
    await openai.projects.users.delete(f"user-{world.ann.pk}", project_id=id_)
    left = await keys.retrieve(found["ann's"].id, project_id=id_)
    assert left.owner_project_access == "inactive"
    assert left.disabled_at
    assert (await keys.delete(left.id, project_id=id_)).deleted is True
    assert await code_of(keys.retrieve(left.id, project_id=id_)) == (404, None)
    assert await code_of(keys.retrieve(world.key.public_id, project_id=id_)) == (404, None)


async def test_a_list_of_keys_takes_constantly_many_queries(world: World, api: httpx.AsyncClient) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from chat.access.selectors import keys_listed
    from chat.organization.project_keys import keys_described

    def count(num_keys: int) -> int:
        for number in range(num_keys):
            owner = member(f"p{num_keys}-{number}", org=world.org)
            key_create(project=world.project, name="x", owner=owner)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            keys_described(list(keys_listed().filter(project=world.project)))
        return len(queries)

    assert await database_sync_to_async(count)(1) == await database_sync_to_async(count)(4)


async def test_a_key_that_may_more_than_the_maker_is_not_deleted(world: World, opened: Any) -> None:
    def made() -> tuple[str, str]:
        home = member("adam", "admin", org=world.other.org)
        text = admin_key_create(actor=home, org=world.other.org, name="adam's")[1]
        key = key_create(project=world.other, name="models", rights=["inference", "models_manage"])[0]
        return text, key.public_id

    text, public_id = await database_sync_to_async(made)()
    path = f"/v1/organization/projects/proj_{world.other.pk}/api_keys/key_{public_id}"
    assert (await opened(text).get(path)).status_code == 200
    assert (await opened(text).delete(path)).status_code == 403


def test_usage_and_log_are_under_its_name(project: Any, admin_client: Client) -> None:
    account = ServiceAccount.objects.create(project=project, name="deploy")
    key, _ = key_create(project=project, name="deploy", service_account=account)
    caller = key_caller(public_id=key.public_id)
    assert caller.account_id == account.usage_id < 0
    usage_records_write([record(project_id=project.pk, org_id=project.org_id, account_id=caller.account_id)])
    assert names_of("user", [account.usage_id]) == {account.usage_id: "deploy (service account)"}
    log = RequestLog.objects.get()
    page = admin_client.get(reverse("admin:chat_requestlog_change", args=[log.pk])).text
    assert reverse("admin:chat_serviceaccount_change", args=[account.pk]) in page
    listed = reverse("admin:chat_requestlog_changelist")
    for sought in ("deploy", f"%23{account.usage_id}"):
        assert str(log.run_id) in admin_client.get(f"{listed}?account={sought}").text, sought
    january = {"group": "user", "first": "2026-01-01", "last": "2026-01-31"}
    assert "deploy (service account)" in admin_client.get(reverse("admin:usage"), january).text
    assert admin_client.get(reverse("admin:usage"), {"user": account.usage_id}).status_code == 200
    ServiceAccount.objects.update(deleted_at=timezone.now())
    assert names_of("user", [account.usage_id]) == {account.usage_id: "deploy (service account)"}
    stranger = User.objects.create_user("stranger")
    assert name_for(stranger, "user", account.usage_id) == f"#{account.usage_id}"


def test_it_is_nobody_to_invite_and_shows_with_its_project(project: Any, admin_client: Client) -> None:
    account = ServiceAccount.objects.create(project=project, name="deploy")
    page = admin_client.get(reverse("admin:chat_project_change", args=[project.pk])).text
    assert reverse("admin:chat_serviceaccount_change", args=[account.pk]) in page
    assert not User.objects.filter(username="deploy").exists()
    made = admin_client.post(reverse("admin:chat_serviceaccount_add"), {"name": "ci", "project": project.pk})
    assert "lc_" in made.text
    (key,) = ApiKey.objects.filter(service_account__name="ci")
    assert "service account ci" in admin_client.get(reverse("admin:chat_apikey_changelist")).text
    assert str(key) in admin_client.get(reverse("admin:chat_serviceaccount_change", args=[key.service_account_id])).text
