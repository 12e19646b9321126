"""Keep, find, list, label, end and delete answers that clients may fetch again. Only its project sees an answer.

An unfinished one is ended once, by the process that sees its end first: the web process that sends it, one that is
asked for it, or the maintenance worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import orjson
from channels.db import database_sync_to_async
from django.conf import settings
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Count, F, QuerySet, Sum
from django.utils import timezone

from chat.access.configuration import TTLCache
from chat.api.stored.models import StoredAnswer as StoredAnswer
from chat.api.stored.models import StoredKind as StoredKind
from chat.api.stored.models import StoredState as StoredState

logger = logging.getLogger(__name__)

ROOM_TTL_S = 5.0
"""The time for which a project counts as having room. Answers of that time may exceed its quota."""


class AnswerUnknown(Exception):
    """The project has no answer with that id."""


async def answers_have_room(*, project_id: int) -> bool:
    """Return True if the project may keep another answer, by the number and the bytes of those that it has."""
    name = str(project_id)
    if _room.get(name):
        return True
    generation = _room.generation
    count, num_bytes = await database_sync_to_async(_kept_size)(project_id)
    if count >= settings.LIGHTCONE_MAX_PROJECT_ANSWERS or num_bytes >= settings.LIGHTCONE_MAX_PROJECT_ANSWER_BYTES:
        return False
    _room.put(name, True, generation=generation)
    return True


def _kept_size(project_id: int) -> tuple[int, int]:
    size = StoredAnswer.objects.filter(project_id=project_id).aggregate(
        count=Count("*"), num_bytes=Sum("num_bytes", default=0)
    )
    return size["count"], size["num_bytes"]


_room: TTLCache[bool] = TTLCache(max_entries=10_000, ttl_s=ROOM_TTL_S)


def answer_keep(
    *,
    run_id: str,
    public_id: str,
    project_id: int,
    kind: StoredKind,
    model: str,
    metadata: Mapping[str, str],
    request: Mapping[str, Any],
    created_at: datetime,
    answer: bytes = b"",
) -> None:
    """Keep an answer, unfinished if `answer` is empty. It replaces one that the project has under this id."""
    now = timezone.now()
    asked = orjson.dumps(dict(request))
    row = StoredAnswer(
        run_id=UUID(hex=run_id),
        public_id=public_id,
        project_id=project_id,
        kind=kind,
        state=StoredState.FINISHED if answer else StoredState.UNFINISHED,
        model=model,
        metadata=dict(metadata),
        request=asked,
        answer=answer,
        num_bytes=len(asked) + len(answer),
        created_at=created_at,
        ended_at=now if answer else None,
        expires_at=now + timedelta(days=settings.LIGHTCONE_STORE_DAYS),
    )
    with transaction.atomic():
        StoredAnswer.objects.filter(project_id=project_id, kind=kind, public_id=public_id).delete()
        row.save(force_insert=True)


async def answer_keep_safely(**answer: Any) -> bool:
    """Call `answer_keep` before an answer is sent. Log a database that refuses, and return False."""
    try:
        await database_sync_to_async(answer_keep)(**answer)
    except IntegrityError:
        logger.warning("answer %s not kept: another one of its id was kept at the same time", answer["public_id"])
        return False
    except DatabaseError as error:
        logger.error("answer %s not kept: %s", answer["public_id"], error)
        return False
    return True


def answer_end(*, run_id: str | UUID, state: StoredState, answer: bytes) -> bool:
    """Give an unfinished answer its end. Return False if it has one, or is gone."""
    unfinished = StoredAnswer.objects.filter(run_id=run_id, state=StoredState.UNFINISHED)
    return bool(
        unfinished.update(state=state, answer=answer, num_bytes=F("num_bytes") + len(answer), ended_at=timezone.now())
    )


def answer_find(*, project_id: int, kind: StoredKind, public_id: str) -> StoredAnswer:
    """Return an answer of a project. Raises AnswerUnknown."""
    row: StoredAnswer | None = (
        _of_project(project_id, kind).filter(public_id=public_id).first() if _is_text(public_id) else None
    )
    if row is None:
        raise AnswerUnknown
    return row


def answers_page(
    *,
    project_id: int,
    kind: StoredKind,
    after: str = "",
    limit: int = 20,
    is_ascending: bool = True,
    model: str = "",
    metadata: Mapping[str, str] | None = None,
) -> tuple[list[StoredAnswer], bool]:
    """Return finished answers behind the id `after`, in order of their beginning, and whether there are more.

    Raises AnswerUnknown for `after`.
    """
    rows = _of_project(project_id, kind).filter(state=StoredState.FINISHED)
    if model:
        rows = rows.filter(model=model) if _is_text(model) else rows.none()
    if after:
        place = rows.filter(public_id=after).values_list("run_id", flat=True).first() if _is_text(after) else None
        if place is None:
            raise AnswerUnknown
        rows = rows.filter(run_id__gt=place) if is_ascending else rows.filter(run_id__lt=place)
    rows = rows.order_by("run_id" if is_ascending else "-run_id")
    # NOTE: labels are compared here, as their names may be anything, and databases read some names as paths.
    labelled = rows.values_list("run_id", "metadata").iterator(chunk_size=500)
    wanted = (metadata or {}).items()
    run_ids = list(islice((run_id for run_id, labels in labelled if wanted <= labels.items()), limit + 1))
    # NOTE: requests are megabytes each, and no list shows them.
    found = StoredAnswer.objects.defer("request").in_bulk(run_ids[:limit])
    return [found[run_id] for run_id in run_ids[:limit] if run_id in found], len(run_ids) > limit


def answer_label(*, project_id: int, kind: StoredKind, public_id: str, metadata: Mapping[str, str]) -> StoredAnswer:
    """Replace the labels of an answer. Raises AnswerUnknown."""
    row = answer_find(project_id=project_id, kind=kind, public_id=public_id)
    row.metadata = dict(metadata)
    if not StoredAnswer.objects.filter(run_id=row.run_id).update(metadata=row.metadata):
        raise AnswerUnknown  # deleted meanwhile
    return row


def answer_delete(*, project_id: int, kind: StoredKind, public_id: str) -> StoredAnswer:
    """Delete an answer and return it. Raises AnswerUnknown."""
    row = answer_find(project_id=project_id, kind=kind, public_id=public_id)
    StoredAnswer.objects.filter(run_id=row.run_id).delete()
    return row


def answers_unfinished(*, limit: int = 1000) -> list[str]:
    """Return the run ids of answers without an end, oldest first."""
    run_ids = (
        StoredAnswer.objects.filter(state=StoredState.UNFINISHED).order_by("run_id").values_list("run_id", flat=True)
    )
    return [run_id.hex for run_id in run_ids[:limit]]


def answer_of_run(*, run_id: str) -> StoredAnswer | None:
    """Return the answer of a run, whatever project has it."""
    row: StoredAnswer | None = StoredAnswer.objects.filter(run_id=run_id).first()
    return row


def answer_drop(*, run_id: str | UUID) -> None:
    """Delete an answer without a result."""
    StoredAnswer.objects.filter(run_id=run_id, state=StoredState.UNFINISHED).delete()


def answers_prune(*, before: datetime, batch_size: int = 500) -> int:
    """Delete answers that expired earlier; return how many.

    Each batch is a transaction, so that writers wait for milliseconds.
    """
    num_deleted = 0
    expired = StoredAnswer.objects.filter(expires_at__lt=before).order_by("expires_at").values_list("run_id", flat=True)
    while run_ids := list(expired[:batch_size]):
        num_deleted += StoredAnswer.objects.filter(run_id__in=run_ids).delete()[0]
    return num_deleted


def _of_project(project_id: int, kind: StoredKind) -> QuerySet[StoredAnswer]:
    return StoredAnswer.objects.filter(project_id=project_id, kind=kind, expires_at__gt=timezone.now())


def _is_text(given: str) -> bool:
    """Return True if a database may be asked for it. PostgreSQL refuses NUL, which a URL may hold."""
    return "\0" not in given
