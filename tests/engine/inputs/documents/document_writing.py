"""Office documents as their libraries write them, and packages that no program would write."""

import io
import zipfile

import docx
import openpyxl
import pptx

CONTENT_TYPES = "[Content_Types].xml"


def saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def docx_file(*paragraphs: str) -> bytes:
    document = docx.Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    return saved(document)


def xlsx_file(*rows: list, title: str = "Sheet") -> bytes:
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    return saved(book)


def pptx_file(*texts: str) -> bytes:
    deck = pptx.Presentation()
    for text in texts:
        slide = deck.slides.add_slide(deck.slide_layouts[6])
        box = slide.shapes.add_textbox(0, 0, 100, 100)
        box.text_frame.text = text
    return saved(deck)


def package(parts: dict[str, bytes | str], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return out.getvalue()


def changed(data: bytes, changes: dict[str, bytes | str | None]) -> bytes:
    """Return a package with parts replaced or added; without those that are None."""
    with zipfile.ZipFile(io.BytesIO(data)) as read:
        parts = {name: read.read(name) for name in read.namelist()}
    return package({name: content for name, content in (parts | changes).items() if content is not None})
