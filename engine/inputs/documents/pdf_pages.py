"""PDF, page by page: the text layer, and pages as images for models that see. No OCR."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pypdf

from engine.api.errors import RequestError
from engine.inputs.documents.limits import MAX_PAGES, DocumentText, refused, too_many_pages

if TYPE_CHECKING:
    import pypdfium2

KIND = "PDF"
LITTLE_TEXT = 100
"""Characters beside white space. A page with fewer that shows more than text is an image too."""
MAX_SCALE = 2.0
"""Pixels of a point: 144 of an inch."""
MAX_SIDE = 1568
"""Of the image of a page, in pixels. An A4 page keeps what is written in 8 points."""


@dataclass(frozen=True, slots=True)
class PageImages:
    """How the pages of a file become images. `num_left`: as many as the request may still have."""

    is_each: bool
    """Each page does, not only those with little text."""
    num_left: int
    max_pixels: int
    max_side: int


def pdf_parts(data: bytes, images: PageImages | None, seeing: Sequence[str] = ()) -> list[str | bytes]:
    """Return the text of all pages, each after `[Page N]`, cut where the image of a page (PNG) stands.

    `images`: None for a model that does not see; `seeing` names some that do. Raises RequestError.
    """
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the file
    try:
        texts = list(_texts(data))
        return [_only_text(texts, seeing)] if images is None else _shown(data, texts, images)
    except (RequestError, MemoryError):
        raise
    except Exception:  # the bytes of a broken file can make the libraries raise anything
        raise refused("the PDF file is damaged, or not PDF; save it again") from None


def _texts(data: bytes) -> Iterator[str]:
    """Yield the text of each page."""
    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        raise refused("the PDF file is encrypted; send it without a password")
    num_pages = len(reader.pages)
    if num_pages > MAX_PAGES:
        raise too_many_pages(KIND, "pages", num_pages)
    for page in reader.pages:
        yield page.extract_text().strip("\n")


def _only_text(texts: list[str], seeing: Sequence[str]) -> str:
    if not any(texts):
        names = f", such as {', '.join(seeing)}" if seeing else ""
        raise refused(f"the PDF file has no text; a model that takes images sees its pages{names}, or send their text")
    text = DocumentText()
    for number, found in enumerate(texts, 1):
        _add(text, number, found)
    return text.finish(KIND)


def _shown(data: bytes, texts: list[str], images: PageImages) -> list[str | bytes]:
    """Return texts and images. Pages that show nothing have their mark alone."""
    import pypdfium2  # noqa: PLC0415  # native code, which files for models without eyes never reach

    text, parts = DocumentText(), list[str | bytes]()
    with closing(pypdfium2.PdfDocument(data)) as document:
        document.init_forms()  # what is filled in is seen
        places = [place for place, found in enumerate(texts) if _is_shown(document[place], found, images)]
        if len(places) > images.num_left:
            raise _too_many(len(places), images)
        for place, found in enumerate(texts):
            _add(text, place + 1, found)
            if place in places:
                parts += [text.cut(), _png(document[place], images)]
    if not parts:
        return [text.finish(KIND)]
    return [*parts, rest] if (rest := text.cut()) else parts


def _add(text: DocumentText, number: int, found: str) -> None:
    text.page(f"Page {number}")
    if found:
        text.add(found)


def _is_shown(page: pypdfium2.PdfPage, text: str, images: PageImages) -> bool:
    """Return True for a page that becomes an image."""
    if images.is_each:
        return True
    if len("".join(text.split())) >= LITTLE_TEXT:
        return False
    from pypdfium2.raw import FPDF_PAGEOBJ_TEXT  # noqa: PLC0415

    return any(shown.type != FPDF_PAGEOBJ_TEXT for shown in page.get_objects(max_depth=1))


def _png(page: pypdfium2.PdfPage, images: PageImages) -> bytes:
    """Return the image of a page. One of any size gets the pixels that it may have, one at least."""
    width, height = page.get_size()
    most_side = min(MAX_SIDE, images.max_side)
    most_pixels = 0.97 * images.max_pixels  # sides are rounded up
    scale = min(MAX_SCALE, most_side / max(width, height), (most_pixels / (width * height)) ** 0.5)
    bitmap: Any = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=False)
    file = io.BytesIO()
    bitmap.to_pil().convert("RGB").save(file, "PNG", compress_level=1)
    return file.getvalue()


def _too_many(number: int, images: PageImages) -> RequestError:
    which = "" if images.is_each else "that have no text, or little beside pictures, "
    message = f"{number} pages of the PDF file {which}are to be seen as images, and the request may have"
    remedy = "send fewer pages" if not images.is_each else "send fewer pages, or leave out detail"
    return refused(f"{message} {images.num_left} more; {remedy}")
