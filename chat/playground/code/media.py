"""Take media out of a request: what a snippet reads from a file is not shown as base64."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from dataclasses import dataclass
from typing import Any

LONGEST_SHOWN = 1024
"""The most characters of base64 that a snippet shows."""
DATA_URL = re.compile(r"data:([a-z]+)/([A-Za-z0-9.+-]{1,64})(?:;[A-Za-z0-9=.+-]{1,64})*;base64,", re.ASCII)
FILE_NAME = re.compile(r"\w[\w. ()+-]{0,99}")
SUFFIX = re.compile(r"[a-z0-9]{1,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Media:
    """A text in a request that ends with the base64 of a file: what stands before it, and a name for the file."""

    head: str
    file_name: str


def media_taken_out(request: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a request in which each long data URL and each long `input_audio.data` is a `Media`.

    Documents keep their names.
    """
    names: dict[str, str] = {}

    def walked(value: Any, audio_format: str = "") -> Any:
        if isinstance(value, dict):
            _name_document(value, names)
            return {key: walked(part, _format(value) if key == "data" else "") for key, part in value.items()}
        if isinstance(value, list):
            return [walked(part) for part in value]
        return _media(value, audio_format, names) if isinstance(value, str) else value

    walk: dict[str, Any] = walked(request)
    return walk


def _name_document(file: dict[str, Any], names: dict[str, str]) -> None:
    """Note the name of a `file` that is sent with its contents, unless another has it."""
    name, data = file.get("filename"), file.get("file_data")
    if isinstance(name, str) and isinstance(data, str) and FILE_NAME.fullmatch(name) and name not in names.values():
        names.setdefault(data[len(_head(data)) :], name)


def _head(text: str) -> str:
    match = DATA_URL.match(text)
    return match.group() if match else ""


def _format(value: dict[str, Any]) -> str:
    """Return the format of an `input_audio`, else an empty text."""
    found = value.get("format")
    return found if set(value) == {"data", "format"} and isinstance(found, str) and SUFFIX.fullmatch(found) else ""


def _media(text: str, audio_format: str, names: dict[str, str]) -> str | Media:
    if len(text) <= LONGEST_SHOWN:
        return text
    match = DATA_URL.match(text)
    head = match.group() if match else ""
    if not (match or audio_format) or not _is_base64(text[len(head) :]):
        return text
    kind, suffix = ("audio", audio_format) if match is None else (match.group(1), _suffix(match))
    # The same content is one file, however often it is sent.
    name = names.setdefault(text[len(head) :], f"{kind}-{len(names) + 1}.{suffix}")
    return Media(head, name)


def _suffix(match: re.Match[str]) -> str:
    guessed = (mimetypes.guess_extension(f"{match.group(1)}/{match.group(2)}") or "").removeprefix(".")
    return guessed if SUFFIX.fullmatch(guessed) else "bin"


def _is_base64(text: str) -> bool:
    """Return True if encoding the file again gives this very text."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except (binascii.Error, ValueError):
        return False
