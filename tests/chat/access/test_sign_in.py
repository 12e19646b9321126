"""Sign-in attempts are limited before passwords are checked, lockouts end, and each attempt is logged."""

from __future__ import annotations

import logging
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.test import Client, RequestFactory

from chat.access import sign_in
from chat.access.sign_in import PlaygroundSignInForm, SignIn, SignInAttempt, sign_in_begin, sign_in_succeed
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


def form(name: str, password: str) -> PlaygroundSignInForm:
    return PlaygroundSignInForm(
        RequestFactory().post("/sign-in", REMOTE_ADDR=HOME), {"username": name, "password": password}
    )


@pytest.mark.django_db
def test_a_blocked_attempt_does_not_check_the_password(django_user_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    member("ann", password="right")
    looked: list[str] = []

    def counted(**credentials: Any) -> Any:
        looked.append(credentials["password"])
        return authenticate(**credentials)

    monkeypatch.setattr("django.contrib.auth.forms.authenticate", lambda request, **credentials: counted(**credentials))
    assert not any(form("ann", "wrong").is_valid() for _ in range(5))
    blocked = form("ann", "right")
    assert not blocked.is_valid()
    assert blocked.non_field_errors() == ["Too many failed sign-ins. Try again in 15 minutes."]
    assert looked == ["wrong"] * 5


@pytest.mark.django_db
def test_each_attempt_is_logged_without_the_password(django_user_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    member("ann", password="right-secret")
    with caplog.at_level(logging.INFO, sign_in.__name__):
        assert form("ann", "right-secret").is_valid()
        assert not form("x\r\nsign-in succeeded" + "y" * 99, "wrong-secret").is_valid()
        assert not form("", "wrong-secret").is_valid()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "sign-in succeeded: account 'ann', address 192.0.2.1"
    assert lines[1].startswith("sign-in failed: account 'x")
    assert len(lines) == 2
    assert all(line.isprintable() and len(line) < 140 and "secret" not in line for line in lines)


@pytest.mark.django_db
def test_no_name_at_the_form_spends_the_tries_of_something_else() -> None:
    """Passwords of shared chats are counted under names that begin with a NUL."""
    for _ in range(5):
        assert form("\0/shared/1", "wrong").errors["username"] == ["Null characters are not allowed."]
    assert tries("\0/shared/1", HOME, 5) == 5


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("role", "may_chat", "is_let_in"),
    [("member", True, True), ("billing", False, True), ("", False, False)],
)
def test_only_people_with_a_role_may_sign_in(
    django_user_model: Any, role: str, may_chat: bool, is_let_in: bool
) -> None:
    if role:
        member("ann", role, may_chat=may_chat, password="right")
    else:
        django_user_model.objects.create_user("ann", password="right")
    assert form("ann", "right").is_valid() is is_let_in


@pytest.mark.django_db
def test_both_sign_in_pages_count_attempts(django_user_model: Any, client: Client) -> None:
    django_user_model.objects.create_superuser("root", password="right")
    for page in ("/sign-in", "/admin/login/", "/sign-in", "/admin/login/", "/sign-in"):
        assert client.post(page, {"username": "root", "password": "wrong"}).status_code == 200
    for page in ("/sign-in", "/admin/login/"):
        assert "Too many failed sign-ins" in client.post(page, {"username": "root", "password": "right"}).text
