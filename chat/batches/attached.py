"""Hold files of a project in memory for a request that attaches them to its messages.

The database is asked for rows first: sizes and purposes are known before a byte is read. A process holds a bounded
number of bytes, of which one project has at most half.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from channels.db import database_sync_to_async
from django.conf import settings

from chat.api.request.file_parts import AttachedFile, AttachedFiles, unknown_file
from chat.batches.files import file_content, files_named
from chat.batches.models import ProjectFile, Purpose
from chat.errors import ApiError
from engine.api import MAX_FILES

ATTACHABLE = (Purpose.USER_DATA, Purpose.ASSISTANTS)
SHARE_OF_BODIES = 4
"""All attached files of a process have this part of the memory for bodies."""


class HeldFiles:
    """The bytes of files that this process holds, by project."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()

    @property
    def num_bytes(self) -> int:
        return self._held.total()

    def take(self, project_id: int, num_bytes: int) -> None:
        """Take bytes for a project. Raises ApiError if there is no room. Who holds none always has some."""
        most = settings.LIGHTCONE_HTTP_LIMITS.max_bodies_bytes // SHARE_OF_BODIES
        if self._held[project_id] and self._held[project_id] + num_bytes > most // 2:
            message = (
                f"Your requests that are being started have attached files of {self._held[project_id]} bytes; with "
                f"this one they would have more than {most // 2}. Please send fewer at once."
            )
            raise ApiError("rate_limit_exceeded", message)
        if self.num_bytes and self.num_bytes + num_bytes > most:
            message = "The server holds as many bytes of attached files as it may; please try again shortly."
            raise ApiError("overloaded", message)
        self._held[project_id] += num_bytes

    def give_back(self, project_id: int, num_bytes: int) -> None:
        self._held[project_id] -= num_bytes
        if not self._held[project_id]:
            del self._held[project_id]


held = HeldFiles()


@asynccontextmanager
async def files_fetch(named: Sequence[str], *, project_id: int) -> AsyncIterator[AttachedFiles]:
    """Hold the files that a request names; the rest have the reason why they are refused. Raises ApiError."""
    rows = await database_sync_to_async(files_named)(
        project_id=project_id, public_ids=list(dict.fromkeys(named))[:MAX_FILES]
    )
    problems = _problems(named, rows)
    wanted = [row for public_id, row in rows.items() if public_id not in problems]
    num_bytes = sum(row.num_bytes for row in wanted)
    held.take(project_id, num_bytes)
    try:
        files = {public_id: AttachedFile(problem=problem) for public_id, problem in problems.items()}
        for row in wanted:
            files[row.public_id] = await _attached(row)
        yield files
    finally:
        held.give_back(project_id, num_bytes)


def _problems(named: Sequence[str], rows: dict[str, ProjectFile]) -> dict[str, str]:
    """Return the reason for each file that cannot be attached."""
    limit, most = settings.LIGHTCONE_LIMITS.max_file_bytes, settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes
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
            message = f"must be a file of purpose user_data or assistants; {public_id} has purpose {row.purpose}"
            problems[public_id] = f"{message}. Upload it again for that"
        elif row.num_bytes > limit:
            problems[public_id] = f"must be a file of at most {limit} bytes, got {row.num_bytes}; upload a part of it"
        else:
            num_bytes += row.num_bytes
            if num_bytes > most:
                problems[public_id] = f"brings the files of this request above {most} bytes; send fewer in one request"
    return problems


async def _attached(row: ProjectFile) -> AttachedFile:
    content = b"".join([chunk async for chunk in file_content(file_pk=row.pk)])
    if len(content) != row.num_bytes:
        return AttachedFile(problem=unknown_file(row.public_id))  # it is being deleted
    encoded = await asyncio.to_thread(base64.b64encode, content)
    name = "".join(letter if letter.isprintable() else " " for letter in row.filename)
    return AttachedFile(name, encoded.decode())
