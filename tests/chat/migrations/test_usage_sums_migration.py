"""The migration to sums: what the log has is summed by person and route, what only the hours had is kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.chat.records import NOON

BEFORE, AFTER = [("chat", "0029_dated_prices")], [("chat", "0030_usage_sums")]
TOKENS = {"prompt_tokens": 10, "completion_tokens": 7, "cost_nanos": 5, "ttft_le_200": 1}


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_hours_become_sums_and_come_back(django_user_model: Any) -> None:
    executor = MigrationExecutor(connection)
    newest = executor.loader.graph.leaf_nodes()
    try:
        executor.migrate(BEFORE)
        apps: Any = executor.loader.project_state(BEFORE).apps
        hours = _fill(apps)
        executor = MigrationExecutor(connection)
        executor.migrate(AFTER)
        apps = executor.loader.project_state(AFTER).apps
        _check(apps)
        executor = MigrationExecutor(connection)
        executor.migrate(BEFORE)
        apps = executor.loader.project_state(BEFORE).apps
        assert list(_rows(apps)) == hours
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(newest)


def _rows(apps: Any) -> Any:
    names = ("model", "status_class", "num_requests", "num_left", "prompt_tokens", "cost_nanos", "ttft_le_200")
    return apps.get_model("chat", "UsageHour").objects.order_by("model", "status_class").values_list(*names)


def _fill(apps: Any) -> list[Any]:
    """Make the log of a key of ann's and of her chat, hours of them, and of as much that the log has lost."""
    from datetime import UTC, datetime
    from uuid import uuid4

    ann = apps.get_model("auth", "User").objects.create(username="ann")
    org = apps.get_model("chat", "Org").objects.create(name="Acme")
    project = apps.get_model("chat", "Project").objects.create(name="Search", org=org)
    apps.get_model("chat", "ApiKey").objects.create(public_id="annskey00001", name="k", project=project, owner=ann)
    log, hour = apps.get_model("chat", "RequestLog"), apps.get_model("chat", "UsageHour")
    at = datetime.fromtimestamp(NOON, UTC)
    where = {"org_id": org.pk, "project_id": project.pk}
    of_key = {**where, "key_public_id": "annskey00001"}
    common = {"arrived_at": at, "ttft_ms": 120.0, "duration_ms": 1000.0, "prompt_tokens": 10, "completion_tokens": 7}
    common |= {"account_id": ann.pk, "outcome": "finished", "route": "/v1/chat/completions", "cost_nanos": 5}
    log.objects.create(run_id=uuid4(), status=200, model="small", **common, **of_key)
    log.objects.create(run_id=uuid4(), status=499, model="small", **common, **of_key)
    log.objects.create(
        run_id=uuid4(), status=200, model="chat", dialect="playground", user_label="ann", **common, **where
    )
    for model, kind, fields in (
        ("small", 2, {"num_requests": 3, **{name: 3 * number for name, number in TOKENS.items()}}),
        ("small", 4, {"num_requests": 4, "num_left": 3, **{name: 4 * number for name, number in TOKENS.items()}}),
        ("gone", 5, {"num_requests": 2}),
    ):
        hour.objects.create(period_start=at, model=model, status_class=kind, **fields, **of_key)
    hour.objects.create(period_start=at, model="chat", status_class=2, num_requests=1, **TOKENS, **where)
    return list(_rows(apps))


def _check(apps: Any) -> None:
    ann = apps.get_model("auth", "User").objects.get().pk
    sums = apps.get_model("chat", "UsageSum").objects
    names = ("model", "status_class", "account_id", "route", "num_requests", "prompt_tokens")
    route = "/v1/chat/completions"
    for length_h in (1, 24):
        assert sorted(sums.filter(length_h=length_h).values_list(*names)) == [
            ("chat", "answered", ann, route, 1, 10),
            ("gone", "ours", 0, "", 2, 0),
            ("small", "answered", 0, "", 2, 20),
            ("small", "answered", ann, route, 1, 10),
            ("small", "left", 0, "", 2, 0),
            ("small", "left", ann, route, 1, 10),
            ("small", "theirs", 0, "", 1, 30),
        ]
    total = apps.get_model("chat", "UsageTotal").objects.get(dimension="all", length_h=24)
    assert (total.num_requests, total.num_left, total.num_theirs, total.num_ours) == (10, 3, 1, 2)
    assert (total.prompt_tokens, total.completion_tokens, total.cost_nanos, total.ttft_le_200) == (80, 56, 40, 8)
