"""Files of projects. Content is written in chunks, each in its own transaction, as other writers wait for it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from channels.db import database_sync_to_async
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Model, Q, QuerySet, Sum
from django.utils import timezone

from chat.access.models import Project
from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.batches.models import CHUNK_BYTES, OPEN_STATUSES, Batch, FileChunk, ProjectFile, Purpose
from chat.errors import ApiError
from chat.usage.services import storable_text

FORSAKEN_AFTER = timedelta(days=1)
"""A file that is incomplete after this time never completes, as its writer is gone."""
MAX_FILENAME_CHARS = 255
EXPIRING = (Purpose.BATCH, Purpose.BATCH_OUTPUT)
"""Purposes whose files expire by default."""


Row = TypeVar("Row", bound=Model)


class FileMissing(ApiError):
    """Raised if the project has no such file."""

    def __init__(self, public_id: str, param: str = "file_id") -> None:
        super().__init__("not_found", f"No such File object: {public_id[:64]}", param)


class FileInUse(ApiError):
    """Raised if an open batch reads the file."""

    def __init__(self, batch_id: str) -> None:
        message = f"The file is the input of {batch_id}, which is not finished; cancel that batch first."
        super().__init__("invalid_value", message, "file_id")
        self.batch_id = batch_id


class QuotaExceeded(ApiError):
    """Raised beyond LIGHTCONE_MAX_PROJECT_FILE_BYTES or LIGHTCONE_MAX_PROJECT_FILES."""

    def __init__(self) -> None:
        message = (
            f"A project may have {settings.LIGHTCONE_MAX_PROJECT_FILES} files, "
            f"of {settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES} bytes together, and this one does not fit; "
            "delete files that are not needed."
        )
        super().__init__("insufficient_quota", message, "file")


@dataclass(frozen=True, slots=True)
class FileAbout:
    """A file to be written, without its content. `lives_s` None: by its purpose."""

    project_id: int
    key_public_id: str
    filename: str
    purpose: str
    lives_s: int | None = None


class FileWriter:
    """Writes one new file: call `write` any number of times, then `finish` or `drop`."""

    def __init__(self, about: FileAbout, *, num_bytes: int = 0) -> None:
        now = timezone.now()
        self.file: ProjectFile = ProjectFile.objects.create(
            public_id=f"file-{secrets.token_hex(16)}",
            project_id=about.project_id,
            key_public_id=about.key_public_id,
            filename=storable_text(about.filename)[:MAX_FILENAME_CHARS],
            purpose=about.purpose,
            num_bytes=num_bytes,
            created_at=now,
            expires_at=_expiry(about, now),
        )
        self._buffer = bytearray()
        self._num_chunks = 0
        self._num_bytes = 0

    def write(self, data: bytes) -> None:
        self._buffer += data
        self._num_bytes += len(data)
        while len(self._buffer) >= CHUNK_BYTES:
            self._write_chunk(CHUNK_BYTES)

    def finish(self) -> ProjectFile:
        if self._buffer:
            self._write_chunk(len(self._buffer))
        self.file.num_bytes = self._num_bytes
        self.file.is_complete = True
        self.file.save(update_fields=["num_bytes", "is_complete"])
        return self.file

    def drop(self) -> None:
        _remove(self.file)

    def _write_chunk(self, num_bytes: int) -> None:
        FileChunk.objects.create(file=self.file, number=self._num_chunks, content=bytes(self._buffer[:num_bytes]))
        del self._buffer[:num_bytes]
        self._num_chunks += 1


def file_begin(*, about: FileAbout, num_bytes: int) -> FileWriter:
    """Reserve room for an upload of `num_bytes` and return its writer. Raises QuotaExceeded."""
    with transaction.atomic():
        # NOTE: the row of the project is locked, so that two uploads do not both fit into the same room.
        Project.objects.select_for_update().get(pk=about.project_id)
        files = ProjectFile.objects.filter(project_id=about.project_id)
        size = files.aggregate(count=Count("*"), num_bytes=Sum("num_bytes", default=0))
        num_free_bytes = settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES - size["num_bytes"]
        if size["count"] >= settings.LIGHTCONE_MAX_PROJECT_FILES or num_bytes > num_free_bytes:
            raise QuotaExceeded
        return FileWriter(about, num_bytes=num_bytes)


def named_row(rows: QuerySet[Row], public_id: str) -> Row | None:
    """Return the row with this public id, which a client may have sent: PostgreSQL refuses to look for a NUL."""
    return None if "\0" in public_id else rows.filter(public_id=public_id).first()


def rows_page(
    rows: QuerySet[Row], *, limit: int, after: str, is_ascending: bool = False, **equal: str
) -> tuple[list[Row], bool]:
    """Return a page of rows by creation, and whether there are more. Raises ApiError if `after` is none of them."""
    found = rows.filter(**equal).order_by("pk" if is_ascending else "-pk")
    if after:
        last = named_row(rows, after)
        if last is None:
            kind = rows.model._meta.verbose_name
            raise ApiError("invalid_value", f"after must be the id of a {kind} of this project", "after")
        found = found.filter(pk__gt=last.pk) if is_ascending else found.filter(pk__lt=last.pk)
    page = list(found[: limit + 1])
    return page[:limit], len(page) > limit


def file_get(*, project_id: int, public_id: str, param: str = "file_id") -> ProjectFile:
    """Return a complete file of the project. Raises FileMissing, which names `param`."""
    file = named_row(_visible(project_id), public_id)
    if file is None:
        raise FileMissing(public_id, param)
    return file


def files_named(*, project_id: int, public_ids: Sequence[str]) -> dict[str, ProjectFile]:
    """Return those of the named files that the project has, by id. PostgreSQL refuses to look for a NUL."""
    wanted = [public_id for public_id in public_ids if "\0" not in public_id]
    return {file.public_id: file for file in _visible(project_id).filter(public_id__in=wanted)}


def files_page(
    *, project_id: int, purpose: str = "", limit: int, after: str = "", is_ascending: bool = False
) -> tuple[list[ProjectFile], bool]:
    """Return a page of the project's files, as `rows_page` does."""
    equal = {"purpose": purpose} if purpose else {}
    return rows_page(_visible(project_id), limit=limit, after=after, is_ascending=is_ascending, **equal)


async def file_content(*, file_pk: int) -> AsyncIterator[bytes]:
    """Yield the content by chunks, each by a query of its own, as other work waits for the same thread."""
    content = FileChunk.objects.filter(file_id=file_pk).values_list("content", flat=True)
    number = 0
    while (chunk := await database_sync_to_async(content.filter(number=number).first)()) is not None:
        yield bytes(chunk)
        number += 1


def file_of_batch(*, batch: Batch) -> ProjectFile:
    """Return the input file of a batch, expired or not: a file that an open batch reads stays. Raises FileMissing."""
    complete = ProjectFile.objects.filter(is_complete=True, purpose=Purpose.BATCH)
    file: ProjectFile | None = complete.filter(project_id=batch.project_id, public_id=batch.input_file_id).first()
    if file is None:
        raise FileMissing(batch.input_file_id)
    return file


def file_delete(*, project_id: int, public_id: str) -> None:
    """Delete a file. Raises FileMissing, or FileInUse while an open batch reads it."""
    file = file_get(project_id=project_id, public_id=public_id)
    on = Subject(file.public_id, file.filename, file.project.org_id, file.project_id)
    with transaction.atomic():
        _hide_unread(file)
        before = row_values(file, ("purpose", "num_bytes", "created_at"))
        audit_record(action="file.delete", on=on, before=before)
    _remove(file)


def file_drop(*, public_id: str) -> None:
    """Forget a file of the server's own, complete or not, if there is one."""
    file = ProjectFile.objects.filter(public_id=public_id).first() if public_id else None
    if file is not None:
        _remove(file)


def files_prune(*, now: datetime) -> int:
    """Delete expired and incomplete files; return how many. Keep the inputs of open batches."""
    num_deleted = 0
    over = Q(expires_at__lte=now) | Q(is_complete=False, created_at__lt=now - FORSAKEN_AFTER)
    for file in list(ProjectFile.objects.filter(over)):
        with suppress(FileInUse):
            _hide_unread(file)
            _remove(file)
            num_deleted += 1
    return num_deleted


def _hide_unread(file: ProjectFile) -> None:
    """Hide the file. Raises FileInUse. Locks the project like batch_create, so that no batch begins meanwhile."""
    with transaction.atomic():
        Project.objects.select_for_update().filter(pk=file.project_id).first()
        batches = Batch.objects.filter(project_id=file.project_id, status__in=OPEN_STATUSES)
        reader = batches.filter(input_file_id=file.public_id).first()
        if reader is not None:
            raise FileInUse(reader.public_id)
        ProjectFile.objects.filter(pk=file.pk).update(is_complete=False)


def _visible(project_id: int) -> QuerySet[ProjectFile]:
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return ProjectFile.objects.filter(unexpired, project_id=project_id, is_complete=True)


def _expiry(about: FileAbout, now: datetime) -> datetime | None:
    if about.lives_s is not None:
        return now + timedelta(seconds=about.lives_s)
    return now + timedelta(days=settings.LIGHTCONE_FILE_DAYS) if about.purpose in EXPIRING else None


def _remove(file: ProjectFile) -> None:
    """Hide the file, then delete it by chunks, as a whole file at once would hold the database up."""
    ProjectFile.objects.filter(pk=file.pk).update(is_complete=False)
    while pks := list(FileChunk.objects.filter(file_id=file.pk).values_list("pk", flat=True)[:16]):
        FileChunk.objects.filter(pk__in=pks).delete()
    ProjectFile.objects.filter(pk=file.pk).delete()
