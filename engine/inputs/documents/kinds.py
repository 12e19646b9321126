"""Which format the bytes of a file are in.

The content decides where it says so; the name and the media type are asked about text alone. A name or type that
promises a binary format whose bytes do not follow is refused, as the file was cut, changed or renamed.
"""

from __future__ import annotations

import codecs
from enum import StrEnum

from engine.inputs.documents.limits import refused


class FileKind(StrEnum):
    TEXT = "text"
    HTML = "HTML"
    PDF = "PDF"
    PACKAGE = "package"
    """A ZIP file; packages.py tells which."""


READABLE = "text in UTF-8, HTML, PDF, DOCX, XLSX or PPTX"
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
IMAGE_MAGICS = {
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
}
FOREIGN_MAGICS = {
    b"{\\rtf": "RTF",
    b"\x1f\x8b": "compressed by gzip",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ\0": "compressed by xz",
    b"(\xb5/\xfd": "compressed by Zstandard",
    b"\x7fELF": "a program",
    b"SQLite format 3\0": "a database",
    b"%!PS": "PostScript",
}
PROMISES = {
    "PDF": ((".pdf",), "application/pdf"),
    "DOCX": ((".docx", ".docm", ".dotx"), "application/vnd.openxmlformats-officedocument.wordprocessingml"),
    "XLSX": ((".xlsx", ".xlsm", ".xltx"), "application/vnd.openxmlformats-officedocument.spreadsheetml"),
    "PPTX": ((".pptx", ".pptm", ".potx"), "application/vnd.openxmlformats-officedocument.presentationml"),
}
"""Of formats that are read: the ends of names, and how media types begin."""
HTML_NAMES, HTML_TYPES = (".html", ".htm", ".xhtml"), ("text/html", "application/xhtml+xml")
HTML_BEGINNINGS = ("<!doctype html", "<html")


def kind_of(data: bytes, media_type: str, filename: str) -> FileKind:
    """Return the kind of a file. Raises RequestError for one that cannot be read."""
    begin = data[:1024].lstrip()
    if begin.startswith(b"%PDF-"):
        return FileKind.PDF
    if data.startswith(ZIP_MAGICS):
        return FileKind.PACKAGE
    if data.startswith(OLD_OFFICE):
        raise _old_office(data)
    for magic, word in IMAGE_MAGICS.items():
        if data.startswith(magic):
            raise refused(f"the file is {word}; send it as an image, to a model that sees, or send {READABLE}")
    for magic, word in FOREIGN_MAGICS.items():
        if data.startswith(magic):
            raise refused(f"the file is {word}; send {READABLE}")
    name = filename.lower()
    for kind, (ends, type_begin) in PROMISES.items():
        if name.endswith(ends) or media_type.startswith(type_begin):
            problem = f"its name or type says {kind}, but it is damaged, or not {kind}"
            raise refused(f"{problem}; send it as it was, or under its own name")
    if name.endswith(HTML_NAMES) or media_type in HTML_TYPES:
        return FileKind.HTML
    is_unnamed = "." not in name and media_type in ("", "application/octet-stream")
    if is_unnamed and begin[:32].decode("latin-1").lower().startswith(HTML_BEGINNINGS):
        return FileKind.HTML
    return FileKind.TEXT


def text_of(data: bytes) -> str:
    """Return UTF-8 text, or UTF-16 text with a byte order mark. Raises RequestError."""
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise refused(f"the file is neither UTF-8 text nor a document that can be read; send {READABLE}")
    return text


def _old_office(data: bytes) -> Exception:
    if ENCRYPTED_PACKAGE in data:
        return refused("the document is encrypted; send it without a password")
    return refused("the file is in the binary format of old office programs; save it as DOCX, XLSX, PPTX or PDF")
