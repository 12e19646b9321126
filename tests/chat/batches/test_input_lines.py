"""Lines of input files: any split gives the same lines, and invalid ones are reported by number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.batches.input_lines import InputCheck, LineRefused, LineSplitter, line_read

ENDPOINT = "/v1/chat/completions"


def line(number: int = 1, **fields: Any) -> bytes:
    value = {
        "custom_id": f"r{number}",
        "method": "POST",
        "url": ENDPOINT,
        "body": {"model": "m", "messages": []},
        **fields,
    }
    return json.dumps({name: part for name, part in value.items() if part != "absent"}).encode()


def input_check(pieces: list[bytes], endpoint: str) -> InputCheck:
    check = InputCheck(endpoint)
    for piece in pieces:
        check.feed(piece)
    check.flush()
    return check


def split(pieces: list[bytes], max_bytes: int = 100) -> list[tuple[int, bytes]]:
    splitter = LineSplitter(max_bytes)
    return [found for piece in pieces for found in splitter.feed(piece)] + splitter.flush()


@given(content=st.binary(max_size=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_any_split_gives_the_same_lines(content: bytes, cuts: list[int]) -> None:
    content = content.replace(b"a", b"\n").replace(b"b", b"\r\n")
    ends = sorted(cuts)
    pieces = [content[start:end] for start, end in zip([0, *ends], [*ends, len(content)], strict=True)]
    assert split(pieces) == split([content])
    numbered = [(number, text) for number, text in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1)]
    assert split(pieces) == [
        (number, text.removesuffix(b"\r")) for number, text in numbered if text.removesuffix(b"\r").strip()
    ]


def test_an_overlong_line_is_truncated_and_later_ones_complete() -> None:
    assert split([b"x" * 250, b"x" * 250 + b"\nab\n"]) == [(1, b"x" * 101), (2, b"ab")]


def test_blank_lines_and_a_byte_order_mark_are_skipped() -> None:
    report = input_check([b"\xef\xbb\xbf" + line(1) + b"\r\n\n  \n" + line(2)], ENDPOINT)
    assert (report.num_lines, report.errors, report.model) == (2, [], "m")


def test_the_model_is_reported_if_all_lines_agree() -> None:
    assert input_check([line(1) + b"\n" + line(2, body={"model": "other"})], ENDPOINT).model == ""


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (b'{"a": NaN}', "invalid_json_line", None),
        (b"\xff", "invalid_json_line", None),
        (b"[" * 100_000, "invalid_json_line", None),
        (line(custom_id="absent"), "invalid_custom_id", "custom_id"),
        (line(custom_id=""), "invalid_custom_id", "custom_id"),
        (line(custom_id=7), "invalid_custom_id", "custom_id"),
        (line(custom_id="x" * 513), "invalid_custom_id", "custom_id"),
        (line(custom_id="a\0b"), "invalid_custom_id", "custom_id"),
        (line(method="GET"), "invalid_method", "method"),
        (line(method="absent"), "invalid_method", "method"),
        (line(url="/v1/embeddings"), "mismatched_endpoint", "url"),
        (line(url="https://example.org/v1/chat/completions"), "mismatched_endpoint", "url"),
        (line(body="absent"), "invalid_body", "body"),
        (line(body=[1]), "invalid_body", "body"),
        (line(body={"stream": True}), "invalid_body", "body.stream"),
        (line(body={"stream": "yes"}), "invalid_body", "body.stream"),
        (line(body={"background": True}), "invalid_body", "body.background"),
    ],
)
def test_an_invalid_line_is_refused_by_name(text: bytes, code: str, param: str | None) -> None:
    with pytest.raises(LineRefused) as refusal:
        line_read(1, text, ENDPOINT)
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert len(refusal.value.message) < 1000


def test_a_line_above_the_limit_of_bodies_is_refused(settings: Any) -> None:
    with pytest.raises(LineRefused, match="longer than the limit"):
        line_read(1, b" " * (settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes + 1), ENDPOINT)


def test_errors_have_their_line_numbers() -> None:
    report = input_check([line(1) + b"\n\nx\n" + line(1) + b"\n"], ENDPOINT)
    assert [(error["line"], error["code"]) for error in report.errors] == [
        (3, "invalid_json_line"),
        (4, "duplicate_custom_id"),
    ]
    assert "line 1" in report.errors[1]["message"]


def test_an_empty_file_is_an_error_of_its_own() -> None:
    for content in ([], [b""], [b"\n\n"]):
        assert [error["code"] for error in input_check(content, ENDPOINT).errors] == ["empty_file"]


def test_too_many_lines_are_refused_without_reading_on(settings: Any) -> None:
    settings.LIGHTCONE_MAX_BATCH_LINES = 3
    report = input_check([line(number) + b"\n" for number in range(100)], ENDPOINT)
    assert [error["code"] for error in report.errors] == ["too_many_tasks"]
    assert report.num_lines == 4


def test_listed_errors_are_limited() -> None:
    report = input_check([b"x\n"] * 1000, ENDPOINT)
    assert len(report.errors) == 50
    assert report.num_lines == 50
