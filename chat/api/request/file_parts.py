"""Read file parts of messages, and say which files parts name by `file_id`; answering/attached.py fetches those.

Nothing is decoded here: the worker reads the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings

from chat.api.request.fields import echo
from chat.api.request.image_parts import DETAILS, IMAGE_URL, MAX_NAMES, REMOTE, part_type
from chat.api.request.named_files import AttachedFiles, file_named
from chat.errors import Problems
from engine.api import MAX_FILES, Json

SOURCES = ("file_data", "file_id", "file_url")
BYTES_OF_BASE64 = 3 / 4
URL_HEAD_BYTES = 1024
"""The most bytes before the data of a data URL."""


def has_files(messages: Sequence[Any]) -> bool:
    """Return True if a message has a file part."""
    return next(_file_parts(messages), None) is not None


def _file_parts(messages: Sequence[Any]) -> Iterator[dict[str, Any]]:
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    for content in contents:
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "file":
                yield part


def file_urls(messages: Sequence[Any]) -> Iterator[str]:
    """Yield the address of each file part that has one, and no content in another way."""
    for part in _file_parts(messages):
        file = part.get("file")
        if isinstance(file, dict) and isinstance(file.get("file_url"), str) and _num_sources(file) == 1:
            yield file["file_url"]


def _num_sources(file: dict[str, Any]) -> int:
    return sum(file.get(key) is not None for key in SOURCES)


def file_ids(messages: Sequence[Any], max_parts: int) -> Iterator[str]:
    """Yield the id of each file and image that has one, in order, of the parts that a request may have."""
    num_parts = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            continue
        num_parts += len(content)
        if num_parts > max_parts:
            return
        for part in content:
            held, sent = _named_in(part)
            if isinstance(held, dict) and isinstance(held.get("file_id"), str) and held.get(sent) is None:
                yield held["file_id"]


def _named_in(part: Any) -> tuple[Any, str]:
    """Return what may name a file in a part, and the name of its own content there."""
    kind = part_type(part) if isinstance(part, dict) else None
    if kind == IMAGE_URL:
        return part.get(IMAGE_URL), "url"
    return (part.get("file"), "file_data") if kind == "file" else (None, "")


class FilePartReader:
    """A reader of the file parts of one request."""

    def __init__(self, problems: Problems, files: AttachedFiles, seeing: Sequence[str] = ()) -> None:
        """`seeing`: for a model that takes no images, the caller's models that do."""
        self._problems = problems
        self._files = files
        self._seeing: list[Json] = list(seeing[:MAX_NAMES])
        self._num_remote = 0

    def read(self, file: Any, path: str) -> list[Json]:
        """Return the part for the worker, with the path for its errors; nothing after a problem."""
        if not isinstance(file, dict):
            message = f"must be an object with file_data, file_id or file_url, got {echo(file)}"
            self._problems.refuse(path, message, "invalid_type")
            return []
        data, file_id, name = file.get("file_data"), file.get("file_id"), file.get("filename")
        detail = file.get("detail")
        limits = settings.LIGHTCONE_LIMITS
        if name is not None and not isinstance(name, str):
            self._problems.refuse(path, f"must have a string as filename, got {echo(name)}", "invalid_type")
        elif name is not None and (len(name) > limits.max_label_chars or not name.isprintable()):
            message = f"must have a filename of at most {limits.max_label_chars} printable characters"
            self._problems.refuse(path, message)
        elif detail not in (None, *DETAILS):
            self._problems.refuse(f"{path}.detail", f"must be one of {', '.join(DETAILS)}, got {echo(detail)}")
        elif _num_sources(file) > 1:
            self._problems.refuse(path, f"must have one of {', '.join(SOURCES)}; leave the others out")
        elif file_id is not None:
            return self._named(file_id, name, detail, path)
        elif (url := file.get("file_url")) is not None and not _is_data(url):
            return self._remote(url, name, detail, path)
        elif not isinstance(data := url or data, str) or not data:
            message = "must have file_data (the content in base64, or a data: URL with base64), file_id or file_url"
            self._problems.refuse(path, message)
        elif len(data) * BYTES_OF_BASE64 > limits.max_file_bytes + URL_HEAD_BYTES:
            self._problems.refuse(path, f"must have at most {limits.max_file_bytes} bytes; send a part of it")
        else:
            return [self._part(data, name, detail, path)]
        return []

    def _part(self, data: str, name: str | None, detail: str | None, path: str) -> Json:
        sent: dict[str, Json] = {"file_data": data, "filename": name}
        if detail is not None:
            sent["detail"] = detail
        part: dict[str, Json] = {"type": "file", "file": sent, "param": path}
        if self._seeing:
            part["seeing"] = self._seeing
        return part

    def _named(self, file_id: Any, name: str | None, detail: str | None, path: str) -> list[Json]:
        """Return the part of a file that the project keeps."""
        found = file_named(file_id, self._files, f"{path}.file_id", self._problems)
        return [] if found is None else [self._part(found.file_data, name or found.filename, detail, path)]

    def _remote(self, url: Any, name: str | None, detail: str | None, path: str) -> list[Json]:
        """Return the part of a file that has been fetched. Each part has a copy of it on its way to the worker."""
        place = f"{path}.file_url"
        self._num_remote += 1
        if not isinstance(url, str) or not REMOTE.match(url):
            message = f"must be an address that begins with https://, got {echo(url)}; or send the file in base64"
            self._problems.refuse(place, message, "invalid_value" if isinstance(url, str) else "invalid_type")
        elif (found := self._files.get(url)) is None:
            most = settings.LIGHTCONE_MEDIA_LIMITS.max_media_items
            self._problems.refuse(place, f"is one address of a file more than the limit of {most} in a request")
        elif found.problem:
            self._problems.refuse(place, found.problem, found.code)
        elif self._num_remote > MAX_FILES:
            self._problems.refuse(place, f"is one of more than {MAX_FILES} files; send fewer in one request")
        else:
            return [self._part(found.file_data, name or found.filename or None, detail, path)]
        return []


def _is_data(url: Any) -> bool:
    """Return True for a data: URL, which has the content itself."""
    return isinstance(url, str) and url[:5].lower() == "data:"
