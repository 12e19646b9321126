"""Fetch the files of a project that a request attaches to its messages.

The database is asked for rows first: sizes and purposes are known before a byte is read. The bytes of attached files
count until their requests are answered, as those of bodies do: so long Valkey holds them for a worker. A project has at
most half of what a process may have.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from channels.db import database_sync_to_async
from django.conf import settings

from chat.api.answering.attached import FetchedFiles
from chat.api.request.named_files import AttachedFile, unknown_file
from chat.batches.files import file_content, files_named
from chat.batches.models import ProjectFile, Purpose
from chat.errors import ApiError
from engine.api import MAX_FILES

ATTACHABLE = (Purpose.USER_DATA, Purpose.ASSISTANTS, Purpose.VISION)
PURPOSES = "user_data, assistants or vision"
SHARE_OF_BODIES = 2
"""All attached files of a process have half of the memory for bodies."""


class FileRoom:
    """The bytes of attached files whose requests are not answered, by project."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()

    @property
    def num_bytes(self) -> int:
        return self._taken.total()

    def take(self, project_id: int, num_bytes: int) -> Callable[[], None]:
        """Take bytes for a project and return what gives them back. Raises ApiError if there is no room."""
        most = _most_bytes()
        taken = self._taken[project_id]
        if taken + num_bytes > most // 2:
            message = (
                f"Your requests that are not answered yet have attached files of {taken} bytes; with this one they "
                f"would have more than {most // 2}. Please wait for some to be answered, or attach less at once."
            )
            raise ApiError("rate_limit_exceeded", message)
        if self.num_bytes + num_bytes > most:
            message = "The server holds as many bytes of attached files as it may; please try again shortly."
            raise ApiError("overloaded", message)
        self._taken[project_id] += num_bytes
        return partial(self._give_back, project_id, num_bytes)

    def _give_back(self, project_id: int, num_bytes: int) -> None:
        self._taken[project_id] -= num_bytes
        if not self._taken[project_id]:
            del self._taken[project_id]


room = FileRoom()


async def files_fetch(named: Sequence[str], *, project_id: int) -> FetchedFiles:
    """Return the files that a request names; those that are refused have the reason. Raises ApiError without room."""
    public_ids = list(dict.fromkeys(named))[:MAX_FILES]
    rows = await database_sync_to_async(files_named)(project_id=project_id, public_ids=public_ids)
    problems = _problems(named, rows)
    if problems:  # the request is refused, so that no content is read
        files = {public_id: AttachedFile(problem=problems.get(public_id, "")) for public_id in named}
        return FetchedFiles(files, _nothing)
    files = {}
    give_back = room.take(project_id, sum(rows[public_id].num_bytes for public_id in named))
    try:
        for public_id, row in rows.items():
            files[public_id] = await _attached(row)
    except BaseException:
        give_back()
        raise
    return FetchedFiles(files, give_back)


def _problems(named: Sequence[str], rows: dict[str, ProjectFile]) -> dict[str, str]:
    """Return the reason for each file that cannot be attached."""
    limit = settings.LIGHTCONE_LIMITS.max_file_bytes
    most = min(settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes, _most_bytes() // 2)
    problems: dict[str, str] = {}
    num_bytes = 0
    for index, public_id in enumerate(named):
        row = rows.get(public_id)
        if public_id in problems:
            continue
        if index >= MAX_FILES:
            problems[public_id] = f"is one of more than {MAX_FILES} files; send fewer in one request"
        elif row is None:
            problems[public_id] = unknown_file(public_id)
        elif row.purpose not in ATTACHABLE:
            message = f"must be a file of purpose {PURPOSES}; {public_id} has purpose {row.purpose}"
            problems[public_id] = f"{message}. Upload it again for that"
        elif row.num_bytes > limit:
            problems[public_id] = f"must be a file of at most {limit} bytes, got {row.num_bytes}; upload a smaller one"
        else:
            num_bytes += row.num_bytes
            if num_bytes > most:
                problems[public_id] = f"brings the files of this request above {most} bytes; send fewer in one request"
    return problems


def _nothing() -> None:
    """Give back no bytes."""


def _most_bytes() -> int:
    return int(settings.LIGHTCONE_HTTP_LIMITS.max_bodies_bytes) // SHARE_OF_BODIES


async def _attached(row: ProjectFile) -> AttachedFile:
    content = b"".join([chunk async for chunk in file_content(file_pk=row.pk)])
    if len(content) != row.num_bytes:
        return AttachedFile(problem=unknown_file(row.public_id))  # it is being deleted
    encoded = await asyncio.to_thread(base64.b64encode, content)
    name = "".join(letter if letter.isprintable() else " " for letter in row.filename)
    return AttachedFile(name, encoded.decode())
