"""Sign-in attempts are limited before passwords are checked, lockouts end, and each attempt is logged."""

from __future__ import annotations

import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.test import Client

from chat.access import sign_in
from chat.access.sign_in import SignIn, SignInAttempt, sign_in_begin, sign_in_succeed
from tests.people import member

HOME, AWAY = "192.0.2.1", "198.51.100.7"


@pytest.fixture(autouse=True)
def _fresh_counters(valkey: str, settings: Any) -> None:
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"


def tries(account: str, address: str, number: int) -> int:
    """Return how many of so many failing attempts reach the password."""
    return sum(sign_in_begin(tried=SignIn(account, address)).wait_s == 0 for _ in range(number))


def sign_in_well(account: str, address: str) -> bool:
    tried = SignIn(account, address)
    begun = sign_in_begin(tried=tried)
    if not begun.wait_s:
        sign_in_succeed(tried=tried, begun=begun)
    return not begun.wait_s


def test_of_forty_concurrent_attempts_five_reach_the_password() -> None:
    """Counting after the hash let 27 of 40 through."""
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda _: sign_in_begin(tried=SignIn("admin", HOME)), range(40)))
    assert sum(not one.wait_s for one in begun) == 5
    assert all(0 < one.wait_s <= sign_in.WINDOW_S for one in begun if one.wait_s)


def test_attempts_of_an_address_on_many_accounts_are_limited(settings: Any) -> None:
    settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ADDRESS = 12
    assert sum(tries(f"user{number}", HOME, 1) for number in range(40)) == 12


def test_attempts_on_an_account_from_many_addresses_are_limited(settings: Any) -> None:
    settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ACCOUNT = 12
    assert sum(tries("admin", f"198.51.100.{number}", 1) for number in range(40)) == 12


def test_others_cannot_lock_a_user_out_of_a_known_address(settings: Any) -> None:
    settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ACCOUNT = settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ADDRESS = 10
    assert sign_in_well("admin", HOME)
    for number in range(10):
        tries("admin", f"198.51.100.{number}", 3)
        tries(f"user{number}", HOME, 3)
    assert not sign_in_well("admin", AWAY)
    assert not sign_in_well("ann", HOME)
    assert sign_in_well("admin", HOME)


def test_a_successful_sign_in_refunds_only_its_own_attempt(settings: Any) -> None:
    """Signing in to an own account must not raise the limit of an address."""
    settings.LIGHTCONE_MAX_LOGIN_FAILURES_PER_ADDRESS = 3
    assert all(sign_in_well("mallory", HOME) for _ in range(10))
    assert tries("admin", HOME, 2) == 2
    assert all(sign_in_well("mallory", HOME) for _ in range(10))
    assert tries("admin", HOME, 9) == 1


def test_user_names_are_counted_case_insensitively() -> None:
    assert tries("admin", HOME, 3) + tries("ADMIN", HOME, 3) == 5


def test_sign_in_works_without_valkey(settings: Any) -> None:
    settings.LIGHTCONE_REDIS_URL = "unix:///nowhere/valkey.sock"
    assert sign_in_begin(tried=SignIn("admin", HOME)) == SignInAttempt()


@pytest.mark.parametrize("written", ["123456", "123 456", "123-456", "123.456", "1,2_3\t45-6", "\u00a0123456"])
def test_a_code_is_used_once_however_it_is_written(written: str) -> None:
    """A dash in a code made it another one here, and none at the check."""
    assert sign_in.code_is_fresh(account_id=1, code="123456")
    assert not sign_in.code_is_fresh(account_id=1, code=written)
    assert sign_in.code_is_fresh(account_id=2, code=written)
    assert sign_in.code_is_fresh(account_id=1, code="123457")


def page(name: str, password: str) -> Any:
    return Client(REMOTE_ADDR=HOME).post("/sign-in", {"username": name, "password": password})


@pytest.mark.django_db
def test_a_blocked_attempt_does_not_check_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    member("ann", password="right")
    looked: list[str] = []

    def counted(request: Any, **credentials: Any) -> Any:
        looked.append(credentials["password"])
        return authenticate(request, **credentials)

    monkeypatch.setattr("chat.access.allauth_adapters.authenticate", counted)
    assert {page("ann", "wrong").status_code for _ in range(5)} == {200}
    assert "Too many failed sign-ins. Try again in 15 minutes." in page("ann", "right").text
    assert looked == ["wrong"] * 5


@pytest.mark.django_db
def test_each_attempt_is_logged_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    member("ann", password="right-secret")
    with caplog.at_level(logging.INFO, sign_in.__name__):
        assert page("ann", "right-secret").status_code == 302
        assert page("x\r\nsign-in succeeded" + "y" * 99, "wrong-secret").status_code == 200
        assert page("", "wrong-secret").status_code == 200
    lines = [record.getMessage() for record in caplog.records if record.name == sign_in.__name__]
    assert lines[0] == "sign-in succeeded: account 'ann', address 192.0.2.1"
    assert lines[1].startswith("sign-in failed: account 'x")
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 140 and "secret" not in line for line in lines)


@pytest.mark.django_db
def test_no_name_at_the_form_spends_the_tries_of_something_else() -> None:
    """Passwords of shared chats are counted under names that begin with a NUL."""
    for _ in range(5):
        assert "Null characters are not allowed." in page("\0/shared/1", "wrong").text
    assert tries("\0/shared/1", HOME, 5) == 5


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "password", "problem"),
    [
        ("a" * 151, "right", "at most 150 characters"),
        ("ann", "a" * 4097, "at most 4096 characters"),
        ("ann", "", "This field is required."),
        ("ann", "Right", "Enter the correct username and password."),
        ("Ann", "right", "Enter the correct username and password."),
    ],
)
def test_bad_input_is_refused_with_a_sentence(name: str, password: str, problem: str) -> None:
    member("ann", password="right")
    assert problem in page(name, password).text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("role", "may_chat", "start"),
    [("member", True, "/"), ("billing", False, "/admin/"), ("", False, None)],
)
def test_only_people_with_a_role_may_sign_in(
    django_user_model: Any, role: str, may_chat: bool, start: str | None
) -> None:
    if role:
        member("ann", role, may_chat=may_chat, password="right")
    else:
        django_user_model.objects.create_user("ann", password="right")
    answer = page("ann", "right")
    assert answer.status_code == (302 if start else 200)
    assert answer.headers.get("Location") == start
    assert start or "no role in an organisation" in answer.text


@pytest.mark.django_db
def test_there_is_one_sign_in_page(client: Client) -> None:
    """The console had one of its own, and django-allauth would have several."""
    member("ann", password="right")
    assert client.get("/admin/login/?next=/admin/system/").url == "/sign-in?next=%2Fadmin%2Fsystem%2F"
    assert client.get("/admin/").url.startswith("/admin/login/")
    wanted = {"username": "ann", "password": "right", "next": "/admin/chat/apikey/"}
    assert client.post("/sign-in", wanted).url == "/admin/chat/apikey/"
    assert client.get("/sign-in").status_code == 302
    assert client.get("/admin/logout/").status_code == 405
    assert client.post("/admin/logout/").url == "/sign-in"
    assert client.post("/sign-in", wanted | {"next": "https://evil.example/"}).url == "/"
    for path in ("/signup/", "/accounts/login/", "/accounts/signup/", "/sign-up", "/account/email"):
        assert client.get(path).status_code == 404
