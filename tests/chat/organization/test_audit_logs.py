"""The audit log by OpenAI's published client: its filters, its pages, and whose entries it has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from channels.db import database_sync_to_async
from django.utils import timezone

from chat.access.keys import key_create
from chat.access.service_accounts import service_account_create, service_account_key_create
from chat.access.subjects import project_subject, user_subject
from chat.audit.actions import ActorKind
from chat.audit.origin import Origin
from chat.audit.services import Subject, audit_record
from chat.models import AuditEntry, Org
from tests.chat.organization.conftest import World


@database_sync_to_async
def done(world: World) -> dict[str, str]:
    """Do things as a person, a key of a service account and a command; return ids."""
    ann = Origin(ActorKind.USER, str(world.ann.pk), "ann", "192.0.2.1", "console", "r1")
    audit_record(action="project.change", on=project_subject(world.project), before={"a": 1}, after={"a": 2}, by=ann)
    audit_record(action="project.change", on=project_subject(world.other), before={"a": 1}, after={"a": 2}, by=ann)
    account = service_account_create(project=world.project, name="deploy", actor=world.owner)
    key, _ = service_account_key_create(account=account, name="deploy", actor=world.owner)
    program = Origin(ActorKind.KEY, key.public_id, "deploy", "192.0.2.2", "API: DELETE /v1/files/x", "r2")
    on = Subject("file-x", "in.jsonl", world.org.pk, world.project.pk)
    audit_record(action="file.delete", on=on, by=program)
    audit_record(action="user.sign_in", on=user_subject(world.ann), by=ann)
    return {"key": f"key_{key.public_id}", "account": f"svc_acct_{account.pk}"}


async def types(logs: Any, **asked: Any) -> list[str]:
    return [one.type async for one in logs.list(**asked)]


async def test_entries_have_openais_names_and_who_acted(world: World, openai: Any) -> None:
    ids = await done(world)
    page = await openai.audit_logs.list(limit=3)
    signed_in, removed, made = page.data
    assert [one.type for one in page.data] == ["login.succeeded", "file.delete", "api_key.created"]
    assert page.has_more is True
    assert signed_in.actor.session.user.email == "ann@example.com"
    assert signed_in.actor.session.ip_address == "192.0.2.1"
    assert removed.actor.api_key.id == ids["key"]
    assert removed.actor.api_key.service_account.id == ids["account"]
    assert removed.project.name == "Search"
    assert made.api_key_created.id == ids["key"]
    assert signed_in.id == f"audit_log-{(await AuditEntry.objects.afirst()).pk}"


async def test_filters_choose(world: World, openai: Any) -> None:
    ids = await done(world)
    logs = openai.audit_logs
    ann = f"user-{world.ann.pk}"
    assert await types(logs, actor_ids=[ann]) == ["login.succeeded", "project.updated"]
    assert await types(logs, actor_emails=["ANN@example.com"]) == ["login.succeeded", "project.updated"]
    assert await types(logs, actor_ids=[ids["key"]]) == ["file.delete"]
    assert await types(logs, actor_ids=[ids["account"]]) == ["file.delete"]
    assert await types(logs, event_types=["project.updated", "file.delete"]) == ["file.delete", "project.updated"]
    assert await types(logs, event_types=["certificate.created"]) == []
    assert await types(logs, resource_ids=[ids["key"]]) == ["api_key.created"]
    assert await types(logs, resource_ids=[ids["account"]]) == ["service_account.created"]
    assert "file.delete" in await types(logs, project_ids=[f"proj_{world.project.pk}"])
    assert "login.succeeded" not in await types(logs, project_ids=[f"proj_{world.project.pk}"])
    assert await types(logs, project_ids=[f"proj_{world.other.pk}"]) == [], "of another organisation"


async def test_times_bound_by_whole_seconds(world: World, openai: Any) -> None:
    await done(world)
    at = int((await AuditEntry.objects.afirst()).at.timestamp())
    logs = openai.audit_logs
    everything = await types(logs)
    assert await types(logs, effective_at={"gte": at - 60, "lte": at}) == everything
    assert await types(logs, effective_at={"gt": at}) == []
    assert await types(logs, effective_at={"lt": at - 3600}) == []
    assert await types(logs, effective_at={"gte": at + 1}) == []


async def test_pages_lead_on_and_back(world: World, openai: Any) -> None:
    await done(world)
    every = [one.id async for one in openai.audit_logs.list(limit=2)]
    assert every == [one.id for one in (await openai.audit_logs.list(limit=100)).data]
    assert every == sorted(every, key=lambda id_: -int(id_.rpartition("-")[2]))
    page = await openai.audit_logs.list(limit=2, before=every[3])
    assert [one.id for one in page.data] == every[1:3]


async def test_an_organisation_that_operates_nothing_sees_no_sign_ins(world: World, openai: Any) -> None:
    await done(world)
    await Org.objects.filter(pk=world.org.pk).aupdate(is_operator=False)
    assert "login.succeeded" not in await types(openai.audit_logs)
    assert "project.updated" in await types(openai.audit_logs)


async def test_a_page_takes_constantly_many_queries(world: World) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from chat.organization.audit_logs import entries_described

    def count(number: int) -> int:
        for index in range(number):
            key, _ = key_create(project=world.project, name="x", owner=world.ann)
            by = Origin(ActorKind.KEY, key.public_id, f"{index}")
            audit_record(action="file.delete", on=Subject("f", "f", world.org.pk, world.project.pk), by=by)
        entries = list(AuditEntry.objects.all())
        with CaptureQueriesContext(connection) as queries:
            entries_described(entries)
        return len(queries)

    assert await database_sync_to_async(count)(1) == await database_sync_to_async(count)(5)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("after=7", "after"),
        ("before=proj_1", "before"),
        ("tenant_only=true", "tenant_only"),
        ("project_ids[]=Search", "project_ids"),
        ("actor_ids[]=ann", "actor_ids"),
        ("event_types[]=%3Cscript%3E", "event_types"),
        ("resource_ids[]=nothing", "resource_ids"),
        ("effective_at[gte]=today", "effective_at[gte]"),
        ("effective_at[since]=1", "effective_at[since]"),
        ("effective_at=1", "effective_at"),
        ("&".join(["actor_ids[]=user-1"] * 51), "actor_ids"),
    ],
)
async def test_bad_filters_are_refused_by_name(api: httpx.AsyncClient, query: str, param: str) -> None:
    answer = await api.get(f"/v1/organization/audit_logs?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_entries_of_the_future_of_a_clock_are_not_lost(world: World, openai: Any) -> None:
    now = timezone.now()
    await done(world)
    assert len(await types(openai.audit_logs, effective_at={"gte": int((now - timedelta(days=1)).timestamp())})) > 3
