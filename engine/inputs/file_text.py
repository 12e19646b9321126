"""The text of one file: UTF-8 text, or the text layer of a PDF. No OCR, no other formats.

The child processes of files.py run this module.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import io
import logging
import re

import pypdf

from engine.api.errors import ErrorCode, RequestError

MAX_FILE_BYTES = 10 << 20
MAX_PAGES = 500
MAX_TEXT_CHARS = 1_000_000
MAX_URL_HEAD_CHARS = 1024
"""The longest head of a data URL: all that precedes its data."""

_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),")


def extract(file_data: str, filename: str) -> str:
    """Return the text of one file. Runs in the child process. Raises RequestError."""
    media_type, data = _decoded(file_data)
    is_pdf = data.lstrip().startswith(b"%PDF-") or "pdf" in media_type or filename.lower().endswith(".pdf")
    text = _pdf_text(data) if is_pdf else _plain_text(data)
    if len(text) > MAX_TEXT_CHARS:
        raise _refused(
            f"the file must have at most {MAX_TEXT_CHARS} characters of text, got {len(text)}; send a part of it"
        )
    return text


def _decoded(file_data: str) -> tuple[str, bytes]:
    """Return the media type (or "") and the bytes of a base64 text or data URL."""
    media_type, encoded = "", file_data
    if file_data[:5].lower() == "data:":
        url = _DATA_URL.match(file_data[:MAX_URL_HEAD_CHARS])
        if url is None or not url.group(2).lower().endswith(";base64"):
            raise _refused("the file's data URL must be of the form data:TYPE;base64,DATA")
        media_type, encoded = url.group(1).lower(), file_data[url.end() :]
    encoded = "".join(encoded.split())
    num_bytes = len(encoded) // 4 * 3
    if num_bytes > MAX_FILE_BYTES + 2:
        raise _too_large(num_bytes)
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise _refused("the file's data must be base64, or a data URL with base64") from None
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(len(data))
    return media_type, data


def _plain_text(data: bytes) -> str:
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise _refused("the file is neither UTF-8 text nor PDF; send it as one of these")
    return text


def _pdf_text(data: bytes) -> str:
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the file
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted:
            raise _refused("the PDF file is encrypted; send it without a password")
        num_pages = len(reader.pages)
        if num_pages > MAX_PAGES:
            raise _refused(f"the PDF file must have at most {MAX_PAGES} pages, got {num_pages}; send a part of it")
        pages: list[str] = []
        num_chars = 0
        for page in reader.pages:
            pages.append(page.extract_text())
            num_chars += len(pages[-1])
            if num_chars > MAX_TEXT_CHARS:
                raise _refused(f"the file must have at most {MAX_TEXT_CHARS} characters of text; send a part of it")
    except (RequestError, MemoryError):
        raise
    except Exception:  # the bytes of a broken file can make the library raise anything
        raise _refused("the PDF file cannot be read; it is damaged, or not PDF") from None
    text = "\n".join(pages)
    if not text.strip():
        raise _refused("the PDF file has no text layer; send its text instead")
    return text.encode("utf-8", "replace").decode("utf-8")


def _refused(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_VALUE, message)


def _too_large(num_bytes: int) -> RequestError:
    return _refused(f"the file must have at most {MAX_FILE_BYTES} bytes, got about {num_bytes}; send a part of it")
