"""The text of one file, and images of its pages: its bytes, the format that they are in, and the reader of that format.

The child processes of files.py run this module.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any

from engine.api.request import MAX_FILE_CHARS
from engine.inputs.documents.kinds import FileKind, kind_of, text_of
from engine.inputs.documents.limits import MAX_FILE_BYTES, refused, too_large, too_long
from engine.inputs.documents.office import office_text
from engine.inputs.documents.packages import package_kind
from engine.inputs.documents.pdf_pages import PageImages, pdf_parts
from engine.inputs.documents.web_page import web_page_text

MAX_URL_HEAD_CHARS = 1024
"""The longest head of a data URL: all that precedes its data."""

_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),")


def read(
    file_data: str, filename: str, images: dict[str, Any] | None = None, seeing: Sequence[str] = ()
) -> list[str | bytes]:
    """Return the text of one file, with images of pages (PNG) where they stand in it. The first is text.

    `images`: how pages become images (PageImages), for a model that sees; for another one, `seeing` names some that do.
    Runs in the child process. Raises RequestError.
    """
    media_type, data = _decoded(file_data)
    kind = kind_of(data, media_type, filename)
    parts: list[str | bytes]
    if kind is FileKind.PDF:
        parts = pdf_parts(data, None if images is None else PageImages(**images), seeing)
    elif kind is FileKind.PACKAGE:
        parts = [office_text(package_kind(data), data)]
    elif kind is FileKind.HTML:
        parts = [web_page_text(text_of(data))]
    else:
        parts = [text_of(data)]
    if sum(len(part) for part in parts if isinstance(part, str)) > MAX_FILE_CHARS:
        raise too_long()
    return [part.encode("utf-8", "replace").decode("utf-8") if isinstance(part, str) else part for part in parts]


def _decoded(file_data: str) -> tuple[str, bytes]:
    """Return the media type (or "") and the bytes of a base64 text or data URL."""
    media_type, encoded = "", file_data
    if file_data[:5].lower() == "data:":
        url = _DATA_URL.match(file_data[:MAX_URL_HEAD_CHARS])
        if url is None or not url.group(2).lower().endswith(";base64"):
            raise refused("the file's data URL must be of the form data:TYPE;base64,DATA")
        media_type, encoded = url.group(1).lower(), file_data[url.end() :]
    encoded = "".join(encoded.split())
    num_bytes = len(encoded) // 4 * 3
    if num_bytes > MAX_FILE_BYTES + 2:
        raise too_large(num_bytes)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise refused("the file's data must be base64, or a data URL with base64") from None
    if len(data) > MAX_FILE_BYTES:
        raise too_large(len(data))
    return media_type, data
