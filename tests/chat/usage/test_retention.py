"""How long requests and their texts stay: as each project says, in small transactions, and sums for ever."""

from __future__ import annotations

import datetime as dt
import zlib
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chat.models import AuditEntry, Project, RequestLog, RequestText, UsageSum
from chat.usage.retention import request_logs_expire, request_texts_prune
from chat.usage.services import usage_records_write
from tests.chat.records import NOON, record

NOW = dt.datetime.fromtimestamp(NOON, dt.UTC)
TEXT = zlib.compress(b'{"request": {}, "answers": []}')


@pytest.fixture
def projects(project: Project, settings: Any) -> dict[str, Project]:
    settings.LIGHTCONE_LOG_DAYS = 30
    days = {"short": 5, "usual": None, "long": 90}
    return {
        name: Project.objects.create(org=project.org, name=name, log_days=kept, text_days=2, keeps_api_texts=True)
        for name, kept in days.items()
    }


def ages(model: Any = RequestLog) -> set[tuple[int, int]]:
    """Return project and age in days of the rows."""
    now_ms = int(NOON * 1000)
    rows = model.objects.values_list("project_id", "run_id")
    return {(project_id, round((now_ms - (run_id.int >> 80)) / 86_400_000)) for project_id, run_id in rows}


def fill(projects: dict[str, Project], *days: int) -> None:
    pks = [0, *(project.pk for project in projects.values())]
    usage_records_write([record(at_s=NOON - day * 86_400, project_id=pk, texts=TEXT) for day in days for pk in pks])


def test_each_project_keeps_requests_as_long_as_it_says(projects: dict[str, Project]) -> None:
    fill(projects, 1, 4, 6, 29, 31, 89, 91)
    sums = UsageSum.objects.count()
    assert request_logs_expire(now=NOW, batch_rows=2, pause_s=0) == 5 + 3 + 3 + 1
    kept = {"short": (1, 4), "usual": (1, 4, 6, 29), "long": (1, 4, 6, 29, 31, 89)}
    expected = {(projects[name].pk, day) for name, days in kept.items() for day in days}
    assert ages() == expected | {(0, day) for day in (1, 4, 6, 29)}
    assert ages(RequestText) <= ages()
    assert UsageSum.objects.count() == sums
    assert AuditEntry.objects.get(action="requests.prune").after["number"] == 12
    assert request_logs_expire(now=NOW, pause_s=0) == 0


def test_texts_go_before_their_requests_and_with_their_project(projects: dict[str, Project]) -> None:
    fill(projects, 1, 3)
    projects["long"].delete()
    assert request_texts_prune(now=NOW, batch_rows=1, pause_s=0) == 2 + 2
    assert ages(RequestText) == {(projects["short"].pk, 1), (projects["usual"].pk, 1)}
    assert RequestLog.objects.count() == 8


def test_rows_that_stay_are_not_read_again_by_each_batch(projects: dict[str, Project]) -> None:
    fill({"long": projects["long"]}, *range(40, 80))
    with CaptureQueriesContext(connection) as queries:
        request_logs_expire(now=NOW, batch_rows=10, pause_s=0)
    looks = [one["sql"] for one in queries if 'run_id" <' in one["sql"] and "NOT" in one["sql"]]
    assert len(looks) <= 6
    assert all('"run_id" >' in sql for sql in looks)


def test_texts_that_a_project_keeps_no_longer_go(projects: dict[str, Project]) -> None:
    usage_records_write(
        [
            record(at_s=NOON, project_id=project.pk, key_public_id=key, texts=TEXT)
            for project in projects.values()
            for key in ("", "accept0001")
        ]
    )
    Project.objects.filter(name="short").update(stores_nothing=True)
    Project.objects.filter(name="usual").update(keeps_chat_texts=True, keeps_api_texts=False)
    assert request_texts_prune(now=NOW, pause_s=0) == 2 + 1 + 1
    left = set(RequestText.objects.values_list("run_id", flat=True))
    keys = dict(RequestLog.objects.filter(run_id__in=left).values_list("project_id", "key_public_id"))
    assert keys == {projects["usual"].pk: "", projects["long"].pk: "accept0001"}
