"""Create, follow, cancel and end jobs on stored models. The job runner (runner.py) does the work."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.catalog.stored_models import stored_model_offer
from chat.model_jobs.models import OPEN_STATES, JobKind, JobState, ModelJob
from chat.model_store.errors import StoreError
from chat.model_store.folder import ModelStore
from chat.model_store.manifest import name_check

MAX_OPEN = 100
KEPT_JOBS = 1000


def store() -> ModelStore:
    return ModelStore(settings.LIGHTCONE_MODEL_STORE)


def job_check(*, kind: str, asked: str, name: str = "") -> None:
    """Raise StoreError for a job that cannot be done, or that is being done already."""
    if name:
        name_check(name)
    if kind == JobKind.CHECK:
        store().get(asked)
    if kind == JobKind.COPY:
        _copy_check(store(), asked, name)
    if kind == JobKind.PULL and "/" not in asked.partition(":")[0].strip("/"):
        message = _("%(asked)r is no repository of the hub: write OWNER/NAME or OWNER/NAME:FORMAT.")
        raise StoreError(message % {"asked": asked})
    if kind == JobKind.IMPORT and not asked.startswith("/"):
        raise StoreError(_("%(asked)r must be a whole path, from / on.") % {"asked": asked})
    open_jobs = ModelJob.objects.filter(state__in=OPEN_STATES)
    same = open_jobs.filter(kind=kind, asked=asked).first()
    if same is not None:
        message = _("The job %(job)s does that already: wait for it, or cancel it.")
        raise StoreError(message % {"job": same.public_id})
    if open_jobs.count() >= MAX_OPEN:
        message = _("%(number)s jobs wait or run: wait for some of them, or cancel some.")
        raise StoreError(message % {"number": MAX_OPEN})


def _copy_check(models: ModelStore, asked: str, name: str) -> None:
    models.get(asked)
    if not name:
        raise StoreError(_("A copy needs a name of its own."))
    if models.has(name):
        raise StoreError(_("There is a model %(name)r already: choose another name.") % {"name": name})


@transaction.atomic
def job_create(*, kind: str, asked: str, revision: str = "", name: str = "", asked_by: str = "") -> ModelJob:
    """Enter a job, which begins within a second. Raises StoreError for what can be refused at once."""
    job_check(kind=kind, asked=asked, name=name)
    job: ModelJob = ModelJob.objects.create(
        public_id=f"job_{secrets.token_hex(12)}",
        kind=kind,
        asked=asked,
        revision=revision,
        name=name,
        asked_by=asked_by,
    )
    audit_record(action="job.create", on=_subject(job), after=row_values(job, ("kind", "asked", "revision", "name")))
    return job


def jobs_list(*, limit: int) -> list[ModelJob]:
    """Return the newest jobs first."""
    return list(ModelJob.objects.all()[:limit])


def job_get(*, public_id: str) -> ModelJob | None:
    return ModelJob.objects.filter(public_id=public_id).first()


def job_cancel(*, job: ModelJob) -> ModelJob:
    """Have an open job ended; one that waits ends at once. What was fetched is kept for another try."""
    with transaction.atomic():
        is_over = job_update(job, [JobState.WAITING], state=JobState.CANCELLED, ended_at=timezone.now())
        if is_over or job_update(job, [JobState.RUNNING], state=JobState.CANCELLING):
            audit_record(action="job.cancel", on=_subject(job))
    job.refresh_from_db()
    return job


def _subject(job: ModelJob) -> Subject:
    return Subject(job.public_id, str(job))


# For the runner.


def jobs_open() -> list[ModelJob]:
    """Return all open jobs, the oldest first."""
    return list(ModelJob.objects.filter(state__in=OPEN_STATES).order_by("id"))


def job_update(job: ModelJob, states: Iterable[Any], **fields: object) -> bool:
    """Change a job that is in one of these states; return whether it was."""
    return bool(ModelJob.objects.filter(pk=job.pk, state__in=list(states)).update(**fields))


def job_end(*, job: ModelJob, state: Any, message: str, names: list[str]) -> None:
    """Note how a job ended, and offer the models that it has stored. Jobs beyond KEPT_JOBS are forgotten."""
    for name in names:
        try:
            stored_model_offer(store=store(), manifest=store().get(name))
        except (StoreError, ValidationError) as error:
            text = " ".join(error.messages) if isinstance(error, ValidationError) else str(error)
            message = f"{message} {name} is not offered: {text}"
    ended: dict[str, datetime | str] = {"ended_at": timezone.now(), "message": message[:2000], "phase": ""}
    if names:
        ended["name"] = names[0][:200]
    job_update(job, OPEN_STATES, state=state, **ended)
    last = ModelJob.objects.exclude(state__in=OPEN_STATES).order_by("-id").values_list("pk", flat=True)[KEPT_JOBS:]
    if pks := list(last):
        ModelJob.objects.filter(pk__in=pks).delete()
