"""The route of View code: the address that the browser used, and a model for clients that need one."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from chat.catalog.services import model_register
from chat.models import Project
from tests.chat.playground.code.running import python_sent, text_of
from tests.people import member

pytestmark = pytest.mark.django_db

ASK = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


@pytest.fixture
def page(project: Project) -> Client:
    client = Client()
    client.force_login(member("ada"))
    return client


def post(page: Client, body: Any, **options: Any) -> Any:
    return page.post("/playground/api/code", body, content_type="application/json", **options)


@pytest.mark.parametrize(
    ("options", "has_tls", "root"),
    [
        ({"HTTP_HOST": "localhost:8123"}, False, "http://localhost:8123"),
        ({"HTTP_HOST": "localhost", "HTTP_X_FORWARDED_PROTO": "https"}, True, "https://localhost"),
        ({"HTTP_HOST": "localhost", "HTTP_X_FORWARDED_PROTO": "https"}, False, "http://localhost"),
    ],
)
def test_the_address_is_the_one_that_the_browser_used(
    page: Client, settings: Any, options: dict[str, str], has_tls: bool, root: str
) -> None:
    """Only behind TLS (LIGHTCONE_TLS=1) is a proxy believed."""
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if has_tls else None
    snippets = post(page, {"request": ASK}, **options).json()["snippets"]
    assert python_sent(text_of(snippets, "python"))[1]["base_url"] == f"{root}/v1"


def test_a_model_that_is_left_out_is_the_default(page: Client) -> None:
    model_register(name="tiny", path="/models/tiny")
    snippets = post(page, {"request": ASK}).json()["snippets"]
    assert python_sent(text_of(snippets, "python"))[0] == ASK | {"model": "tiny"}
    snippets = post(page, {"request": ASK | {"model": "mine"}}).json()["snippets"]
    assert python_sent(text_of(snippets, "python"))[0] == ASK | {"model": "mine"}


def test_the_answer_and_its_run_stand_below_the_code(page: Client) -> None:
    snippets = post(page, {"request": ASK, "run": "r-1", "answer": "two\nlines"}).json()["snippets"]
    assert text_of(snippets, "python").endswith("\n\n# The answer of the run r-1:\n# two\n# lines\n")
    assert text_of(snippets, "typescript").endswith("\n\n// The answer of the run r-1:\n// two\n// lines\n")
    assert "chatcmpl-r-1/events" in text_of(snippets, "resume")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "request"),
        ({"request": []}, "invalid_type", "request"),
        ({"request": ASK, "run": "a b"}, "invalid_value", "run"),
        ({"request": ASK, "key": "x"}, "unsupported_parameter", "key"),
    ],
)
def test_bad_bodies_are_refused_by_the_field(page: Client, body: Any, code: str, param: str) -> None:
    error = post(page, body).json()["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_only_users_of_the_playground_get_code(project: Project) -> None:
    assert post(Client(), {"request": ASK}).status_code == 401
