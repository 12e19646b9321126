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
from django.utils import timezone

from chat.access.accounts import default_project
from chat.access.keys import key_create, key_delete

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
    """A client of the server at `url`, the root of its API."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # An answer may begin after minutes, in a queue or behind a long prompt.
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=httpx2.Timeout(None, connect=CONNECT_S))

    def models(self) -> list[str]:
        """Return the names of the models, the default first. Raises TerminalError."""
        with self._answered("GET", "/v1/models") as answer:
            return [model["id"] for model in json.loads(answer.read())["data"]]

    def answer(
        self, model: str, messages: list[dict[str, str]], parameters: dict[str, Any]
    ) -> Generator[Piece, None, None]:
        """Yield the answer to a conversation as it comes; closing the generator stops it. Raises TerminalError."""
        body = parameters | {"model": model, "messages": messages, "stream": True}
        with self._answered("POST", "/v1/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line.removeprefix("data: "))
                if error := event.get("error"):
                    raise TerminalError(error["message"])
                for choice in event["choices"]:
                    yield from _pieces(choice)

    @contextmanager
    def _answered(self, method: str, path: str, **options: Any) -> Iterator[httpx2.Response]:
        try:
            with self._http.stream(method, path, **options) as answer:
                if answer.status_code >= 400:
                    raise TerminalError(_message(answer))
                yield answer
        except httpx2.HTTPError as error:
            url = self._http.base_url
            raise TerminalError(
                f"{url} does not answer ({error}): start it with `make serve`, or name it by --url."
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


@contextmanager
def key_of_installation(given: str) -> Iterator[str]:
    """Yield the key that was given, else one of this installation's first project, which is deleted at the end.

    Raises TerminalError if the database cannot be used.
    """
    if given:
        yield given
        return
    try:
        key, raw = key_create(project=default_project(), name=KEY_NAME, expires_at=timezone.now() + KEY_LIFE)
    except DatabaseError as error:
        raise TerminalError(
            f"the database cannot be used ({error}): start Lightcone once, which prepares it, or give a key by --key."
        ) from error
    try:
        yield raw
    finally:
        key_delete(key=key)
