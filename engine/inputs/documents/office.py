"""The texts of office documents, by python-docx, openpyxl and python-pptx. packages.py has checked the package.

None of them runs macros, computes formulas or follows links. What they raise for a broken file can be anything.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from engine.api.errors import RequestError
from engine.inputs.documents.limits import MAX_PAGES, DocumentText, refused, too_many_pages

MAX_ROWS = 1_048_576
"""Rows of a sheet, as Excel has them, and of all sheets together."""
MAX_CELLS = 4_000_000
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
NOTES = {"/word/footnotes.xml": f"{WORD}footnote", "/word/endnotes.xml": f"{WORD}endnote"}
NOTE_MARKS = {f"{WORD}footnoteReference": "", f"{WORD}endnoteReference": "e"}
SILENT = (f"{WORD}pPr", f"{WORD}rPr", f"{WORD}txbxContent", FALLBACK)
HEADING = "heading "


def office_text(kind: str, data: bytes) -> str:
    """Return the text of a document of `kind` DOCX, XLSX or PPTX. Raises RequestError."""
    readers: dict[str, Callable[[bytes, DocumentText], None]] = {
        "DOCX": _read_words,
        "XLSX": _read_sheets,
        "PPTX": _read_slides,
    }
    text = DocumentText()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they quote the file
            readers[kind](data, text)
    except (RequestError, MemoryError):
        raise
    except Exception:
        raise refused(f"the {kind} file is damaged, or not {kind}; save it again") from None
    return text.finish(kind)


# Documents of words. They have no pages before a program lays them out.


def _read_words(data: bytes, text: DocumentText) -> None:
    import docx
    from docx.oxml.parser import parse_xml

    document = docx.Document(io.BytesIO(data))
    levels = {style.style_id: _level(style.name) for style in document.styles}
    for line in _lines(document.element.body, levels):
        text.add(line)
    for part in document.part.package.iter_parts():
        tag = NOTES.get(str(part.partname))
        if tag is None:
            continue
        letter = "e" if tag.endswith("endnote") else ""
        for note in parse_xml(part.blob).iter(tag):
            if note.get(f"{WORD}type") is None:  # others are rules between notes and text
                words = " ".join(_lines(note, {})).strip()
                text.add(f"[^{letter}{note.get(f'{WORD}id')}]: {words}")


def _level(name: str | None) -> int:
    """Return the level of a heading by the name of its style, 0 for others."""
    number = (name or "").lower().removeprefix(HEADING)
    return int(number) if number in "123456789" and number else int((name or "").lower() == "title")


def _lines(element: Any, levels: dict[str, int]) -> Iterator[str]:
    """Yield the paragraphs and rows of tables below an element, in order."""
    for child in element:
        if child.tag == f"{WORD}p":
            words = "".join(_words(child))
            yield "#" * _heading(child, levels) + " " + words if words and _heading(child, levels) else words
            yield from _boxes(child, levels)
        elif child.tag == f"{WORD}tbl":
            yield from _rows(child, levels)
        elif child.tag != FALLBACK and isinstance(child.tag, str):
            yield from _lines(child, levels)


def _rows(table: Any, levels: dict[str, int]) -> Iterator[str]:
    for row in table.iter(f"{WORD}tr"):
        if next(row.iterancestors(f"{WORD}tbl")) is table:
            cells = (cell for cell in row.iter(f"{WORD}tc") if next(cell.iterancestors(f"{WORD}tr")) is row)
            yield " | ".join(" ".join(_lines(cell, levels)).strip() for cell in cells)


def _heading(paragraph: Any, levels: dict[str, int]) -> int:
    style = paragraph.find(f"{WORD}pPr/{WORD}pStyle")
    return levels.get(style.get(f"{WORD}val"), 0) if style is not None else 0


def _words(element: Any) -> Iterator[str]:
    """Yield the text of a paragraph without that of boxes anchored in it."""
    for child in element:
        if child.tag == f"{WORD}t":
            yield child.text or ""
        elif child.tag == f"{WORD}tab":
            yield "\t"
        elif child.tag in (f"{WORD}br", f"{WORD}cr"):
            yield "\n"
        elif child.tag == f"{WORD}noBreakHyphen":
            yield "-"
        elif child.tag in NOTE_MARKS:
            yield f"[^{NOTE_MARKS[child.tag]}{child.get(f'{WORD}id')}]"
        elif child.tag not in (f"{WORD}pPr", f"{WORD}rPr", f"{WORD}txbxContent", FALLBACK) and isinstance(
            child.tag, str
        ):
            yield from _words(child)


def _boxes(element: Any, levels: dict[str, int]) -> Iterator[str]:
    for box in element.iter(f"{WORD}txbxContent"):
        above = {ancestor.tag for ancestor in box.iterancestors() if ancestor is not element}
        if next(box.iterancestors(f"{WORD}p")) is element and FALLBACK not in above:
            yield from _lines(box, levels)


# Workbooks.


def _read_sheets(data: bytes, text: DocumentText) -> None:
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    sheets = book.worksheets
    if len(sheets) > MAX_PAGES:
        raise too_many_pages("XLSX", "sheets", len(sheets))
    num_rows, num_cells = 0, 0
    for sheet in sheets:
        sheet.reset_dimensions()  # the file's own word for them may be anything
        text.page(f"Sheet {sheet.title}")
        for row in sheet.iter_rows(values_only=True):
            num_rows, num_cells = num_rows + 1, num_cells + len(row)
            if num_rows > MAX_ROWS or num_cells > MAX_CELLS:
                message = f"the XLSX file must have at most {MAX_ROWS} rows and {MAX_CELLS} cells; send a part of it"
                raise refused(message)
            cells = [_cell(value) for value in row]
            while cells and not cells[-1]:
                cells.pop()
            if cells:
                text.add(_csv_line(cells))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, float | timedelta):
        return f"{value:.15g}" if isinstance(value, float) else str(value)
    return str(value)


def _csv_line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()


# Presentations.


def _read_slides(data: bytes, text: DocumentText) -> None:
    import pptx

    slides = pptx.Presentation(io.BytesIO(data)).slides
    if len(slides) > MAX_PAGES:
        raise too_many_pages("PPTX", "slides", len(slides))
    for number, slide in enumerate(slides, 1):
        text.page(f"Slide {number}")
        for line in _shapes(slide.shapes):
            text.add(line)
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None and notes.text.strip():
            text.add(f"Notes: {_plain(notes.text)}")


def _shapes(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        elif shape.has_text_frame:
            if shape.text_frame.text.strip():
                yield _plain(shape.text_frame.text)
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield " | ".join(_plain(cell.text) for cell in row.cells)


def _plain(text: str) -> str:
    return text.replace("\v", "\n")
