"""UTF-8 text and the text layer of PDF are read; any other file is refused with the reason and the remedy."""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import RequestError
from engine.inputs import file_text
from engine.inputs.file_text import extract
from tests.engine.inputs.pdf_writing import encrypted_pdf, pdf


def encoded(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def refused(file_data, filename="file") -> str:
    with pytest.raises(RequestError) as caught:
        extract(file_data, filename)
    return caught.value.message


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])).filter(
        lambda text: not text.startswith(("\ufeff", "%PDF"))
    )
)
def test_text_is_returned_unchanged(text):
    if text.lstrip().startswith("%PDF-"):
        return
    assert extract(encoded(text), "notes.md") == text
    assert extract("data:text/markdown;charset=utf-8;base64," + encoded(text), "") == text


def test_a_byte_order_mark_is_left_out_and_broken_lines_of_base64_are_joined():
    assert extract(encoded(b"\xef\xbb\xbfa,b\r\n1,2"), "table.csv") == "a,b\r\n1,2"
    assert extract("aGVs\nbG8=\n", "x") == "hello"


@pytest.mark.parametrize("head", ["", "data:application/pdf;base64,", "data:;base64,"])
def test_the_text_layer_of_pdf_is_read_page_by_page(head):
    assert extract(head + encoded(pdf("First page", "Second page")), "report.pdf") == "First page\nSecond page"


@pytest.mark.parametrize(
    ("file_data", "filename", "words"),
    [
        ("!!!!", "x", "must be base64"),
        ("abc", "x", "must be base64"),
        ("data:text/plain,hello", "x", "data:TYPE;base64"),
        ("data:text/plain;charset=utf-8,hello", "x", "data:TYPE;base64"),
        ("data:" + "x" * 5000, "x", "data:TYPE;base64"),
        (encoded(b"\x89PNG\r\n\x1a\n\0\0"), "picture.png", "neither UTF-8 text nor PDF"),
        (encoded("größe".encode("latin-1")), "x.txt", "neither UTF-8 text nor PDF"),
        (encoded(b"PK\x03\x04"), "x.pdf", "damaged"),
        (encoded(pdf("x")[:200]), "x.pdf", "damaged"),
        (encoded(b"%PDF-1.7\n" + b"\xff" * 100), "x", "damaged"),
        (encoded(pdf("")), "scan.pdf", "no text layer"),
        (encoded(encrypted_pdf("word")), "x.pdf", "encrypted"),
        (encoded(encrypted_pdf("")), "x.pdf", "encrypted"),
    ],
    ids=lambda text: text[:16],
)
def test_unreadable_file_is_refused(file_data, filename, words):
    assert words in refused(file_data, filename)


def test_limits_of_bytes_characters_and_pages_are_enforced(monkeypatch):
    monkeypatch.setattr(file_text, "MAX_FILE_BYTES", 2000)
    assert extract(encoded("x" * 2000), "x") == "x" * 2000
    assert "2000 bytes" in refused(encoded("x" * 2001))
    assert "2000 bytes" in refused("data:text/plain;base64," + encoded("x" * 90_000))
    monkeypatch.setattr(file_text, "MAX_TEXT_CHARS", 100)
    assert "100 characters" in refused(encoded("x" * 101))
    assert "100 characters" in refused(encoded(pdf("x" * 60, "x" * 60)))
    monkeypatch.setattr(file_text, "MAX_PAGES", 2)
    assert "2 pages, got 3" in refused(encoded(pdf("a", "b", "c")))


@given(st.binary(max_size=200), st.integers(0, 2000))
def test_damaged_pdf_is_read_or_refused_never_crashes(noise, place):
    whole = pdf("First page", "Second page")
    damaged = whole[:place] + noise + whole[place + len(noise) :]
    with contextlib.suppress(RequestError):
        assert isinstance(extract(encoded(damaged), "x.pdf"), str)
