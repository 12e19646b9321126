"""Files of projects: write, find, read, delete, expire.

A file of another project counts as missing (FileMissing). Content is written in chunks, each in its own transaction, so
that other writers wait for milliseconds only. Readers see complete files only.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from chat.access.models import Project
from chat.batches.models import CHUNK_BYTES, OPEN_STATUSES, Batch, FileChunk, ProjectFile, Purpose
from chat.usage.services import storable_text

FORSAKEN_AFTER = timedelta(days=1)
"""A file that is incomplete after this time never completes, as its writer is gone."""
MAX_FILENAME_CHARS = 255
EXPIRING = (Purpose.BATCH, Purpose.BATCH_OUTPUT)
"""Purposes whose files expire by default."""


class FileMissing(Exception):
    """Raised if the project has no such file."""


class FileInUse(Exception):
    """Raised if an open batch reads the file. The argument is the batch's id."""


class QuotaExceeded(Exception):
    """Raised beyond LIGHTCONE_MAX_PROJECT_FILE_BYTES or LIGHTCONE_MAX_PROJECT_FILES."""


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
        count, taken = _files_size(about.project_id)
        if (
            count >= settings.LIGHTCONE_MAX_PROJECT_FILES
            or taken + num_bytes > settings.LIGHTCONE_MAX_PROJECT_FILE_BYTES
        ):
            raise QuotaExceeded
        return FileWriter(about, num_bytes=num_bytes)


def file_create(*, about: FileAbout, pieces: Iterable[bytes], num_bytes: int) -> ProjectFile:
    """Store a whole upload. Raises QuotaExceeded before anything is written."""
    writer = file_begin(about=about, num_bytes=num_bytes)
    try:
        for piece in pieces:
            writer.write(piece)
        return writer.finish()
    except BaseException:
        writer.drop()
        raise


def project_file_bytes(*, project_id: int) -> int:
    """Return the bytes that the project's files take, incomplete ones included."""
    return _files_size(project_id)[1]


def _files_size(project_id: int) -> tuple[int, int]:
    """Return the number of the project's files and their bytes."""
    size = ProjectFile.objects.filter(project_id=project_id).aggregate(
        count=Count("*"), num_bytes=Sum("num_bytes", default=0)
    )
    return size["count"], int(size["num_bytes"])


def file_get(*, project_id: int, public_id: str) -> ProjectFile:
    """Return a complete file of the project. Raises FileMissing."""
    file: ProjectFile | None = (
        _visible(project_id).filter(public_id=public_id).first() if "\0" not in public_id else None
    )
    if file is None:
        raise FileMissing
    return file


def files_page(
    *, project_id: int, purpose: str = "", limit: int, after: str = "", is_ascending: bool = False
) -> tuple[list[ProjectFile], bool]:
    """Return up to `limit` files by creation, and whether there are more. `after`: the last id of the previous page.

    Raises FileMissing if `after` is no file of the project.
    """
    found = _visible(project_id).order_by("id" if is_ascending else "-id")
    if purpose:
        found = found.filter(purpose=purpose)
    if after:
        last = file_get(project_id=project_id, public_id=after)
        found = found.filter(pk__gt=last.pk) if is_ascending else found.filter(pk__lt=last.pk)
    rows = list(found[: limit + 1])
    return rows[:limit], len(rows) > limit


def file_chunk(*, file_pk: int, number: int) -> bytes | None:
    """Return the bytes of one chunk, or None after the last."""
    content = FileChunk.objects.filter(file_id=file_pk, number=number).values_list("content", flat=True).first()
    return None if content is None else bytes(content)


def file_chunks(*, file_pk: int) -> Iterator[bytes]:
    """Yield the content by chunks."""
    number = 0
    while (chunk := file_chunk(file_pk=file_pk, number=number)) is not None:
        yield chunk
        number += 1


def file_of_batch(*, project_id: int, public_id: str, purpose: str) -> ProjectFile:
    """Return the input file of a batch, expired or not: a file that an open batch reads stays. Raises FileMissing."""
    complete = ProjectFile.objects.filter(is_complete=True)
    file: ProjectFile | None = complete.filter(project_id=project_id, public_id=public_id, purpose=purpose).first()
    if file is None:
        raise FileMissing
    return file


def file_delete(*, project_id: int, public_id: str) -> None:
    """Delete a file. Raises FileMissing, or FileInUse while an open batch reads it."""
    file = file_get(project_id=project_id, public_id=public_id)
    _hide_unread(file)
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
    for pk in list(ProjectFile.objects.filter(over).values_list("pk", flat=True)):
        file = ProjectFile.objects.filter(pk=pk).first()
        if file is not None:
            with suppress(FileInUse):
                _hide_unread(file)
                _remove(file)
                num_deleted += 1
    return num_deleted


def _hide_unread(file: ProjectFile) -> None:
    """Hide the file. Raises FileInUse. Locks the project like batch_create, so that no batch begins meanwhile."""
    with transaction.atomic():
        Project.objects.select_for_update().filter(pk=file.project_id).first()
        readers = Batch.objects.filter(
            input_file_id=file.public_id, project_id=file.project_id, status__in=OPEN_STATUSES
        )
        reader = readers.first()
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
    """Chunk by chunk, as a file at once would hold the database up; invisible from the first moment."""
    ProjectFile.objects.filter(pk=file.pk).update(is_complete=False)
    while pks := list(FileChunk.objects.filter(file_id=file.pk).values_list("pk", flat=True)[:16]):
        FileChunk.objects.filter(pk__in=pks).delete()
    ProjectFile.objects.filter(pk=file.pk).delete()
