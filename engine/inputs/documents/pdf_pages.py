"""The text layer of PDF, page by page. No OCR."""

from __future__ import annotations

import io
import logging

import pypdf

from engine.api.errors import RequestError
from engine.inputs.documents.limits import MAX_PAGES, DocumentText, refused, too_many_pages

KIND = "PDF"


def pdf_text(data: bytes) -> str:
    """Return the text of all pages, each after `[Page N]`. Raises RequestError."""
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the file
    text = DocumentText()
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted:
            raise refused("the PDF file is encrypted; send it without a password")
        num_pages = len(reader.pages)
        if num_pages > MAX_PAGES:
            raise too_many_pages(KIND, "pages", num_pages)
        for number, page in enumerate(reader.pages, 1):
            text.page(f"Page {number}")
            if found := page.extract_text().strip("\n"):
                text.add(found)
    except (RequestError, MemoryError):
        raise
    except Exception:  # the bytes of a broken file can make the library raise anything
        raise refused("the PDF file is damaged, or not PDF; save it again") from None
    return text.finish(KIND)
