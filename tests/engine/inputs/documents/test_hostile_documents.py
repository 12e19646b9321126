"""Files that are broken, enormous or made to harm are refused within the limits, and leave nothing behind."""

import base64
import io
import os
import random
import struct
import time
import zipfile
import zlib
from functools import cache
from pathlib import Path

import docx
import pytest

from engine.api import RequestError
from engine.inputs import files
from engine.inputs.files import FileReader
from engine.slow_work import SlowWork
from tests.engine.inputs.documents.document_writing import changed, docx_file, package, pptx_file, saved, xlsx_file
from tests.engine.inputs.pdf_writing import encrypted_pdf, pdf

MIB = 1 << 20
WORDS = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CELLS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
SHEET, DOCUMENT = "xl/worksheets/sheet1.xml", "word/document.xml"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
OFFICE = "application/vnd.openxmlformats-officedocument."
PARAM = "messages.0.content.0.file"


def document_of(body: str, declarations: str = "") -> bytes:
    text = f'<?xml version="1.0"?>{declarations}<w:document {WORDS}><w:body>{body}</w:body></w:document>'
    return changed(docx_file("x"), {DOCUMENT: text})


def sheet_of(rows: str) -> bytes:
    return changed(xlsx_file(["x"]), {SHEET: f"<worksheet {CELLS}><sheetData>{rows}</sheetData></worksheet>"})


def shared_strings(book: bytes, text: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(book)) as read:
        types = read.read("[Content_Types].xml").decode()
    kind = f"{OFFICE}spreadsheetml.sharedStrings+xml"
    entry = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{kind}"/></Types>'
    return changed(book, {"[Content_Types].xml": types.replace("</Types>", entry), "xl/sharedStrings.xml": text})


def with_flag(data: bytes, flag: int) -> bytes:
    """Set a bit of the flags of the first entry, in both of its headers."""
    data = bytearray(data)
    for place in (6, data.index(b"PK\x01\x02") + 8):
        data[place] |= flag
    return bytes(data)


def with_broken_data(data: bytes) -> bytes:
    """Overwrite the beginning of the main part, which is packed."""
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        entry = package.getinfo(DOCUMENT)
    begin = entry.header_offset + 30 + len(entry.filename)
    return data[:begin] + b"\xff" * 16 + data[begin + 16 :]


def with_smaller_sizes(data: bytes) -> bytes:
    """Let the directory say that each entry is ten bytes when unpacked."""
    data, place = bytearray(data), 0
    while (place := data.find(b"PK\x01\x02", place)) >= 0:
        data[place + 24 : place + 28] = struct.pack("<I", 10)
        place += 4
    return bytes(data)


def pdf_with(stream: bytes, extra: str = "") -> bytes:
    whole = pdf("x")
    content = b"BT /F1 12 Tf 72 720 Td (x) Tj ET"
    head = f"<< /Length {len(content)} >>".encode()
    return whole.replace(head, f"<< /Length {len(stream)} {extra} >>".encode()).replace(content, stream)


@cache
def hostile() -> dict[str, tuple[bytes | str, str, str]]:
    """Return the table: what it is, the content (or file_data), the name, and words of the refusal."""
    zeros = b"\0" * (20 * MIB)
    document, book, deck = docx_file("x" * 500), xlsx_file(["x" * 500]), pptx_file("x" * 500)
    deep = "<w:sdt><w:sdtContent>" * 5000 + "</w:sdtContent></w:sdt>" * 5000
    shared = f"<sst {CELLS}><si><t>{'y' * 30_000}</t></si></sst>"
    entity = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    laughing = f'<!DOCTYPE d [<!ENTITY l0 "ha">{LAUGHS}]>'
    wide = f'<?xml version="1.0" encoding="UTF-16"?>{entity}<d>&x;</d>'.encode("utf-16")
    return {
        # Packages.
        "bomb of many parts": (
            changed(document, {f"word/media/{n}.bin": zeros for n in range(4)}),
            "x.docx",
            "67108864 bytes when",
        ),
        "bomb of one part": (changed(document, {"word/theme/theme1.xml": zeros}), "x.docx", "more than 250 times"),
        "bomb in a sheet": (sheet_of(" " * (30 * MIB)), "x.xlsx", "more than 250 times"),
        "sizes that are not true": (with_smaller_sizes(document), "x.docx", "damaged"),
        "too many parts": (changed(document, {f"a/{n}": b"" for n in range(10_001)}), "x.docx", "10000 parts"),
        "archive in an archive": (package({"inner.zip": package({"a": b"x"})}), "x.zip", "ZIP archive"),
        "archive named as a document": (package({"a.txt": b"x"}), "x.docx", "ZIP archive"),
        "empty archive": (package({}), "x.docx", "ZIP archive"),
        "encrypted package": (with_flag(document, 1), "x.docx", "encrypted"),
        "encrypted document": (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99 + "EncryptedPackage".encode("utf-16-le"),
            "x.docx",
            "encrypted",
        ),
        "old document": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, "x.doc", "save it as DOCX"),
        "unknown compression": (document.replace(b"\x08\0", b"\x63\0"), "x.docx", "damaged"),
        "macros in a document": (changed(document, {"word/vbaProject.bin": b"x"}), "x.docm", "macros"),
        "macros in a workbook": (changed(book, {"xl/vbaProject.bin": b"x"}), "x.xlsx", "macros"),
        "binary workbook": (package({"xl/workbook.bin": b"x"}), "x.xlsb", "XLSB"),
        "OpenDocument": (
            package({"mimetype": b"application/vnd.oasis", "META-INF/manifest.xml": b"x"}),
            "x.odt",
            "OpenDocument",
        ),
        "beginning of a package": (b"PK\x03\x04", "x.docx", "damaged"),
        "half a document": (document[: len(document) // 2], "x.docx", "damaged"),
        "half a workbook": (book[: len(book) // 2], "x.xlsx", "damaged"),
        "half a presentation": (deck[: len(deck) // 2], "x.pptx", "damaged"),
        # Their XML.
        "a billion laughs": (
            document_of("<w:p><w:r><w:t>&l9;</w:t></w:r></w:p>", laughing),
            "x.docx",
            "type definition",
        ),
        "an entity from a file": (
            document_of("<w:p><w:r><w:t>&x;</w:t></w:r></w:p>", entity),
            "x.docx",
            "type definition",
        ),
        "an entity in UTF-16": (changed(deck, {"ppt/slides/slide1.xml": wide}), "x.pptx", "type definition"),
        "laughs in shared strings": (shared_strings(book, f"{laughing}<sst>&l9;</sst>"), "x.xlsx", "type definition"),
        "XML that is none": (changed(document, {DOCUMENT: b"\xff\xfe<<<<"}), "x.docx", "damaged"),
        "elements 10,000 deep": (document_of(deep), "x.docx", "damaged"),
        "document without its types": (changed(document, {"[Content_Types].xml": None}), "x.docx", "damaged"),
        "document without its parts": (changed(document, {"_rels/.rels": None}), "x.docx", "damaged"),
        "sheet that is missing": (changed(book, {SHEET: None}), "x.xlsx", "no text"),
        "slide that is missing": (changed(deck, {"ppt/slides/slide1.xml": None}), "x.pptx", "damaged"),
        "document without text": (saved(docx.Document()), "x.docx", "no text"),
        "workbook without text": (xlsx_file([]), "x.xlsx", "no text"),
        "presentation without text": (pptx_file(""), "x.pptx", "no text"),
        "a document of a million characters and more": (
            docx_file(*[random.Random(1).randbytes(300_000).hex()] * 2),
            "x.docx",
            "1000000 characters",
        ),
        "cells that repeat one text": (
            shared_strings(sheet_of('<row><c t="s"><v>0</v></c></row>' * 40), shared),
            "x.xlsx",
            "1000000 characters",
        ),
        "a row beyond the last": (sheet_of('<row r="999999999"><c><v>1</v></c></row>'), "x.xlsx", "1048576 rows"),
        "a cell beyond all columns": (sheet_of('<row r="1"><c r="ZZZZZZZZ1"><v>1</v></c></row>'), "x.xlsx", "damaged"),
        "wide rows": (sheet_of('<row><c r="XFD1"/></row>' * 400), "x.xlsx", "4000000 cells"),
        "a number without an end": (sheet_of(f"<row><c><v>{'9' * 20_000}</v></c></row>"), "x.xlsx", "damaged"),
        "501 slides": (pptx_file(*"x" * 501), "x.pptx", "500 slides, got 501"),
        # PDF.
        "encrypted PDF": (encrypted_pdf("word"), "x.pdf", "encrypted"),
        "PDF with an empty password": (encrypted_pdf(""), "x.pdf", "encrypted"),
        "half a PDF": (pdf("x")[:200], "x.pdf", "damaged"),
        "PDF without text": (pdf("", ""), "x.pdf", "no text"),
        "501 pages": (pdf(*"x" * 501), "x.pdf", "500 pages, got 501"),
        "pages that are their own": (pdf("x").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"), "x.pdf", "PDF file"),
        "bomb in a PDF": (pdf_with(zlib.compress(zeros * 10, 9), "/Filter /FlateDecode"), "x.pdf", "file"),
        "noise in a PDF": (b"%PDF-1.7\n" + bytes(range(256)) * 40, "x.pdf", "damaged"),
        "PDF of a million characters and more": (pdf(*["y" * 2500] * 450), "x.pdf", "1000000 characters"),
        # Text, and what only says that it is.
        "picture named as text": (b"\x89PNG\r\n\x1a\n\0\0", "notes.txt", "PNG image; send it as an image"),
        "photograph": (b"\xff\xd8\xff\xe0" + b"\0" * 99, "x.jpg", "JPEG image"),
        "packed text": (zlib.compress(b"x", wbits=31), "x.txt", "gzip"),
        "RTF": (b"{\\rtf1 x}", "x.rtf", "RTF"),
        "program": (b"\x7fELF" + b"\0" * 99, "x", "program"),
        "text named as PDF": (b"hello", "x.pdf", "says PDF"),
        "text named as a document": (b"hello", "x.DOCX", "says DOCX"),
        "text sent as a workbook": (f"data:{OFFICE}spreadsheetml.sheet;base64,aGVsbG8=", "x", "says XLSX"),
        "text in another encoding": ("größe".encode("latin-1"), "x.txt", "neither UTF-8"),
        "half a UTF-16 text": ("hello".encode("utf-16")[:-1], "x.txt", "neither UTF-8"),
        "text with zeros": (b"a\0b", "x.txt", "neither UTF-8"),
        "a million characters and more": (b"y" * 1_000_001, "x.txt", "1000000 characters"),
        "more bytes than a file may have": (b"y" * (10 * MIB + 1), "x.txt", "10485760 bytes"),
        "no base64": ("!!!!", "x.txt", "base64"),
        "a URL without base64": ("data:text/plain,hello", "x.txt", "data:TYPE;base64"),
        "HTML of declarations": (b"<p>x" + b"<![" * 1000, "x.html", "declaration"),
        "part that cannot be unpacked": (with_broken_data(document), "x.docx", "damaged"),
        "HTML without text": (b"<html><script>x</script>", "x.html", "no text"),
    }


def as_part(content: bytes | str, name: str):
    data = content if isinstance(content, str) else base64.b64encode(content).decode()
    return {"type": "file", "file": {"file_data": data, "filename": name}, "param": PARAM}


def refusal_of(reader: FileReader, case: str) -> RequestError:
    content, name, _ = hostile()[case]
    with pytest.raises(RequestError) as caught:
        reader.read(({"role": "user", "content": [as_part(content, name)]},), "")
    return caught.value


@pytest.fixture(scope="module")
def reader():
    made = FileReader(SlowWork())
    yield made
    made.close()


def children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
        except OSError:
            continue
    return found


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_table_has_all_that_it_must():
    assert len(hostile()) >= 60


@pytest.mark.parametrize("case", hostile())
def test_a_hostile_file_is_refused_by_a_sentence_that_names_it_and_says_what_to_do(reader, case):
    started = time.monotonic()
    error = refusal_of(reader, case)
    assert hostile()[case][2] in error.message
    assert error.param == PARAM
    assert error.message.startswith(f"{PARAM} cannot be read: ")
    assert len(error.message) < 400
    assert not any(word in error.message for word in ("Traceback", " at 0x", "/etc", ".py", "zipfile", "lxml", "pypdf"))
    assert time.monotonic() - started < files.EXTRACT_S + 5


@pytest.mark.slow
def test_memory_and_processes_are_back_where_they_were(reader):
    before = set(children())
    for case in hostile():
        refusal_of(reader, case)
    used = {pid: resident_bytes(pid) for pid in (os.getpid(), *children())}
    for case in hostile():
        refusal_of(reader, case)
    grown = {pid: resident_bytes(pid) - num_bytes for pid, num_bytes in used.items() if Path(f"/proc/{pid}").exists()}
    assert max(grown.values()) < 24 * MIB, grown
    assert len(set(children()) - before) <= 1
    text = reader.read(({"role": "user", "content": [as_part(docx_file("Still here"), "x.docx")]},), "")
    assert text[0]["content"][0]["text"] == "File: x.docx\nStill here"
