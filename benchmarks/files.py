"""Time how long the texts of files take to read, in the child process that requests use.

    python benchmarks/files.py

Each document has close to a million characters, the limit of one, as its own library writes it.
"""

from __future__ import annotations

import base64
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import docx
import openpyxl
import pptx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.inputs.files import MEMORY_BYTES, TARGET
from engine.killable import KillablePool
from tests.engine.inputs.pdf_writing import pdf

WORDS = "lorem ipsum dolor sit amet "
TRIES = 3


def documents() -> Iterator[tuple[str, bytes]]:
    yield "notes.txt", (WORDS * 37_000).encode()
    yield "page.html", b"<p><b>word</b> more <i>words</i><br>" * 60_000
    yield "book.pdf", pdf(*[WORDS * 70] * 500)
    document = docx.Document()
    for _ in range(4000):
        document.add_paragraph(WORDS * 9)
    yield "report.docx", saved(document)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    for number in range(20_000):
        sheet.append([number, f"text {number}", 2.5 * number, "more words here", None, 1])
    yield "table.xlsx", saved(book)
    deck = pptx.Presentation()
    for _ in range(450):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.placeholders[1].text = WORDS * 80
    yield "talk.pptx", saved(deck)


def saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def main() -> None:
    pool = KillablePool(TARGET, 1, MEMORY_BYTES)
    print(f"{'file':12} {'bytes':>10} {'characters':>11} {'first s':>8} {'least s':>8}")
    try:
        pool.call(base64.b64encode(b"x").decode(), "x", timeout_s=60)
        for name, content in documents():
            encoded, seconds = base64.b64encode(content).decode(), []
            for _ in range(TRIES):
                begun = time.perf_counter()
                text = pool.call(encoded, name, timeout_s=120)
                seconds.append(time.perf_counter() - begun)
            print(f"{name:12} {len(content):10} {len(text):11} {seconds[0]:8.2f} {min(seconds):8.2f}")
    finally:
        pool.close()


if __name__ == "__main__":
    main()
