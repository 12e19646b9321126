"""View code on a served Lightcone: each program, run as it is shown, gives the answer that the page got."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.clients.catalogue import CLIENTS
from tests.contract.clients.environments import Environment
from tests.contract.conftest import browser_of
from tests.contract.test_page_runs import frames, start
from tests.served import ServedLightcone

pytestmark = [pytest.mark.live, pytest.mark.slow]

PLAIN: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Answer 'briefly', in \"one\" line; cost: $5\\n.\nÜber alles 😀."},
        {"role": "user", "content": "What is the capital of France?"},
    ],
    "temperature": 0,
    "seed": 7,
    "max_tokens": 16,
}
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
RESULTS = [
    {"role": "user", "content": "What time is it?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "12 o'clock"},
]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
CASES = {
    "plain": PLAIN,
    "drawn with a seed and fields of this server": PLAIN | {"temperature": 1, "top_k": 20, "ignore_eos": True},
    "tools with results": PLAIN | {"messages": RESULTS, "tools": [TOOL], "tool_choice": "none"},
    "a schema": PLAIN | {"response_format": FORM},
}


@pytest.fixture(scope="module")
def page(invariant_lightcone: ServedLightcone) -> Iterator[httpx.Client]:
    with browser_of(invariant_lightcone) as client:
        yield client


def answer_of_the_page(page: httpx.Client, request: dict[str, Any]) -> tuple[str, str]:
    """Return the run and its text."""
    name = start(page, request)
    *said, (_, end) = frames(page, name)
    assert end["type"] == "completed", end
    return name, "".join(message["text"] for _, message in said if message["type"] == "delta")


def snippet(page: httpx.Client, name: str, **body: Any) -> str:
    made = page.post("/playground/api/code", json=body).raise_for_status().json()["snippets"]
    (found,) = (one for one in made if one["name"] == name)
    assert set(found) == {"name", "title", "language", "text"}
    return str(found["text"])


def environment_of(lightcone: ServedLightcone) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LIGHTCONE_", "OPENAI_"))}
    return inherited | {"LIGHTCONE_API_KEY": lightcone.api_key, "PYTHONIOENCODING": "utf-8"}


def output(command: list[str], lightcone: ServedLightcone, folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment_of(lightcone), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def client_python(name: str) -> str:
    """Return the interpreter of an installed client, or skip."""
    return str(installed(name).folder / "bin" / "python")


def installed(name: str) -> Environment:
    environment = Environment(next(client for client in CLIENTS if client.name == name))
    if not environment.is_ready():
        pytest.skip(environment.missing() or f"{name} is not installed (make contract)")
    return environment


def text_of_body(body: str) -> str:
    """Return the text of an answer, whole or streamed."""
    if body.startswith("{"):
        return str(json.loads(body)["choices"][0]["message"]["content"])
    chunks = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def run(name: str, text: str, lightcone: ServedLightcone, folder: Path) -> str:
    """Run a program as it is shown, and return the text of the answer."""
    match name:
        case "curl":
            return text_of_body(output(["sh", "-eu", "-c", text], lightcone, folder))
        case "raw":
            headers = {"Authorization": f"Bearer {lightcone.api_key}", "Content-Type": "application/json"}
            url = f"{lightcone.api_url}/chat/completions"
            return text_of_body(httpx.post(url, content=text.encode(), headers=headers, timeout=60).text)
        case "typescript":
            shutil.copytree(installed("openai-node").folder / "node_modules", folder / "node_modules")
            (folder / "snippet.mjs").write_text(text)
            return output(["node", "snippet.mjs"], lightcone, folder).removesuffix("\n")
        case _:
            (folder / "snippet.py").write_text(text)
            python = sys.executable if name == "python" else client_python("tzafon-2.44.1")
            return output([python, "snippet.py"], lightcone, folder).removesuffix("\n")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "name", ["curl", "python", "raw", "tzafon", pytest.param("typescript", marks=pytest.mark.node)]
)
def test_a_snippet_answers_as_the_page_did(
    page: httpx.Client, invariant_lightcone: ServedLightcone, name: str, case: str, stream: bool, tmp_path: Path
) -> None:
    request = CASES[case] | {"stream": stream}
    asked, answer = answer_of_the_page(page, request)
    text = snippet(page, name, request=request, run=asked, answer=answer)
    assert invariant_lightcone.api_key not in text
    assert run(name, text, invariant_lightcone, tmp_path) == answer


def test_a_stream_is_resumed_as_shown(page: httpx.Client, invariant_lightcone: ServedLightcone, tmp_path: Path) -> None:
    asked, answer = answer_of_the_page(page, PLAIN)
    said = output(["sh", "-eu", "-c", snippet(page, "resume", request=PLAIN, run=asked)], invariant_lightcone, tmp_path)
    first, _, again = said.partition("data: [DONE]")
    assert text_of_body(first) == text_of_body(again) == answer
    numbers = [int(line[4:]) for line in again.splitlines() if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))
