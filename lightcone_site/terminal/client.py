"""A client of the chat completions API, as far as a terminal needs one."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
from django.db import Error as DatabaseError

from chat.access.chat_projects import default_project
from chat.access.keys import key_create, key_rotate
from chat.access.models import ApiKey

CONNECT_S = 5.0
KEY_NAME, KEY_LIFE = "terminal", timedelta(days=1)


class TerminalError(Exception):
    """A refusal of the server, or no answer from it, as a sentence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer. `is_reasoning`: the model thinks. `finish_reason`: of the last piece."""

    text: str
    is_reasoning: bool = False
    finish_reason: str = ""


class Client:
    """A client of the server at `url`, the root of its API. On this machine no proxy is asked. Raises TerminalError."""

    def __init__(self, url: str, key: str, *, is_local: bool = False) -> None:
        self._url = url
        # An answer may begin after minutes, in a queue or behind a long prompt.
        timeout = httpx2.Timeout(None, connect=CONNECT_S)
        try:
            headers = {"Authorization": f"Bearer {key}"}
            self._http = httpx2.Client(base_url=url, headers=headers, timeout=timeout, trust_env=not is_local)
        except (httpx2.InvalidURL, ImportError, ValueError) as error:
            raise TerminalError(f"{url} cannot be asked: check the URL, the key and the proxies.") from error

    def models(self) -> list[str]:
        """Return the names of the models, the default first. Raises TerminalError."""
        with self._answered("GET", "/v1/models", "application/json") as answer:
            return [model["id"] for model in json.loads(answer.read())["data"]]

    def answer(
        self, model: str, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Generator[Piece, None, None]:
        """Yield the answer to a conversation as it comes; closing the generator stops it. Raises TerminalError."""
        body = parameters | {"model": model, "messages": messages, "stream": True}
        with self._answered("POST", "/v1/chat/completions", "text/event-stream", json=body) as answer:
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    return
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    if "error" in event:
                        raise TerminalError(str(event["error"]["message"]))
                    for choice in event["choices"]:
                        yield from _pieces(choice)
            raise TerminalError("the connection ended before the answer did.")

    @contextmanager
    def _answered(self, method: str, path: str, kind: str, **options: Any) -> Iterator[httpx2.Response]:
        try:
            with self._http.stream(method, path, **options) as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise TerminalError(_message(answer))
                if not answer.headers.get("content-type", "").startswith(kind):
                    raise TerminalError(f"{self._url} is no root of a chat completions API: check the URL.")
                yield answer
        except (ValueError, KeyError, TypeError) as error:
            raise TerminalError(f"{self._url} answers as no chat completions API does: check the URL.") from error
        except httpx2.HTTPError as error:
            raise TerminalError(
                f"{self._url} does not answer ({type(error).__name__}): start it with `make serve`, or name another by "
                "--url."
            ) from error


def _pieces(choice: dict[str, Any]) -> Iterator[Piece]:
    delta = choice.get("delta") or {}
    if thought := delta.get("reasoning_content"):
        yield Piece(thought, is_reasoning=True)
    if text := delta.get("content"):
        yield Piece(text)
    if reason := choice.get("finish_reason"):
        yield Piece("", finish_reason=reason)


def _message(answer: httpx2.Response) -> str:
    text = answer.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {answer.status_code}: {' '.join(text.split())[:200]}"


def installation_key() -> str:
    """Return a new text for this installation's key `terminal`, in its first project; texts before it hold for a day.

    Raises TerminalError if the installation was never started.
    """
    try:
        if not ApiKey.objects.exists():
            raise TerminalError("this installation has no key yet: start it once (`make serve`).")
        project = default_project()
        key = ApiKey.objects.filter(project=project, name=KEY_NAME, deleted_at=None, disabled_at=None).first()
        return key_create(project=project, name=KEY_NAME)[1] if key is None else key_rotate(key=key, overlap=KEY_LIFE)
    except DatabaseError as error:
        raise TerminalError(
            f"the database cannot be used ({error}): start Lightcone once, which prepares it, or give a key by --key."
        ) from error
