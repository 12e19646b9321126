"""Snippets send the very request, whatever stands in it."""

from __future__ import annotations

import base64
import inspect
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.resources.chat.completions import Completions

from chat.api.request.schema import FIELD_NAMES
from chat.playground.code.notation import JAVASCRIPT, JSON, PYTHON
from chat.playground.code.snippets import OPENAI_FIELDS, TZAFON_FIELDS, snippets_make
from tests.chat.playground.code.running import KEY, data_url, node_sent, python_sent, shell_sent, text_of
from tests.contract.clients.environments import PLACE

ROOT = "http://127.0.0.1:8000"
needs_node = [
    pytest.mark.node,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js (apt-get install nodejs)"),
]

NASTY = (
    "quotes ' \" ''' \"\"\" ` $HOME $(id) ${x} \\ \\n \\' %s {x} <!-- */ "
    "\n\r\t\0\x7f\x85\u2028\u2029\u202e é 日本 😀\nJSON\n#!"
)
ASKED: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": NASTY},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{\"zone\": \"a\\nb\"}"}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "__proto__": {"a": 1}}}}
    ],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": NASTY}}},
    "temperature": 0,
    "top_p": 1e-7,
    "top_k": 5,
    "min_p": 0.25,
    "stop": ["'", "\\"],
    "ignore_eos": True,
    "user": None,
}  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [NASTY, "__proto__", "", "JSON"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
requests = st.dictionaries(texts | st.sampled_from(sorted(FIELD_NAMES - {"stream", "n", "tools"})), values, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("snippets")


@given(asked=requests, stream=st.booleans())
def test_python_and_json_give_the_request_back(asked: dict[str, Any], stream: bool) -> None:
    asked = {**asked, "messages": [{"role": "user", "content": NASTY}], "stream": stream}
    snippets = snippets_make(asked, root=ROOT, answer=NASTY)
    assert json.loads(text_of(snippets, "raw")) == asked
    for name in ("python", "tzafon"):
        assert python_sent(text_of(snippets, name))[0] == asked


@settings(max_examples=25)
@given(asked=requests)
def test_the_shell_gives_the_request_back(asked: dict[str, Any], folder: Path) -> None:
    snippets = snippets_make(asked, root=ROOT, answer=NASTY)
    sent, words = shell_sent(text_of(snippets, "curl"), folder)
    assert sent == asked
    assert f"Authorization: Bearer {KEY}" in words
    resumed, words = shell_sent(text_of(snippets, "resume"), folder)
    assert resumed == asked | {"stream": True}
    assert f"{ROOT}/v1/chat/completions/chatcmpl-my-run/events?starting_after=0" in words


@pytest.mark.parametrize("stream", [False, True, None])
def test_whole_requests_come_out_of_every_snippet(stream: bool | None, folder: Path) -> None:
    asked = ASKED if stream is None else ASKED | {"stream": stream}
    snippets = snippets_make(asked, root=ROOT, run_name="run-1", answer=NASTY)
    assert [snippet["name"] for snippet in snippets] == ["curl", "python", "typescript", "raw", "tzafon", "resume"]
    assert shell_sent(text_of(snippets, "curl"), folder)[0] == asked
    request, made = python_sent(text_of(snippets, "python"))
    assert (request, made) == (asked, {"base_url": f"{ROOT}/v1", "api_key": KEY})
    request, made = python_sent(text_of(snippets, "tzafon"))
    assert (request, made) == (asked, {"base_url": ROOT, "api_key": KEY})


@pytest.mark.parametrize("stream", [pytest.param(False, marks=needs_node), pytest.param(True, marks=needs_node)])
def test_typescript_gives_the_request_back(stream: bool, folder: Path) -> None:
    asked = ASKED | {"stream": stream}
    assert node_sent(text_of(snippets_make(asked, root=ROOT, answer=NASTY), "typescript"), folder) == asked


@pytest.mark.parametrize("name", [pytest.param("typescript", marks=needs_node), "curl", "python", "tzafon"])
def test_media_is_read_from_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture, sound = bytes(range(256)) * 8, b"RIFF" * 400
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(picture)}},
        {"type": "image_url", "image_url": {"url": data_url(picture)}},
        {"type": "image_url", "image_url": {"url": data_url(b"small")}},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}},
        {"type": "text", "text": "data:image/png;base64," + "no base64 " * 200},
    ]
    asked = {"model": "tiny", "messages": [{"role": "user", "content": parts}]}
    (tmp_path / "image-1.png").write_bytes(picture)
    (tmp_path / "audio-2.wav").write_bytes(sound)
    text = text_of(snippets_make(asked, root=ROOT), name)
    assert len(text) < 4000
    monkeypatch.chdir(tmp_path)
    sent = {
        "curl": lambda: shell_sent(text, tmp_path)[0],
        "typescript": lambda: node_sent(text, tmp_path),
    }.get(name, lambda: python_sent(text)[0])
    assert sent() == asked


def test_no_secret_and_nothing_invisible_is_in_a_snippet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that turns the direction of writing could hide what a program does."""
    monkeypatch.setenv("LIGHTCONE_API_KEY", KEY)
    for snippet in snippets_make(ASKED, root=ROOT, answer=NASTY):
        assert KEY not in snippet["text"]
        assert "\u202e" not in snippet["text"]
        assert all(c.isprintable() or c == "\n" for c in snippet["text"])


def test_literals_are_laid_out_for_readers() -> None:
    assert PYTHON.write({"a": [1, True, None]}) == '{"a": [1, True, None]}'
    assert JAVASCRIPT.write({"a": 1, "b-c": "é"}) == '{ a: 1, "b-c": "é" }'
    long = ["x" * 60, "y" * 60]
    assert JSON.write(long) == f'[\n  "{long[0]}",\n  "{long[1]}"\n]'


def test_fields_that_the_clients_know_are_those_of_their_present_versions() -> None:
    known = set(inspect.signature(Completions.create).parameters)
    assert known & FIELD_NAMES == OPENAI_FIELDS
    python = PLACE / "tzafon-2.44.1" / "bin" / "python"
    if not python.is_file():
        pytest.skip("tzafon-2.44.1 is not installed (make contract)")
    ask = (
        "import inspect, tzafon.resources.chat as chat;"
        "print(*inspect.signature(chat.ChatResource.create_completion).parameters)"
    )
    said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert set(said.stdout.split()) & FIELD_NAMES == TZAFON_FIELDS
