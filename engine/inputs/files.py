"""Replaces file parts of messages by parts of text, and of images where a model sees pages of PDF.

A bounded, killable child process (file_text.py) reads each file. Web processes pass file parts on undecoded:
`{"type": "file", "file": {"file_data", "filename", "detail"}, "param"}`, and for a model that does not see, as `seeing`
the names of those that do.
"""

from __future__ import annotations

from typing import Any

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.api.media import MediaLimits
from engine.api.request import MAX_FILES, Json, Message
from engine.killable import KillableExceeded, KillablePool
from engine.slow_work import SlowWork

TARGET = "engine.inputs.file_text:read"
POOL_SIZE = 3
MEMORY_BYTES = 512 << 20
NICENESS = 10
EXTRACT_S = 20.0
"""For all files of a request together; each file has an equal share."""
UNNAMED = "unnamed"
EACH_PAGE = "high"
"""The `detail` of a file whose pages are all seen. With another, those with little text are."""


class FileReader:
    """The reader of the files of requests. Thread-safe."""

    def __init__(self, work: SlowWork, images: MediaLimits | None = None) -> None:
        """`images`: the limits of a model that sees, which pages of PDF are shown to."""
        self._pool = KillablePool(TARGET, POOL_SIZE, MEMORY_BYTES, niceness=NICENESS, work=work)
        self._images = images

    def read(self, messages: tuple[Message, ...], tenant: str) -> list[Message]:
        """Return the messages with every file part replaced by parts of text and images.

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
        timeout_s, num_images = EXTRACT_S / len(files), 0
        read: list[Message] = []
        for message in messages:
            parts = _parts(message)
            if any(map(_is_file, parts)):
                content: list[Json] = []
                for part in parts:
                    made = self._made(part, timeout_s, num_images, tenant) if _is_file(part) else [part]
                    num_images += sum(map(_is_image, made)) if _is_file(part) else 0
                    content += made
                message = message | {"content": content}
            read.append(message)
        return read

    def close(self) -> None:
        """End the child processes. Idempotent."""
        self._pool.close()

    def _made(self, part: Any, timeout_s: float, num_images: int, tenant: str) -> list[Json]:
        """Return the parts of a file. `num_images`: which the request has of files before it."""
        file, param = part["file"], _param(part)
        name = file.get("filename") or UNNAMED
        images = self._page_images(file.get("detail"), num_images)
        try:
            arguments = (file.get("file_data"), name, images, part.get("seeing") or ())
            read = self._pool.call(*arguments, timeout_s=timeout_s, tenant=tenant)
        except RequestError as error:
            raise _unreadable(error.message, param) from error
        except KillableExceeded as error:
            limit = f"{timeout_s:g} s" if error.reason == "time" else f"{MEMORY_BYTES >> 20} MiB"
            raise _unreadable(f"the file takes more than {limit} to read; send its text instead", param) from error
        except EngineFailure as error:
            raise _unreadable("its reader failed; send its text instead", param) from error
        head, *others = read
        parts: list[Any] = [{"type": "text", "text": f"File: {name}\n{head}"}]
        for one in others:
            image = {"type": "image", "data": one, "detail": "auto", "param": param}
            parts.append({"type": "text", "text": one} if isinstance(one, str) else image)
        return parts

    def _page_images(self, detail: Any, num_images: int) -> dict[str, Any] | None:
        """Return how pages of a file become images; None for a model that does not see."""
        if self._images is None:
            return None
        return {
            "is_each": detail == EACH_PAGE,
            "num_left": self._images.max_page_images - num_images,
            "max_pixels": self._images.max_image_pixels,
            "max_side": self._images.max_image_side,
        }


def _parts(message: Message) -> list[Json]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _param(part: Any) -> str:
    param = part.get("param")
    return param if isinstance(param, str) else "messages"


def _is_file(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "file"


def _is_image(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"


def _unreadable(reason: str, param: str) -> RequestError:
    return _refused(f"cannot be read: {reason}", param)


def _refused(message: str, param: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, f"{param} {message}", param)
