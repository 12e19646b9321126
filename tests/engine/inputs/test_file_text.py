"""Text and the text layer of PDF are read; files that cannot be are refused with the reason and the remedy.

Office documents, HTML and hostile files are in documents/.
"""

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import RequestError
from engine.inputs.file_text import read
from tests.engine.inputs.pdf_writing import pdf


def encoded(data):
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def extract(file_data, filename):
    (text,) = read(file_data, filename)
    return text


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
    text = extract(head + encoded(pdf("First page", "", "Third page")), "report.pdf")
    assert text == "[Page 1]\nFirst page\n\n[Page 2]\n\n[Page 3]\nThird page"


@pytest.mark.parametrize(
    ("file_data", "filename", "words"),
    [
        ("!!!!", "x", "must be base64"),
        ("abc", "x", "must be base64"),
        ("data:text/plain,hello", "x", "data:TYPE;base64"),
        ("data:text/plain;charset=utf-8,hello", "x", "data:TYPE;base64"),
        ("data:" + "x" * 5000, "x", "data:TYPE;base64"),
    ],
    ids=lambda text: text[:16],
)
def test_unreadable_file_is_refused(file_data, filename, words):
    assert words in refused(file_data, filename)


def test_limits_of_bytes_characters_and_pages_are_enforced():
    assert len(extract(encoded("x" * 1_000_000), "x")) == 1_000_000
    assert "1000000 characters" in refused(encoded("x" * 1_000_001))
    assert "10485760 bytes" in refused(encoded("x" * ((10 << 20) + 1)))
    assert "10485760 bytes" in refused("data:text/plain;base64," + encoded("x" * (11 << 20)))
    assert extract(encoded(pdf(*"x" * 500)), "x").endswith("[Page 500]\nx")
    assert "500 pages, got 501" in refused(encoded(pdf(*"x" * 501)))


def test_utf_16_text_is_known_by_its_byte_order_mark():
    assert extract(encoded("a;ö\n".encode("utf-16")), "table.csv") == "a;ö\n"
    assert extract(encoded("\ufeffa;ö\n".encode("utf-16-be")), "table.csv") == "a;ö\n"


@given(st.binary(max_size=200), st.integers(0, 2000))
def test_damaged_pdf_is_read_or_refused_never_crashes(noise, place):
    whole = pdf("First page", "Second page")
    damaged = whole[:place] + noise + whole[place + len(noise) :]
    with contextlib.suppress(RequestError):
        assert isinstance(extract(encoded(damaged), "x.pdf"), str)
