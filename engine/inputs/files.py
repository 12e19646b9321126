"""File parts of messages become text parts. What is in a file is read by file_text.py, in a process that is bounded and killable.

Web processes pass file parts on as they come (`{"type": "file", "file": {"file_data", "filename"}, "param"}`); nothing in them has been
decoded before.
"""

from __future__ import annotations

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.api.request import Message
from engine.api.tools import Json
from engine.trial import TrialExceeded, TrialPool

TARGET = "engine.inputs.file_text:extract"
POOL_SIZE = 2
MEMORY_BYTES = 512 << 20
EXTRACT_S = 10.0
"""For one file."""
MAX_FILES = 8
UNNAMED = "unnamed"


class FileReader:
    """Puts the text of files in the place of their parts. Thread-safe."""

    def __init__(self) -> None:
        self._pool = TrialPool(TARGET, POOL_SIZE, MEMORY_BYTES)

    def read(self, messages: tuple[Message, ...]) -> list[Message]:
        """The messages with every file part as a text part. Raises RequestError that names the part."""
        num_files = 0
        read: list[Message] = []
        for message in messages:
            content = message.get("content")
            if not isinstance(content, list) or not any(_is_file(part) for part in content):
                read.append(message)
                continue
            parts: list[Json] = []
            for part in content:
                if isinstance(part, dict) and _is_file(part):
                    num_files += 1
                    parts.append({"type": "text", "text": self._text(part, num_files)})
                else:
                    parts.append(part)
            read.append(message | {"content": parts})
        return read

    def close(self) -> None:
        """Idempotent."""
        self._pool.close()

    def _text(self, part: dict[str, Json], number: int) -> str:
        file, param = part.get("file"), part.get("param")
        param = param if isinstance(param, str) else "messages"
        if number > MAX_FILES:
            raise _refused(f"the messages must have at most {MAX_FILES} files", param)
        assert isinstance(file, dict)
        name = file.get("filename") or UNNAMED
        try:
            text = self._pool.call(file.get("file_data"), name, timeout_s=EXTRACT_S)
        except RequestError as error:
            raise _refused(error.message, param) from error
        except TrialExceeded as error:
            limit = f"{EXTRACT_S:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            raise _refused(f"the file takes more than {limit} to read; send its text instead", param) from error
        except EngineFailure as error:
            raise _refused("the file cannot be read; send its text instead", param) from error
        return f"File: {name}\n{text}"


def _is_file(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "file"


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message, param)
