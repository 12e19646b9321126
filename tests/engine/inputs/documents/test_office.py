"""DOCX, XLSX and PPTX as their libraries write them are read in the order of the page, with marks."""

import base64
import datetime
import io
import zipfile

import docx
import openpyxl
import pptx
import pytest

from engine.inputs import file_text
from tests.engine.inputs.documents.document_writing import changed, docx_file, pptx_file, saved, xlsx_file

WORDS = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def read(data: bytes, filename: str = "file") -> str:
    (text,) = file_text.read(base64.b64encode(data).decode(), filename)
    return text


def test_headings_paragraphs_lists_and_tables_of_words_are_in_order():
    document = docx.Document()
    document.add_heading("Report", 0)
    document.add_heading("Costs", 2)
    document.add_paragraph("First\tcolumn\nnext line")
    table = document.add_table(2, 2)
    for index, cell in enumerate(cell for row in table.rows for cell in row.cells):
        cell.text = f"c{index}"
    table.cell(1, 0).merge(table.cell(1, 1))
    document.add_paragraph("item", style="List Bullet")
    text = read(saved(document))
    assert text == "# Report\n## Costs\nFirst\tcolumn\nnext line\nc0 | c1\nc2 c3\nitem"


def test_text_in_controls_links_and_insertions_is_read_and_what_was_deleted_is_not():
    body = (
        f"<w:document {WORDS}><w:body><w:sdt><w:sdtContent><w:p><w:r><w:t>In a control</w:t></w:r></w:p></w:sdtContent>"
        "</w:sdt><w:p><w:hyperlink><w:r><w:t>link</w:t></w:r></w:hyperlink><w:ins><w:r><w:t> new</w:t></w:r></w:ins>"
        "<w:del><w:r><w:delText> old</w:delText></w:r></w:del></w:p></w:body></w:document>"
    )
    assert read(changed(docx_file("x"), {"word/document.xml": body})) == "In a control\nlink new"


def test_a_text_box_is_read_once():
    box = "<w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent>"
    body = (
        f'<w:document {WORDS} xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><w:body><w:p><w:r>'
        f"<w:t>around</w:t><mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        "</mc:AlternateContent></w:r></w:p></w:body></w:document>"
    )
    assert read(changed(docx_file("x"), {"word/document.xml": body})) == "around\nboxed"


def test_a_footnote_is_marked_where_it_belongs_and_read_at_the_end():
    notes = (
        f'<w:footnotes {WORDS}><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>'
        '<w:footnote w:id="2"><w:p><w:r><w:t>A source.</w:t></w:r></w:p></w:footnote></w:footnotes>'
    )
    body = (
        f'<w:document {WORDS}><w:body><w:p><w:r><w:t>Said</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>'
        "</w:body></w:document>"
    )
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    relation = f'<Relationship Id="n" Type="{relation}" Target="footnotes.xml"/></Relationships>'
    plain = docx_file("x")
    data = changed(
        plain,
        {
            "word/document.xml": body,
            "word/footnotes.xml": notes,
            "[Content_Types].xml": part_of(plain, "[Content_Types].xml").replace(
                b"</Types>", f'<Override PartName="/word/footnotes.xml" ContentType="{kind}"/></Types>'.encode()
            ),
            "word/_rels/document.xml.rels": part_of(plain, "word/_rels/document.xml.rels").replace(
                b"</Relationships>",
                relation.encode(),
            ),
        },
    )
    assert read(data) == "Said[^2]\n[^2]: A source."


def part_of(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        return package.read(name)


def test_sheets_are_read_as_rows_of_csv_under_their_names():
    book = openpyxl.Workbook()
    book.active.title = "Prices"
    book.active.append(["name", "price, net", None, "ok"])
    book.active.append([])
    book.active.append([datetime.date(2026, 1, 2), 0.1 + 0.2, datetime.datetime(2026, 1, 2, 3, 4), True, None])
    book.create_sheet("Empty")
    book.create_sheet("Notes").append(['say "hi"', 10**15, datetime.time(7, 30), -1.5])
    assert read(saved(book)) == (
        '[Sheet Prices]\nname,"price, net",,ok\n2026-01-02,0.3,2026-01-02 03:04:00,TRUE\n\n[Sheet Empty]\n\n'
        '[Sheet Notes]\n"say ""hi""",1000000000000000,07:30:00,-1.5'
    )


def test_a_formula_counts_as_what_it_came_to():
    data = xlsx_file(["=1+1"])
    sheet = part_of(data, "xl/worksheets/sheet1.xml").replace(b"<v></v>", b"<v>2</v>").replace(b"<v />", b"<v>2</v>")
    assert read(changed(data, {"xl/worksheets/sheet1.xml": sheet})) == "[Sheet Sheet]\n2"


def test_slides_have_numbers_texts_tables_groups_and_notes():
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Plan"
    slide.placeholders[1].text = "one\ntwo"
    slide.notes_slide.notes_text_frame.text = "Speak slowly."
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    table = slide.shapes.add_table(1, 2, 0, 0, 100, 100).table
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    slide.shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "grouped"
    assert read(saved(deck)) == "[Slide 1]\nPlan\none\ntwo\nNotes: Speak slowly.\n\n[Slide 2]\na | b\ngrouped"


@pytest.mark.parametrize("filename", ["", "x", "x.bin", "x.pdf", "x.txt", "x.docx"])
def test_the_content_tells_the_format_whatever_the_name_says(filename):
    assert read(docx_file("Hello"), filename) == "Hello"
    assert read(xlsx_file([1]), filename) == "[Sheet Sheet]\n1"
    assert read(pptx_file("Hello"), filename) == "[Slide 1]\nHello"


def test_the_same_document_has_the_same_text_each_time():
    data = pptx_file("one", "two")
    assert read(data) == read(data)


def test_parts_with_odd_names_are_left_where_they_are():
    assert read(changed(docx_file("Hello"), {"../../outside.txt": "x", "/etc/passwd": "y"})) == "Hello"
