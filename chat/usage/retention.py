"""Delete old requests and their texts: as long as each project says, a few rows at a time.

A batch is a transaction, and a pause follows it, so that no other write waits for more than one.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from chat.access.models import Project
from chat.audit.services import Subject, audit_record
from chat.relay.state.keys import run_id_floor
from chat.usage.models import RequestLog, RequestText

BATCH_ROWS = 100
PAUSE_S = 0.02
"""Other writers of SQLite look for their turn about so often."""
FIRST = UUID(int=0)


def request_logs_prune(*, before: datetime, batch_rows: int = BATCH_ROWS, pause_s: float = PAUSE_S) -> int:
    """Delete all requests from before an instant, with their texts, and return their number."""
    num_deleted = _delete(_older(RequestLog.objects.all(), before), batch_rows, pause_s, with_texts=True)
    if num_deleted:
        audit_record(action="requests.prune", on=Subject(), after={"from_before": before, "number": num_deleted})
    return num_deleted


def request_logs_expire(*, now: datetime, batch_rows: int = BATCH_ROWS, pause_s: float = PAUSE_S) -> int:
    """Delete requests that are older than their project keeps them, else than LIGHTCONE_LOG_DAYS.

    Return their number. Their texts go with them. Sums of hours and days stay.
    """
    own = dict(Project.objects.exclude(log_days=None).values_list("pk", "log_days"))
    ends = [(RequestLog.objects.filter(project_id=pk), days) for pk, days in own.items()]
    ends.append((RequestLog.objects.exclude(project_id__in=list(own)), settings.LIGHTCONE_LOG_DAYS))
    num_deleted = 0
    for rows, days in ends:
        num_deleted += _delete(_older(rows, now - timedelta(days=days)), batch_rows, pause_s, with_texts=True)
    if num_deleted:
        audit_record(action="requests.prune", on=Subject(), after={"kept_until": now, "number": num_deleted})
    return num_deleted


def request_texts_prune(*, now: datetime, batch_rows: int = BATCH_ROWS, pause_s: float = PAUSE_S) -> int:
    """Delete texts that are older than their project keeps them, or that it keeps no longer. Return their number."""
    projects = Project.objects.in_bulk()
    num_deleted = 0
    for project_id in list(RequestText.objects.order_by().values_list("project_id", flat=True).distinct()):
        rows = RequestText.objects.filter(project_id=project_id)
        for part in _texts_to_delete(rows, projects.get(project_id), now):
            num_deleted += _delete(part, batch_rows, pause_s)
    return num_deleted


def _texts_to_delete(rows: QuerySet[Any], project: Project | None, now: datetime) -> list[QuerySet[Any]]:
    if project is None or project.stores_nothing or not (project.keeps_api_texts or project.keeps_chat_texts):
        return [rows]
    parts = [_older(rows, now - timedelta(days=project.text_days))]
    chats = RequestLog.objects.filter(project_id=project.pk, key_public_id="").values("run_id")
    if not project.keeps_chat_texts:
        parts.append(rows.filter(run_id__in=chats))
    if not project.keeps_api_texts:
        parts.append(rows.exclude(run_id__in=chats))
    return parts


def _older(rows: QuerySet[Any], before: datetime) -> QuerySet[Any]:
    return rows.filter(pk__lt=run_id_floor(before))


def _delete(rows: QuerySet[Any], batch_rows: int, pause_s: float, *, with_texts: bool = False) -> int:
    """Delete rows, the oldest first. The next batch begins behind the last one, not among rows that are kept."""
    num_deleted, last = 0, FIRST
    while ids := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:batch_rows]):
        last = ids[-1]
        if with_texts:
            RequestText.objects.filter(pk__in=ids).delete()
        num_deleted += rows.model._base_manager.filter(pk__in=ids).delete()[0]
        time.sleep(pause_s)
    return num_deleted
