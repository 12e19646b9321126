"""Errors of pages are shown on a page in the usual design with a link back."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.views.defaults import server_error

WAY_BACK = 'href="/"'


def test_a_bad_request_has_an_error_page(client: Client) -> None:
    answer = client.get("/sign-in", headers={"host": "evil.example"})
    assert answer.status_code == 400
    assert "LIGHTCONE_ALLOWED_HOSTS" in answer.text
    assert WAY_BACK in answer.text


@pytest.mark.django_db
def test_a_form_without_its_csrf_token_has_an_error_page() -> None:
    answer = Client(enforce_csrf_checks=True).post("/sign-in", {"username": "ann", "password": "right"})
    assert answer.status_code == 403
    assert "The form was not accepted" in answer.text
    assert WAY_BACK in answer.text


def test_the_500_page_renders_without_context(rf: RequestFactory) -> None:
    answer: Any = server_error(rf.get("/"))
    assert answer.status_code == 500
    assert "logs/web.log" in answer.text
    assert WAY_BACK in answer.text
