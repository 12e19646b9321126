"""Run snippets without a server: stand-ins for curl and for the clients catch what they would send."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

KEY = "lc_secret"
CURL = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word" >> words; done
case "$*" in *"--data-binary @-"*) cat > body ;; esac
"""


def text_of(snippets: list[dict[str, str]], name: str) -> str:
    (found,) = (snippet["text"] for snippet in snippets if snippet["name"] == name)
    return found


def shell_sent(text: str, folder: Path) -> tuple[Any, list[str]]:
    """Run a shell snippet in a folder. Return the JSON that curl got, and its arguments."""
    curl = folder / "curl"
    curl.write_text(CURL)
    curl.chmod(0o755)
    (folder / "words").unlink(missing_ok=True)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "LIGHTCONE_API_KEY": KEY}
    subprocess.run(["sh", "-eu", "-c", text], cwd=folder, env=environment, check=True, timeout=60)
    return json.loads((folder / "body").read_bytes()), (folder / "words").read_text().split("\n")[:-1]


class Call:
    """A client whose every method notes its arguments and answers with nothing."""

    def __init__(self, sent: dict[str, Any]) -> None:
        self._sent = sent

    def __call__(self, **arguments: Any) -> Any:
        self._sent.update(arguments)
        return _Nothing()

    def __getattr__(self, name: str) -> Call:
        return self


class _Nothing(SimpleNamespace):
    """An answer without choices, whole or streamed."""

    choices: tuple[Any, ...] = ()

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        return ()

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def iter_lines(self) -> tuple[str, ...]:
        return ()


def python_sent(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a Python snippet in the working directory. Return the request and what its client was made with."""
    sent: dict[str, Any] = {}
    made: dict[str, Any] = {}

    def client(**arguments: Any) -> Call:
        made.update(arguments)
        return Call(sent)

    module = ModuleType("client")
    module.OpenAI = module.Lightcone = client  # type: ignore[attr-defined]  # stands for either module
    with (
        patch.dict(sys.modules, {"openai": module, "tzafon": module}),
        patch.dict(os.environ, {"LIGHTCONE_API_KEY": KEY}),
        redirect_stdout(io.StringIO()),
    ):
        exec(compile(text, "snippet", "exec"), {})  # noqa: S102
    return {**{name: value for name, value in sent.items() if name != "extra_body"}, **sent.get("extra_body", {})}, made


NODE_CLIENT = """
export default class OpenAI {
  chat = { completions: { create: async (request) => {
    console.log(JSON.stringify(request));
    return request.stream ? [] : { choices: [] };
  } } };
}
"""


def node_sent(text: str, folder: Path) -> Any:
    """Run a TypeScript snippet in a folder, without its types. Return the request."""
    package = folder / "node_modules" / "openai"
    package.mkdir(parents=True, exist_ok=True)
    (package / "package.json").write_text('{"name": "openai", "type": "module", "main": "index.js"}')
    (package / "index.js").write_text(NODE_CLIENT)
    (folder / "snippet.mjs").write_text(text)
    done = subprocess.run(["node", "snippet.mjs"], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout.partition("\n")[0])


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
