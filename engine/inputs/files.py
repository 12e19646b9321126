"""Replaces file parts of messages by text parts. A bounded, killable child process (file_text.py) reads each file.

Web processes pass file parts on undecoded: `{"type": "file", "file": {"file_data", "filename"}, "param"}`.
"""

from __future__ import annotations

from typing import Any

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.api.request import MAX_FILES, Json, Message
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

TARGET = "engine.inputs.file_text:extract"
POOL_SIZE = 3
MEMORY_BYTES = 512 << 20
NICENESS = 10
EXTRACT_S = 20.0
"""For all files of a request together; each file has an equal share."""
UNNAMED = "unnamed"


class FileReader:
    """The reader of the files of requests. Thread-safe."""

    def __init__(self, work: SlowWork) -> None:
        self._pool = KillablePool(TARGET, POOL_SIZE, MEMORY_BYTES, niceness=NICENESS, work=work)

    def read(self, messages: tuple[Message, ...], tenant: str) -> list[Message]:
        """Return the messages with every file part replaced by a text part.

        Raises RequestError that names the part, and EngineUnavailable.
        """
        files = [part for message in messages for part in _parts(message) if _is_file(part)]
        if not files:
            return list(messages)
        if len(files) > MAX_FILES:
            raise _refused(
                f"is one of {len(files)} files; a request must have at most {MAX_FILES}: send fewer",
                _param(files[MAX_FILES]),
            )
        timeout_s = EXTRACT_S / len(files)
        read: list[Message] = []
        for message in messages:
            parts = _parts(message)
            if any(map(_is_file, parts)):
                message = message | {
                    "content": [self._as_text(part, timeout_s, tenant) if _is_file(part) else part for part in parts]
                }
            read.append(message)
        return read

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._pool.close()

    def _as_text(self, part: Any, timeout_s: float, tenant: str) -> Json:
        file, param = part["file"], _param(part)
        name = file.get("filename") or UNNAMED
        try:
            text = self._pool.call(file.get("file_data"), name, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise _unreadable(error.message, param) from error
        except KillableExceeded as error:
            limit = f"{timeout_s:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            raise _unreadable(f"the file takes more than {limit} to read; send its text instead", param) from error
        except EngineFailure as error:
            raise _unreadable("its reader failed; send its text instead", param) from error
        return {"type": "text", "text": f"File: {name}\n{text}"}


def _parts(message: Message) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _param(part: Any) -> str:
    param = part.get("param")
    return param if isinstance(param, str) else "messages"


def _is_file(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "file"


def _unreadable(reason: str, param: str) -> RequestError:
    return _refused(f"cannot be read: {reason}", param)


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, f"{param} {message}", param)
