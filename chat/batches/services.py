"""Batches: the requests of clients, and the steps of the runner (runner.py, work.py).

A step is one transaction that names the state it starts from, so a late step changes nothing. The runner of a batch
holds a claim and renews it. If the runner dies, another takes the batch over and continues after the stored results.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from chat.access.models import Project
from chat.api.registry import batch_endpoints
from chat.audit.services import Subject, audit_record
from chat.batches.files import FileAbout, FileWriter, file_drop, file_get, named_row, rows_page
from chat.batches.models import OPEN_STATUSES, Batch, BatchResult, BatchStatus, Purpose
from chat.errors import ApiError
from chat.usage.services import storable_text

ENDPOINTS = tuple(sorted(batch_endpoints()))
WINDOWS = {"24h": timedelta(hours=24)}
CLAIM = timedelta(seconds=30)
PAGE_RESULTS = 50
FORGOTTEN_AT_ONCE = 500
MAX_MODEL_CHARS = 200
MAX_ERRORS = 50

ENDINGS = {
    BatchStatus.COMPLETED: "completed_at",
    BatchStatus.FAILED: "failed_at",
    BatchStatus.EXPIRED: "expired_at",
    BatchStatus.CANCELLED: "cancelled_at",
}
STOPPABLE_STATUSES = (BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS)
ENDING_STATUSES = (BatchStatus.FINALIZING, BatchStatus.CANCELLING)


class BatchOver(ApiError):
    """Raised if the batch has ended or is about to."""

    def __init__(self, status: str) -> None:
        super().__init__(
            "invalid_value", f"The batch cannot be cancelled any more: its status is {status}.", "batch_id"
        )


class ClaimLost(Exception):
    """Raised if another runner has the batch, or if it has left the state that a step starts from."""


@dataclass(frozen=True, slots=True)
class BatchOrder:
    project_id: int
    key_public_id: str
    endpoint: str
    input_file_id: str
    completion_window: str = "24h"
    metadata: Mapping[str, str] | None = None
    output_expires_s: int | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that the answer to one line used."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0


# What clients ask for.


def batch_create(*, order: BatchOrder) -> Batch:
    """Create a batch. Its lines are validated later. Raises FileMissing, and ApiError for the purpose or the quota."""
    now = timezone.now()
    limit = settings.LIGHTCONE_MAX_OPEN_BATCHES
    with transaction.atomic():
        Project.objects.select_for_update().get(pk=order.project_id)
        file = file_get(project_id=order.project_id, public_id=order.input_file_id, param="input_file_id")
        if file.purpose != Purpose.BATCH:
            message = f"input_file_id must be a file of purpose batch; {file.public_id} has purpose {file.purpose}"
            raise ApiError("invalid_value", message, "input_file_id")
        if Batch.objects.filter(project_id=order.project_id, status__in=OPEN_STATUSES).count() >= limit:
            message = (
                f"This project has {limit} batches that are not finished, as many as it may; "
                "wait for one to end, or cancel one."
            )
            raise ApiError("insufficient_quota", message)
        batch: Batch = Batch.objects.create(
            public_id=f"batch_{secrets.token_hex(16)}",
            project_id=order.project_id,
            key_public_id=order.key_public_id,
            endpoint=order.endpoint,
            completion_window=order.completion_window,
            input_file_id=file.public_id,
            output_expires_s=order.output_expires_s,
            metadata=None if order.metadata is None else dict(order.metadata),
            created_at=now,
            expires_at=now + WINDOWS[order.completion_window],
        )
    return batch


def batch_get(*, project_id: int, public_id: str) -> Batch:
    """Return a batch of the project. Raises ApiError if there is none."""
    batch = named_row(Batch.objects.filter(project_id=project_id), public_id)
    if batch is None:
        raise ApiError("not_found", f"No batch found with id '{public_id[:64]}'.", "batch_id")
    return batch


def batches_page(*, project_id: int, limit: int, after: str = "") -> tuple[list[Batch], bool]:
    """Return a page of the project's batches, newest first, as `rows_page` does."""
    return rows_page(Batch.objects.filter(project_id=project_id), limit=limit, after=after)


def batch_cancel(*, batch: Batch) -> Batch:
    """Ask the runner to end the batch. Running lines stop within two seconds. It is idempotent. Raises BatchOver."""
    with transaction.atomic():
        before = {"status": Batch.objects.values_list("status", flat=True).get(pk=batch.pk)}
        is_cancelled = Batch.objects.filter(pk=batch.pk, status__in=STOPPABLE_STATUSES).update(
            status=BatchStatus.CANCELLING, cancelling_at=timezone.now()
        )
        if is_cancelled:
            on = Subject(batch.public_id, batch.public_id, batch.project.org_id, batch.project_id)
            audit_record(action="batch.cancel", on=on, before=before, after={"status": BatchStatus.CANCELLING})
    batch.refresh_from_db()
    if batch.status not in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
        raise BatchOver(batch.status)
    return batch


# What the runner does.


def batches_open() -> list[int]:
    """Return the primary keys of batches that have not ended, the oldest first."""
    return list(Batch.objects.filter(status__in=OPEN_STATUSES).order_by("id").values_list("pk", flat=True))


def batch_claim(*, pk: int, owner: str) -> Batch | None:
    """Claim a free batch or renew a claim. Returns None while another runner holds it."""
    now = timezone.now()
    free = Q(claimed_by=owner) | Q(claimed_until=None) | Q(claimed_until__lt=now)
    mine = Batch.objects.filter(free, pk=pk, status__in=OPEN_STATUSES)
    if not mine.update(claimed_by=owner, claimed_until=now + CLAIM):
        return None
    batch: Batch | None = Batch.objects.filter(pk=pk).first()
    return batch


def batch_status(*, pk: int, owner: str) -> str:
    """Return the status of a claimed batch. Raises ClaimLost if another runner has it or it is gone."""
    status: str | None = Batch.objects.filter(pk=pk, claimed_by=owner).values_list("status", flat=True).first()
    if status is None:
        raise ClaimLost
    return status


def batch_release(*, pk: int, owner: str) -> None:
    Batch.objects.filter(pk=pk, claimed_by=owner).update(claimed_until=None)


def batch_begin(*, pk: int, owner: str, num_lines: int, model: str) -> None:
    """Start to answer the lines of a valid input. Raises ClaimLost."""
    asked = {"num_lines": num_lines, "model": storable_text(model)[:MAX_MODEL_CHARS]}
    fields = {"status": BatchStatus.IN_PROGRESS, "in_progress_at": timezone.now(), **asked}
    _step(pk, owner, (BatchStatus.VALIDATING,), fields)


def batch_refuse(*, pk: int, owner: str, errors: Sequence[Mapping[str, Any]]) -> None:
    """Fail a batch whose input is invalid. Raises ClaimLost."""
    fields = {"status": BatchStatus.FAILED, "errors": list(errors)[:MAX_ERRORS], "failed_at": timezone.now()}
    _step(pk, owner, (BatchStatus.VALIDATING,), fields)


def lines_answered(*, pk: int) -> set[int]:
    return set(BatchResult.objects.filter(batch_id=pk).values_list("line", flat=True))


def result_add(*, pk: int, owner: str, line: int, text: str, is_error: bool, tokens: Tokens) -> None:
    """Store and count the result of a line, unless it has one already. Raises ClaimLost."""
    counted = "num_failed" if is_error else "num_completed"
    with transaction.atomic():
        _hold(pk, owner)
        _, is_new = BatchResult.objects.get_or_create(
            batch_id=pk, line=line, defaults={"text": text, "is_error": is_error}
        )
        if is_new:
            amounts = {f"{name}_tokens": amount for name, amount in asdict(tokens).items()} | {counted: 1}
            Batch.objects.filter(pk=pk).update(**{name: F(name) + amount for name, amount in amounts.items()})


def errors_add(*, pk: int, owner: str, texts: Mapping[int, str]) -> None:
    """Store errors, by line number, for lines that will not be answered. Existing results stay. Raises ClaimLost."""
    with transaction.atomic():
        _hold(pk, owner)
        known = set(BatchResult.objects.filter(batch_id=pk, line__in=texts).values_list("line", flat=True))
        new = [
            BatchResult(batch_id=pk, line=line, text=text, is_error=True)
            for line, text in texts.items()
            if line not in known
        ]
        BatchResult.objects.bulk_create(new)
        Batch.objects.filter(pk=pk).update(num_failed=F("num_failed") + len(new))


def batch_finalize(*, pk: int, owner: str, ends_as: str, errors: Sequence[Mapping[str, Any]] = ()) -> None:
    """Stop answering lines and start to write the results into files. Raises ClaimLost."""
    fields: dict[str, Any] = {"ends_as": ends_as, "errors": list(errors), "finalizing_at": timezone.now()}
    if ends_as != BatchStatus.CANCELLED:
        fields["status"] = BatchStatus.FINALIZING
    _step(pk, owner, (BatchStatus.IN_PROGRESS, BatchStatus.CANCELLING), fields)


class BatchOutput:
    """Writes the results of one kind into a file, in line order."""

    def __init__(self, batch: Batch, writer: FileWriter, *, is_error: bool) -> None:
        self._writer = writer
        self._results = BatchResult.objects.filter(batch_id=batch.pk, is_error=is_error).order_by("line")
        self._last = -1

    def write_page(self) -> bool:
        """Write the next page. Returns False when the file is complete."""
        page = list(self._results.filter(line__gt=self._last).values_list("line", "text")[:PAGE_RESULTS])
        if not page:
            self._writer.finish()
            return False
        self._writer.write(b"".join(text.encode() + b"\n" for _, text in page))
        self._last = page[-1][0]
        return True


def batch_output_begin(*, pk: int, owner: str, is_error: bool) -> BatchOutput | None:
    """Return a writer, or None without results of that kind. Drop what a dead runner had written. Raises ClaimLost."""
    column = "error_file_id" if is_error else "output_file_id"
    batch: Batch | None = Batch.objects.filter(pk=pk).first()
    if batch is None:
        raise ClaimLost
    # NOTE: before the drop, as without the claim it would be the file of who has the batch now.
    _step(pk, owner, ENDING_STATUSES, {column: ""})
    file_drop(public_id=getattr(batch, column))
    if not BatchResult.objects.filter(batch_id=pk, is_error=is_error).exists():
        return None
    name = f"{batch.public_id}_{'error' if is_error else 'output'}.jsonl"
    writer = FileWriter(
        FileAbout(batch.project_id, batch.key_public_id, name, str(Purpose.BATCH_OUTPUT), batch.output_expires_s)
    )
    try:
        _step(pk, owner, ENDING_STATUSES, {column: writer.file.public_id})
    except ClaimLost:
        writer.drop()
        raise
    return BatchOutput(batch, writer, is_error=is_error)


def batch_end(*, pk: int, owner: str) -> None:
    """End a batch whose files are complete. Raises ClaimLost."""
    ends_as = BatchStatus(Batch.objects.values_list("ends_as", flat=True).get(pk=pk))
    _step(pk, owner, ENDING_STATUSES, {"status": ends_as, ENDINGS[ends_as]: timezone.now()})


def results_forget(*, pk: int) -> bool:
    """Delete some results of an ended batch. Returns False when none are left."""
    pks = list(BatchResult.objects.filter(batch_id=pk).values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    return bool(pks and BatchResult.objects.filter(pk__in=pks).delete()[0])


def batches_prune(*, before: datetime) -> int:
    """Delete ended batches that were created before an instant. Their files expire on their own."""
    ended = Batch.objects.filter(created_at__lt=before).exclude(status__in=OPEN_STATUSES)
    num_deleted = 0
    while pks := list(ended.values_list("pk", flat=True)[:PAGE_RESULTS]):
        for pk in pks:
            while results_forget(pk=pk):
                """A transaction each, so that writers wait for milliseconds only."""
        num_deleted += Batch.objects.filter(pk__in=pks).delete()[0]
    return num_deleted


def _hold(pk: int, owner: str) -> None:
    """Lock the batch for this transaction, so that no runner takes it over. Raises ClaimLost."""
    mine = Batch.objects.select_for_update().filter(pk=pk, claimed_by=owner, status__in=OPEN_STATUSES)
    if not mine.values_list("pk", flat=True).first():
        raise ClaimLost


def _step(pk: int, owner: str, before: Sequence[Any], fields: Mapping[str, Any]) -> None:
    if not Batch.objects.filter(pk=pk, claimed_by=owner, status__in=before).update(**fields):
        raise ClaimLost
