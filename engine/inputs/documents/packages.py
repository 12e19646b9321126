"""Checks of a ZIP package before anything in it is unpacked, and then of the XML in it.

A reader of one entry gets no more bytes than the directory says, so its sizes bound what is unpacked.
"""

from __future__ import annotations

import io
import zipfile

from engine.api.errors import RequestError
from engine.inputs.documents.limits import refused

MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 64 << 20
MAX_RATIO = 250
"""Of bytes unpacked to packed ones, for entries of more than FREE_BYTES. Sheets of equal cells have a hundred."""
FREE_BYTES = 1 << 20
IS_ENCRYPTED = 1
"""The bit of an entry's flags."""
MAIN_PARTS = {"word/document.xml": "DOCX", "xl/workbook.xml": "XLSX", "ppt/presentation.xml": "PPTX"}
MACROS = "vbaProject.bin"
XML_NAMES = (".xml", ".rels", ".vml")
DECLARATIONS = tuple(
    word.encode(code) for word in ("<!DOCTYPE", "<!ENTITY") for code in ("utf-8", "utf-16-le", "utf-16-be")
)


def package_kind(data: bytes) -> str:
    """Return DOCX, XLSX or PPTX. Raises RequestError for any other file, and for one that is not safe to open."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as package:
            entries = package.infolist()
            kind = _kind(package, entries)
            _check_sizes(entries)
            for entry in entries:
                if entry.filename.lower().endswith(XML_NAMES):
                    _check_xml(package.read(entry))
    except (RequestError, MemoryError):
        raise
    except Exception:  # the bytes of a broken package can make zipfile and zlib raise anything
        raise refused("the file is a damaged ZIP package; send it as it was saved") from None
    return kind


def _kind(package: zipfile.ZipFile, entries: list[zipfile.ZipInfo]) -> str:
    if len(entries) > MAX_ENTRIES:
        raise refused(f"the file must have at most {MAX_ENTRIES} parts, got {len(entries)}; send its text instead")
    names = {entry.filename for entry in entries}
    if any(entry.flag_bits & IS_ENCRYPTED for entry in entries):
        raise refused("the file is encrypted; send it without a password")
    if any(name.rpartition("/")[2] == MACROS for name in names):
        raise refused("the document has macros; save it without them, as DOCX, XLSX or PPTX")
    kind = next((kind for part, kind in MAIN_PARTS.items() if part in names), None)
    if kind is not None:
        return kind
    if "xl/workbook.bin" in names:
        raise refused("the workbook is in the binary format XLSB; save it as XLSX")
    if "mimetype" in names and "META-INF/manifest.xml" in names:
        raise refused("the file is an OpenDocument; save it as DOCX, XLSX, PPTX or PDF")
    raise refused("the file is a ZIP archive, or a damaged document; send the files in it one by one")


def _check_sizes(entries: list[zipfile.ZipInfo]) -> None:
    num_bytes = sum(entry.file_size for entry in entries)
    if num_bytes > MAX_UNPACKED_BYTES:
        raise refused(
            f"the file must have at most {MAX_UNPACKED_BYTES} bytes when it is unpacked, got {num_bytes}; "
            "send a part of it, or its text"
        )
    for entry in entries:
        if entry.file_size > FREE_BYTES and entry.file_size > MAX_RATIO * entry.compress_size:
            raise refused(
                f"the file has a part that is packed more than {MAX_RATIO} times smaller than it is; "
                "send a part of it, or its text"
            )


def _check_xml(text: bytes) -> None:
    """Refuse declarations, which the format forbids: with them a short text can stand for an endless one."""
    if any(word in text for word in DECLARATIONS):
        raise refused("the file has a document type definition in its XML, which is not allowed; save it again")
