"""A signed-in user of the playground, and short ways to send JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.people import member

API = "/playground/api/"


class Page:
    """The page of one user: each call returns the status and the JSON of the answer."""

    def __init__(self, user: User | None = None, **options: Any) -> None:
        self.client = Client(**options)
        self.user = user
        if user is not None:
            self.client.force_login(user)

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        response = self.client.generic(
            method, API + path, "" if body is None else _json(body), content_type="application/json", **options
        )
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status_code, response.json() if is_json else response.content.decode()

    def ask(self, chat: str, turn: str, text: str, parent: str = "") -> Any:
        """Save a question that has been asked."""
        body = {"parent": parent, "role": "user", "state": "ended", "content": text}
        status, saved = self("PUT", f"conversations/{chat}/turns/{turn}", body)
        assert status == 200, saved
        return saved

    def open(self, chat: str, **fields: Any) -> Any:
        status, made = self("PUT", f"conversations/{chat}", fields)
        assert status == 200, made
        return made

    def read(self, chat: str) -> Any:
        status, found = self("GET", f"conversations/{chat}")
        assert status == 200, found
        return found

    def found(self, query: str, **options: Any) -> list[tuple[str, str | None]]:
        """Return the conversations and turns with all words of a query."""
        status, answer = self("GET", "search", QUERY_STRING=f"q={query}", **options)
        assert status == 200, answer
        return [(hit["conversation"]["id"], hit["turn"]) for hit in answer["data"]]


def _json(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


@pytest.fixture
def page_of(db: None, django_user_model: Any) -> Callable[..., Page]:
    return lambda name, **fields: Page(member(name, **fields))


@pytest.fixture
def ann(page_of: Callable[..., Page]) -> Page:
    return page_of("ann")


@pytest.fixture
def bob(page_of: Callable[..., Page]) -> Page:
    return page_of("bob")
