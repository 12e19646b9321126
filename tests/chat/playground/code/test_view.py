"""The route of View code: the address that the browser used, and a model for clients that need one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from chat.catalog.services import model_register
from chat.conversations.files import file_put
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


def test_files_of_the_chat_are_read_from_files_and_whole_in_the_json(page: Client) -> None:
    """`attachment:ID` means nothing to a client of the API."""
    image, document = b"\x89PNG\r\n\x1a\n" + b"x" * 2000, b"%PDF-1.7\n" + b"y" * 2000
    user_id = get_user_model().objects.get(username="ada").pk
    kept = [file_put(user_id=user_id, content=content).public_id for content in (image, document)]
    content = [
        {"type": "image_url", "image_url": {"url": f"attachment:{kept[0]}"}},
        {"type": "file", "file": {"file_data": f"attachment:{kept[1]}", "filename": "plan (2).pdf"}},
    ]
    asked = {"model": "m", "messages": [{"role": "user", "content": content}]}
    snippets = post(page, {"request": asked}).json()["snippets"]
    python = text_of(snippets, "python")
    assert 'Path("image-1.png")' in python
    assert 'Path("plan (2).pdf")' in python
    raw = json.loads(text_of(snippets, "raw"))["messages"][0]["content"]
    assert raw[0]["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(image).decode()}"
    assert raw[1]["file"]["file_data"].endswith(f";base64,{base64.b64encode(document).decode()}")
    content[0]["image_url"] = {"url": "attachment:gone"}
    refused = post(page, {"request": asked})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages.0.content")
