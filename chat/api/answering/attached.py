"""Fetch the files that the messages of a request name by id, and hold room for them until the request is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from chat.access.keys import Caller
from chat.api.request.file_parts import file_ids
from chat.api.request.named_files import AttachedFiles
from chat.generation.kept_media import CONTENTS
from engine.api import Json, Message

SOURCE = "chat.batches.attached.files_fetch"
"""By name, as the room of files is built on this one."""
NOT_KEPT = ""


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """The files of one request. Call `give_back` once the request is answered; their bytes then no longer count."""

    files: AttachedFiles
    give_back: Callable[[], None]


class FileSource(Protocol):
    """A function that fetches the named files of a project. The same id may be named more than once."""

    async def __call__(self, named: Sequence[str], *, project_id: int) -> FetchedFiles: ...


async def files_attached(messages: Sequence[Any], caller: Caller) -> FetchedFiles | None:
    """Fetch the files that `messages` name; None without any. A file that cannot be attached is there with the reason.

    Raises ApiError while the requests of the project, or of all, have as many bytes of files as they may.
    """
    named = list(file_ids(messages, settings.LIGHTCONE_LIMITS.max_parts))
    if not named:
        return None
    source: FileSource = import_string(SOURCE)
    return await source(named, project_id=caller.project_id)


def num_file_bytes(files: AttachedFiles) -> int:
    return sum(len(file.file_data) for file in files.values())


def attachments_forgotten(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages without the contents of files and media, which a run does not need once it has been started."""
    return tuple(_without_data(message) for message in messages)


def _without_data(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part_without_data(part) for part in content]}


def _part_without_data(part: Json) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(part, dict) and kind in CONTENTS:
        return {**part, CONTENTS[kind]: NOT_KEPT}
    return part
