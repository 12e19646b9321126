"""The files of the caller's project that parts of messages name by `file_id`.

They were fetched before (answering/attached.py). Readers of parts look them up here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chat.api.request.fields import echo
from chat.errors import Problems


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file of the caller's project as its content in base64, or the reason why it cannot be attached."""

    filename: str = ""
    file_data: str = ""
    problem: str = ""
    code: str = "invalid_value"
    """Of the problem."""


AttachedFiles = Mapping[str, AttachedFile]
"""By file id, or by address."""


def file_named(file_id: Any, files: AttachedFiles, place: str, problems: Problems) -> AttachedFile | None:
    """Return the file that `place` of a request names; None after a problem."""
    if not isinstance(file_id, str):
        problems.refuse(place, f"must be a string, got {echo(file_id)}", "invalid_type")
        return None
    found = files.get(file_id) or AttachedFile(problem=unknown_file(file_id))
    if found.problem:
        problems.refuse(place, found.problem)
        return None
    return found


def unknown_file(file_id: str) -> str:
    """Return why an id names no file, as it continues behind the field's name."""
    return (
        f"must be the id of a file of this project, which {echo(file_id)} is not, or not any more; upload the file to "
        "/v1/files with the purpose user_data"
    )
