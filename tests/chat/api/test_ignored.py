"""Ignored fields are named in a header and in the log."""

from __future__ import annotations

import pytest

from chat.api.request.parse import MAX_NAMES
from chat.api.view import MAX_IGNORED_BYTES, ignored_line
from tests.chat.api.anthropic.shapes import post
from tests.chat.api.responses.conftest import respond

HEADER = "x-lightcone-ignored"
HELLO = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_fields_are_named_in_a_header(api, scripted, stream, caplog):
    body = {"messages": HELLO, "stream": stream, "temprature": 0, "é\r\n x": 1, "nothing": None}
    with caplog.at_level("INFO", "chat"):
        response = await api.post("/v1/chat/completions", json=body, headers={"Origin": "https://a.example"})
    assert response.status_code == 200
    assert response.headers[HEADER] == "temprature, %C3%A9%0D%0A%20x"
    assert "passed over temprature, %C3%A9" in caplog.text
    response = await api.post("/v1/chat/completions", json={"messages": HELLO})
    assert HEADER not in response.headers


async def test_a_refusal_names_ignored_fields(api, scripted):
    response = await api.post("/v1/chat/completions", json={"messages": HELLO, "model": "nobody", "temprature": 0})
    assert (response.status_code, response.headers[HEADER]) == (404, "temprature")


async def test_every_dialect_names_ignored_fields(api, scripted):
    assert (await respond(api, temprature=0, store=False)).headers[HEADER] == "temprature"
    assert (await post(api, temprature=0)).headers[HEADER] == "temprature"
    response = await api.post(
        "/v5/chat/completions", json={"model": "m", "messages": HELLO, "inference_extra_params": {"temprature": 0}}
    )
    assert response.headers[HEADER] == "inference_extra_params.temprature"


def test_the_header_of_ignored_fields_is_bounded_ascii():
    assert ignored_line(()) == ""
    assert ignored_line(["tools.0:web_search", "a[b]"]) == "tools.0:web_search, a[b]"
    for name in ("x", "x" * 10_000, "\n" * 10_000, "🙂" * 50, "\ud800"):
        line = ignored_line([name] * MAX_NAMES)
        assert len(line) <= MAX_IGNORED_BYTES
        assert line.isascii()
        assert line.isprintable()
        assert line.endswith(", ...")
