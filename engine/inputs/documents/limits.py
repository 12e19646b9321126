"""The limits of a document, and its text as it is gathered within them."""

from __future__ import annotations

from engine.api.errors import ErrorCode, RequestError
from engine.api.request import MAX_FILE_CHARS

MAX_FILE_BYTES = 10 << 20
MAX_PAGES = 500
"""Of a PDF file; also the sheets of a workbook and the slides of a presentation."""


class DocumentText:
    """The text of a document so far."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._num_chars = 0
        self._has_text = False

    def add(self, line: str) -> None:
        """Add a line. Raises RequestError beyond the limit of characters."""
        if line.strip():
            self._has_text = True
        self._append(line)

    def page(self, mark: str) -> None:
        """Begin a page, slide or sheet: an empty line and `[mark]`."""
        if self._num_chars:
            self._append("")
        self._append(f"[{mark}]")

    def cut(self) -> str:
        """Return the text since the last cut, which an image follows."""
        text = "\n".join(self._pieces)
        self._pieces.clear()
        return text

    def finish(self, kind: str) -> str:
        """Return the whole text. Raises RequestError if there are marks and white space alone."""
        if not self._has_text:
            raise refused(f"the {kind} file has no text; if it shows pictures of text, send that text instead")
        return "\n".join(self._pieces)

    def _append(self, line: str) -> None:
        self._num_chars += len(line) + 1
        if self._num_chars > MAX_FILE_CHARS:
            raise too_long()
        self._pieces.append(line)


def refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)


def too_long() -> RequestError:
    return refused(f"the file must have at most {MAX_FILE_CHARS} characters of text; send a part of it")


def too_large(num_bytes: int) -> RequestError:
    return refused(f"the file must have at most {MAX_FILE_BYTES} bytes, got about {num_bytes}; send a part of it")


def too_many_pages(kind: str, pages: str, number: int) -> RequestError:
    return refused(f"the {kind} file must have at most {MAX_PAGES} {pages}, got {number}; send a part of it")
