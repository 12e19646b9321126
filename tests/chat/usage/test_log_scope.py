"""Who sees which requests, and that lists of them walk one index in its order."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from chat.access.accounts import playground_caller
from chat.access.keys import key_create
from chat.access.roles import Role
from chat.models import Org, Project, RequestLog
from chat.usage.log_scope import logs_reached, scope_columns
from chat.usage.services import usage_records_write
from tests.chat.records import key_authenticate, record
from tests.people import member


def seen(user: User) -> set[str]:
    rows = logs_reached(RequestLog.objects.all(), User.objects.get(pk=user.pk))
    return set(rows.values_list("model", flat=True))


def requests_made(project: Project, *, of: User) -> None:
    away = Org.objects.create(name="Away")
    here: dict[str, Any] = {"org_id": project.org_id, "project_id": project.pk}
    usage_records_write(
        [
            record(model="own chat", key_public_id="", account_id=of.pk, **here),
            record(model="own key", account_id=of.pk, **here),
            record(model="shared key", **here),
            record(model="elsewhere", org_id=away.pk, project_id=99, account_id=of.pk),
        ]
    )


@pytest.mark.parametrize("role", [Role.OWNER, Role.ADMIN, Role.VIEWER, Role.AUDITOR])
def test_roles_that_see_an_organisation_see_all_of_its_requests(project: Project, role: Role) -> None:
    ann = member("ann", role, org=project.org)
    requests_made(project, of=ann)
    assert seen(ann) == {"own chat", "own key", "shared key"}
    assert scope_columns(ann) == {"org_id": project.org_id}


def test_a_member_sees_what_the_own_chats_and_keys_asked(project: Project) -> None:
    ann, bob = member("ann", org=project.org), member("bob", org=project.org)
    requests_made(project, of=ann)
    assert seen(ann) == {"own chat", "own key"}
    assert seen(bob) == set()
    assert scope_columns(ann) == {"account_id": ann.pk}


def test_a_person_of_several_organisations_sees_each_by_its_role(project: Project) -> None:
    ann = member("ann", Role.VIEWER, org=project.org)
    requests_made(project, of=ann)
    member_of_away = ann.memberships.create(org=Org.objects.get(name="Away"), role=Role.MEMBER)
    assert seen(ann) == {"own chat", "own key", "shared key", "elsewhere"}
    assert scope_columns(User.objects.get(pk=ann.pk)) == {}
    member_of_away.delete()


def test_billing_sees_no_request_and_a_superuser_every_one(project: Project, admin_user: User) -> None:
    ann = member("ann", Role.BILLING, org=project.org)
    requests_made(project, of=ann)
    assert seen(ann) == set()
    assert len(seen(admin_user)) == 4
    assert scope_columns(admin_user) == {}


def test_callers_name_the_person_who_chats_or_owns_the_key(project: Project) -> None:
    ann = member("ann", org=project.org)
    hers, shared = (key_create(project=project, name=f"of {owner}", owner=owner)[1] for owner in (ann, None))
    callers = (playground_caller(user=ann), key_authenticate(raw=hers), key_authenticate(raw=shared))
    assert [caller.account_id for caller in callers] == [ann.pk, ann.pk, None]


def test_the_scope_uses_no_index_and_its_column_does(project: Project) -> None:
    ann = member("ann", Role.VIEWER, org=project.org)
    rows = logs_reached(RequestLog.objects.all(), ann).order_by("-pk")
    plans = [str(found[:51].explain()) for found in (rows, rows.filter(**scope_columns(ann)), rows.filter(status=503))]
    if connection.vendor == "sqlite":
        indexes = ("sqlite_autoindex_chat_requestlog_1", "log_org", "log_status")
        for plan, index in zip(plans, indexes, strict=True):
            assert index in plan, plan
            assert "TEMP B-TREE" not in plan
