"""Links that ask for a password: what is stored of it, the form that asks, and the limits of tries."""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from chat.conversations import sharing
from chat.models import ShareLink
from tests.chat.conversations.conftest import Page

PASSWORD = "seven tram lines"  # noqa: S105
ASKS = "asks for a password"


@pytest.fixture
def token(ann: Page, valkey: str, settings: Any) -> str:
    """The token of a link with a password."""
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    ann.open("a", title="Secret plans")
    ann.ask("a", "1", "Where to?")
    status, link = ann("POST", "conversations/a/links", {"password": PASSWORD})
    assert (status, link["has_password"]) == (200, True)
    return str(link["token"])


def tried(token: str, password: str, address: str = "192.0.2.1") -> tuple[int, str]:
    """Return the status and the page that a reader from an address gets for a password."""
    reader = Client(enforce_csrf_checks=True)
    response = reader.post(f"/shared/{token}", {"password": password}, REMOTE_ADDR=address, HTTP_ORIGIN="null")
    return response.status_code, response.content.decode()


def test_the_password_is_asked_for_before_anything_is_shown(token: str) -> None:
    response = Client().get(f"/shared/{token}")
    text = response.content.decode()
    assert (response.status_code, ASKS in text) == (200, True)
    assert response.headers["X-Robots-Tag"] == "noindex"
    assert "no-store" in response.headers["Cache-Control"]
    assert "Secret" not in text
    assert "Where to?" not in text
    assert "<script type=" not in text, "the form works without scripts"


def test_the_right_password_shows_the_copy_and_is_not_kept(token: str) -> None:
    """The browser sends the form without an origin, as the page names no referrer."""
    status, text = tried(token, PASSWORD)
    assert (status, "Secret plans" in text, "Where to?" in text) == (200, True, True)
    assert ASKS in Client().get(f"/shared/{token}").content.decode()


@pytest.mark.parametrize("password", ["", PASSWORD.upper(), PASSWORD + " ", "x" * 100_000, "a\0b"])
def test_another_password_shows_nothing(token: str, password: str) -> None:
    status, text = tried(token, password)
    assert (status, "This password is wrong." in text, "Secret" in text) == (200, True, False)


def test_only_a_hash_of_the_password_is_stored(token: str, ann: Page) -> None:
    assert PASSWORD not in ShareLink.objects.get().password
    assert ann("GET", "conversations/a/links")[1]["data"][0].keys() == {
        *("id", "has_password", "created_at", "expires_at"),
    }


def test_the_route_for_programs_shows_no_copy_with_a_password(token: str) -> None:
    status, answer = Page()("GET", f"shared/{token}")
    assert (status, answer["error"]["code"]) == (403, "permission_denied")
    assert "password" in answer["error"]["message"]


def test_tries_are_limited_as_those_to_sign_in_are(token: str, ann: Page, settings: Any) -> None:
    settings.LIGHTCONE_MAX_LOGIN_FAILURES = 3
    assert all("wrong" in tried(token, "another")[1] for _ in range(3))
    assert "Try again in 15 minutes." in tried(token, PASSWORD)[1]
    assert "Where to?" in tried(token, PASSWORD, "198.51.100.7")[1], "from another address"
    other = ann("POST", "conversations/a/links", {"password": PASSWORD})[1]["token"]
    assert "Where to?" in tried(other, PASSWORD)[1], "another link"


def test_tries_from_many_addresses_are_limited_for_a_link(token: str, settings: Any) -> None:
    settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ACCOUNT = 3
    assert all("wrong" in tried(token, "another", f"198.51.100.{number}")[1] for number in range(3))
    assert "Too many wrong passwords" in tried(token, PASSWORD)[1]


def test_each_try_is_logged_without_the_password(token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "chat.access.sign_in")
    tried(token, "a wrong one")
    tried(token, PASSWORD)
    number = ShareLink.objects.get().pk
    said = [record.getMessage() for record in caplog.records if record.name == "chat.access.sign_in"]
    assert said == [
        f"sign-in {outcome}: account '/shared/{number}', address 192.0.2.1" for outcome in ("failed", "succeeded")
    ]


def test_a_link_that_is_over_asks_for_nothing(token: str, ann: Page) -> None:
    ShareLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert tried(token, PASSWORD)[0] == 404
    assert Client().get(f"/shared/{token}").status_code == 404


def test_a_link_without_a_password_takes_any(ann: Page) -> None:
    ann.open("a", title="Open plans")
    link = ann("POST", "conversations/a/links", {"password": ""})[1]
    assert link["has_password"] is False
    assert "Open plans" in tried(link["token"], "any")[1]
    assert Client().get(f"/shared/{link['token']}").status_code == 200


@pytest.mark.parametrize(
    ("password", "part"), [("12345", "6 to 128"), ("x" * 129, "128"), (7, "string"), ("a\0bcdef", "NUL")]
)
def test_a_bad_password_is_refused_with_its_limits(ann: Page, password: Any, part: str) -> None:
    ann.open("a")
    status, answer = ann("POST", "conversations/a/links", {"password": password})
    assert (status, answer["error"]["param"]) == (400, "password")
    assert part in answer["error"]["message"]
    assert not ShareLink.objects.exists()


@pytest.mark.parametrize("reason", ["no such chat", "no links on this server", "as many as there may be"])
def test_a_link_that_cannot_be_made_hashes_no_password(
    ann: Page, monkeypatch: pytest.MonkeyPatch, settings: Any, reason: str
) -> None:
    """Hashing takes a fifth of a second of processor time."""
    hashed: list[str] = []
    monkeypatch.setattr(sharing, "make_password", lambda password: hashed.append(password) or "a hash")
    ann.open("a")
    ask = lambda chat: ann("POST", f"conversations/{chat}/links", {"password": PASSWORD})[0]  # noqa: E731
    if reason == "no such chat":
        status = ask("b")
    elif reason == "no links on this server":
        settings.LIGHTCONE_CHAT_SHARING = False
        status = ask("a")
    else:
        assert all(ask("a") == 200 for _ in range(sharing.MAX_LINKS))
        hashed.clear()
        status = ask("a")
    assert (status >= 400, hashed) == (True, [])


def test_other_methods_are_refused(token: str) -> None:
    assert Client().put(f"/shared/{token}").status_code == 405
