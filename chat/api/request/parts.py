"""Check the content of one message: text, or parts.

Media that the model cannot take is refused before it is decoded or fetched.

The result has text parts, and file parts as they were sent, for the worker to read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings

from chat.api.request.fields import echo
from chat.errors import Problems
from engine.api import Json

TEXT_PARTS = ("text", "input_text", "output_text")
MEDIA_PARTS = ("image_url", "input_audio", "audio_url", "video_url", "image_embeds", "audio_embeds")
ABSENT = object()
BYTES_OF_BASE64 = 3 / 4
URL_HEAD_BYTES = 1024
"""The most bytes before the data of a data URL."""


@dataclass(frozen=True, slots=True)
class Content:
    """A content as a template gets it.

    `thoughts` are an assistant's thinking parts, None without any; `is_open` says that the last is not closed.
    """

    value: str | list[Json] = ""
    thoughts: str | None = None
    is_open: bool = False


class PartReader:
    """Reads the contents of all messages of one request, and counts their parts."""

    def __init__(self, problems: Problems, *, model: str, max_parts: int) -> None:
        self._problems = problems
        self._model = model
        self._max_parts = max_parts
        self._num_parts = 0

    def read(self, content: Any, path: str, role: str) -> Content:
        """Return the content at `path`. Absent content is empty; only an assistant's may be null."""
        if isinstance(content, str):
            return Content(content)
        if content is ABSENT or (content is None and role == "assistant"):
            return Content()
        if not isinstance(content, list):
            self._problems.refuse(path, f"must be a string or an array of parts, got {echo(content)}", "invalid_type")
            return Content()
        self._num_parts += len(content)
        if self._num_parts > self._max_parts:
            self._problems.refuse(path, f"brings the parts of all messages above the limit of {self._max_parts}")
            return Content()
        parts: list[Json] = []
        thoughts: list[str] = []
        is_open = False
        for index, part in enumerate(content):
            if role == "assistant" and isinstance(part, dict) and part.get("type") == "thinking":
                thoughts.append(self._text(part.get("thinking"), f"{path}.{index}.thinking") or "")
                is_open = self._is_open(part, f"{path}.{index}.closed")
            else:
                parts += self._part(part, f"{path}.{index}")
            if self._problems.is_full:
                break
        return Content(parts, "\n".join(thoughts) if thoughts else None, is_open)

    def _part(self, part: Any, path: str) -> list[Json]:
        """Return the part for the template; nothing after a problem and for a text part without text."""
        if isinstance(part, str):
            return [{"type": "text", "text": part}]
        if not isinstance(part, dict):
            self._problems.refuse(path, f"must be a content part, got {echo(part)}", "invalid_type")
            return []
        kind = part.get("type")
        if kind is None:
            kind = next((word for word in MEDIA_PARTS if word in part), None)
        if kind in MEDIA_PARTS:
            message = f"cannot be used: {self._model} is not a multimodal model; send text, or choose another model"
            self._problems.refuse(f"{path}.{kind}", message, "unsupported_parameter")
            return []
        if kind == "file":
            return self._file(part.get("file"), f"{path}.file")
        if kind not in (*TEXT_PARTS, "refusal", "thinking"):
            known = "text, refusal, thinking, file, image_url, input_audio, …"
            self._problems.refuse(path, f"must be of a known type ({known}), got {echo(kind)}")
            return []
        name = "text" if kind in TEXT_PARTS else str(kind)
        text = self._text(part.get(name), f"{path}.{name}")
        return [] if text is None else [{"type": "text", "text": text}]

    def _text(self, text: Any, path: str) -> str | None:
        if text is None or isinstance(text, str):
            return text
        self._problems.refuse(path, f"must be a string, got {echo(text)}", "invalid_type")
        return None

    def _is_open(self, part: dict[str, Any], path: str) -> bool:
        closed = part.get("closed")
        if closed is not None and not isinstance(closed, bool):
            self._problems.refuse(path, f"must be true or false, got {echo(closed)}", "invalid_type")
        return closed is False

    def _file(self, file: Any, path: str) -> list[Json]:
        """Return the part for the worker, with the path for its errors. Nothing is decoded here."""
        if not isinstance(file, dict):
            self._problems.refuse(path, f"must be an object with file_data, got {echo(file)}", "invalid_type")
            return []
        data, name = file.get("file_data"), file.get("filename")
        max_label_chars, max_file_bytes = (
            settings.LIGHTCONE_LIMITS.max_label_chars,
            settings.LIGHTCONE_LIMITS.max_file_bytes,
        )
        if file.get("file_id") is not None:
            message = "has a file_id, but this server keeps no files; send the content as file_data"
            self._problems.refuse(path, message, "unsupported_parameter")
        elif not isinstance(data, str) or not data:
            self._problems.refuse(path, "must have file_data: the content in base64, or a data: URL with base64")
        elif len(data) * BYTES_OF_BASE64 > max_file_bytes + URL_HEAD_BYTES:
            self._problems.refuse(path, f"must have at most {max_file_bytes} bytes; send a part of it")
        elif name is not None and not isinstance(name, str):
            self._problems.refuse(path, f"must have a string as filename, got {echo(name)}", "invalid_type")
        elif name is not None and (len(name) > max_label_chars or not name.isprintable()):
            self._problems.refuse(path, f"must have a filename of at most {max_label_chars} printable characters")
        else:
            return [{"type": "file", "file": {"file_data": data, "filename": name}, "param": path}]
        return []
