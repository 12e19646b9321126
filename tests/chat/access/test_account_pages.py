"""Signing in with a second step, and one's own account: factors, browsers, password, details."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.test import Client, TestCase
from django.urls import URLPattern, URLResolver, reverse
from django.utils import timezone

from chat.access import urls as access_urls
from chat.access.accounts import session_user
from chat.access.browsers import browser_name, browsers_of
from chat.access.chat_projects import chat_project
from chat.access.sessions import BEGUN, SEEN
from chat.models import Org, Project
from tests.chat.audit.secrets_of_tests import PASSWORD, entries_after, last_entry
from tests.people import member

pytestmark = pytest.mark.django_db
NEW = "battery-staple-horse-9"


@pytest.fixture(autouse=True)
def _fresh_counters(valkey: str, settings: Any) -> None:
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"


@pytest.fixture
def ann() -> User:
    return member("ann", password=PASSWORD)


def signed_in(**headers: str) -> Client:
    client = Client(headers=headers)
    assert client.post("/sign-in", {"username": "ann", "password": PASSWORD}).status_code == 302
    return client


def confirmed() -> Client:
    """Return a client that has just confirmed who it is, as acts on one's sign-in ask for."""
    client = signed_in()
    assert client.post(reverse("account_reauthenticate"), {"password": PASSWORD}).status_code == 302
    return client


def code_now(secret: str, *, steps: int = 0) -> str:
    """Return the code that an authenticator app shows, `steps` of half a minute from now."""
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + steps))


def app_set_up(client: Client) -> str:
    """Set up an authenticator app, and return its secret."""
    secret = client.get(reverse("mfa_activate_totp")).context["form"].secret
    with TestCase.captureOnCommitCallbacks(execute=True):
        answer = client.post(reverse("mfa_activate_totp"), {"code": code_now(secret, steps=-1)})
    assert answer.url == reverse("mfa_view_recovery_codes")
    return secret


def actions(last: int) -> list[str]:
    return [entry.action for entry in entries_after(last)]


# The second step.


@pytest.mark.usefixtures("ann")
def test_with_an_authenticator_app_the_password_alone_signs_nobody_in() -> None:
    last = last_entry()
    secret = app_set_up(confirmed())
    assert actions(last) == ["user.sign_in", "user.factor_add", "user.factor_add"]
    client = Client()
    answer = client.post("/sign-in", {"username": "ann", "password": PASSWORD, "next": "/account"})
    assert answer.url.startswith(reverse("mfa_authenticate"))
    for path in ("/account", "/", "/admin/"):
        assert client.get(path).status_code == 302
    assert "authenticator app shows" in client.get(answer.url).text
    assert client.post(answer.url, {"code": code_now(secret)}).url == "/account"
    assert client.get("/account").status_code == 200
    assert entries_after(last)[-1].after == {"method": "password, totp"}


@pytest.mark.usefixtures("ann")
def test_codes_are_used_once_and_wrong_ones_are_counted() -> None:
    secret = app_set_up(confirmed())
    page = reverse("mfa_authenticate")

    def second_step(code: str) -> Any:
        client = Client()
        client.post("/sign-in", {"username": "ann", "password": PASSWORD})
        return client.post(page, {"code": code})

    code = code_now(secret)
    assert second_step(code).status_code == 302
    assert second_step(code).status_code == 200, "a code was taken twice"
    last = last_entry()
    assert "at most 16 characters" in second_step("1" * 17).text
    for _ in range(4):
        second_step("nonsense")
    assert "Too many failed sign-ins" in second_step(code_now(secret, steps=1)).text
    assert set(actions(last)) == {"user.sign_in_failed"}


@pytest.mark.usefixtures("ann")
def test_recovery_codes_work_once_each() -> None:
    client = confirmed()
    app_set_up(client)
    codes = client.get(reverse("mfa_view_recovery_codes")).context["unused_codes"]
    assert len(codes) == 10
    assert client.get(reverse("mfa_download_recovery_codes")).text.split() == codes
    for is_first in (True, False):
        other = Client()
        other.post("/sign-in", {"username": "ann", "password": PASSWORD})
        assert (other.post(reverse("mfa_authenticate"), {"code": codes[0]}).status_code == 302) is is_first
    assert "9 left" in client.get("/account").text
    last = last_entry()
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert client.post(reverse("mfa_generate_recovery_codes")).status_code == 302
    assert actions(last) == ["user.codes"]
    assert not set(client.get(reverse("mfa_view_recovery_codes")).context["unused_codes"]) & set(codes)


@pytest.mark.usefixtures("ann")
def test_secrets_of_factors_are_stored_encrypted() -> None:
    secret = app_set_up(confirmed())
    stored = str(list(Authenticator.objects.values_list("data", flat=True)))
    assert secret not in stored
    assert secret not in "".join(str(entry.after) for entry in entries_after(0))


@pytest.mark.usefixtures("ann")
def test_an_app_is_removed_with_its_recovery_codes() -> None:
    client = confirmed()
    app_set_up(client)
    last = last_entry()
    assert client.post(reverse("mfa_deactivate_totp")).status_code == 302
    assert actions(last) == ["user.factor_remove"] * 2
    assert not Authenticator.objects.exists()
    assert signed_in().get("/account").status_code == 200


@pytest.mark.usefixtures("ann")
@pytest.mark.parametrize(
    "name",
    ["mfa_activate_totp", "mfa_add_webauthn", "account_details", "mfa_generate_recovery_codes", "provider_remove"],
)
def test_acts_on_ones_sign_in_ask_who_it_is(name: str) -> None:
    """A page that was left open would give the account away."""
    client = signed_in()
    answer = client.post(reverse(name), {"email": "evil@example.com"})
    assert answer.url.startswith(reverse("account_reauthenticate"))
    page = client.get(answer.url)
    assert "Show that it is you" in page.text
    assert "not your password" in client.post(answer.url, {"password": "wrong"}).text
    assert User.objects.get(username="ann").email == ""


@pytest.mark.usefixtures("ann")
def test_confirmations_are_counted_as_sign_ins_are() -> None:
    client = signed_in()
    for _ in range(5):
        client.post(reverse("account_reauthenticate"), {"password": "wrong"})
    assert "Too many failed" in client.post(reverse("account_reauthenticate"), {"password": PASSWORD}).text
    form = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert "Too many failed" in client.post(reverse("account_change_password"), form).text


# Browsers.


@pytest.mark.usefixtures("ann")
def test_browsers_are_listed_and_signed_out() -> None:
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    here, there, third = signed_in(), signed_in(user_agent=firefox), signed_in()
    page = here.get("/account")
    assert "Firefox, Linux" in page.text
    assert page.text.count("This browser</span>") == 1
    theirs = UserSession.objects.get(user_agent=firefox)
    last = last_entry()
    assert here.post(reverse("browser_end", args=[theirs.pk])).status_code == 302
    assert there.get("/account").status_code == 302
    assert here.post(reverse("browser_end", args=[theirs.pk])).status_code == 404
    here.post(reverse("browsers_end"))
    assert third.get("/account").status_code == 302
    assert here.get("/account").status_code == 200
    assert actions(last) == ["user.session_end"] * 2


def test_ended_sessions_are_no_work_each(ann: User, django_assert_max_num_queries: Any) -> None:
    """Each row of a session that had ended cost three queries, and was deleted by itself."""
    client = signed_in()
    key = client.session.session_key
    UserSession.objects.bulk_create(
        UserSession(user=ann, session_key=f"gone-{number}", ip="192.0.2.1", user_agent="x") for number in range(50)
    )
    with django_assert_max_num_queries(10):
        assert [one.session_key for one in browsers_of(ann)] == [key]
    assert UserSession.objects.count() == 1


@pytest.mark.usefixtures("ann")
def test_nobody_signs_out_a_browser_of_somebody_else() -> None:
    client = signed_in()
    bob = Client()
    bob.force_login(member("bob"))
    row = UserSession.objects.get(user__username="ann")
    assert bob.post(reverse("browser_end", args=[row.pk])).status_code == 404
    assert client.get("/account").status_code == 200


@pytest.mark.usefixtures("ann")
def test_a_new_password_signs_all_other_browsers_out() -> None:
    here, there = signed_in(), signed_in()
    form = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert here.post(reverse("account_change_password"), form).url == "/account"
    assert here.get("/account").status_code == 200
    assert there.get("/account").status_code == 302
    assert UserSession.objects.count() == 1


@pytest.mark.usefixtures("ann")
@pytest.mark.parametrize(
    ("old", "new", "again", "problem"),
    [
        ("wrong", NEW, NEW, "This is not your password."),
        (PASSWORD, "short", "short", "too short"),
        (PASSWORD, NEW, f"{NEW}!", "same password each time"),
        (PASSWORD, "a1" * 3000, "a1" * 3000, "at most 4096 characters"),
    ],
)
def test_a_bad_new_password_changes_nothing(old: str, new: str, again: str, problem: str) -> None:
    form = {"oldpassword": old, "password1": new, "password2": again}
    assert problem in signed_in().post(reverse("account_change_password"), form).text
    assert User.objects.get(username="ann").check_password(PASSWORD)


def session_of(client: Client) -> Any:
    return import_module("django.contrib.sessions.backends.db").SessionStore(client.cookies["lightcone_session"].value)


@pytest.mark.usefixtures("ann")
def test_an_idle_session_ends_and_a_used_one_does_not(settings: Any) -> None:
    settings.LIGHTCONE_SESSION_IDLE_MINUTES, settings.ACCOUNT_SESSION_COOKIE_AGE = 10, 600
    client = signed_in()
    client.get("/account")
    assert session_of(client).get_expiry_age() == 600
    session = session_of(client)
    session[SEEN] -= 61
    session.save()
    client.get("/account")
    assert time.time() - session_of(client)[SEEN] < 30, "a use after a minute moves the end"
    store = session_of(client)
    row = store.model.objects.get(session_key=store.session_key)
    row.expire_date = timezone.now() - timedelta(seconds=1)
    row.save()
    assert client.get("/account").status_code == 302
    assert not session_user(session_key=store.session_key).is_authenticated


@pytest.mark.usefixtures("ann")
def test_no_use_makes_a_session_last_longer_than_its_end(settings: Any) -> None:
    client = signed_in()
    client.get("/account")
    session = session_of(client)
    session[BEGUN] -= settings.SESSION_COOKIE_AGE - 100
    session[SEEN] -= 61
    session.save()
    client.get("/account")
    assert session_of(client).get_expiry_age() <= 100


@pytest.mark.usefixtures("ann")
def test_what_a_socket_asks_is_a_use_of_the_session() -> None:
    client = signed_in()
    client.get("/account")
    session = session_of(client)
    session[SEEN] = 0
    session.save()
    assert session_user(session_key=session.session_key).get_username() == "ann"
    assert session_of(client)[SEEN] > 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile Safari/604.1", "Safari, iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge, Windows"),
        ("curl/8.1", "curl"),
        ("", "?"),
        ("x" * 99, "x" * 40),
    ],
)
def test_browsers_have_short_names(text: str, name: str) -> None:
    assert browser_name(text) == name


# Details.


@pytest.mark.usefixtures("ann")
def test_name_and_address_are_changed() -> None:
    client, last = confirmed(), last_entry()
    form = {"first_name": "Ann", "last_name": "Lee", "email": "ann@example.com"}
    assert client.post(reverse("account_details"), form).url == "/account"
    assert "ann@example.com" in client.get("/account").text
    assert actions(last) == ["user.change"]
    assert "Enter a valid email" in client.post(reverse("account_details"), form | {"email": "nonsense"}).text
    assert "at most 150" in client.post(reverse("account_details"), form | {"first_name": "a" * 151}).text
    User.objects.create_user("bob", email="Bob@example.com")
    taken = client.post(reverse("account_details"), form | {"email": "bob@example.com"})
    assert "Another account has this address" in taken.text
    assert User.objects.get(username="ann").email == "ann@example.com"


def test_chats_count_to_the_project_that_is_chosen_on_the_page(ann: User) -> None:
    org = Org.objects.get()
    for name in ("Red", "Blue"):
        Project.objects.create(org=org, name=name).members.add(ann)
    client = signed_in()
    assert "Project of your chats" in client.get(reverse("account")).text
    blue = Project.objects.get(name="Blue")
    last = last_entry()
    page = client.post(reverse("account_chat_project"), {"project": blue.pk}, follow=True)
    assert "Your chats count to Blue from now on." in page.text
    assert chat_project(user=User.objects.get(pk=ann.pk)) == blue
    (entry,) = entries_after(last)
    assert (entry.action, entry.before, entry.after) == (
        AUDITED["account_chat_project"],
        {"project": "Red"},
        {"project": "Blue"},
    )
    for wrong in ("", "x", "0", str(Project.objects.create(org=org, name="Not theirs").pk)):
        refused = client.post(reverse("account_chat_project"), {"project": wrong}, follow=True)
        assert "choose one that the list has" in refused.text
    assert chat_project(user=User.objects.get(pk=ann.pk)) == blue


# Every page.

OPEN = {
    *("sign_in", "account_login", "sign_out", "mfa_authenticate", "mfa_login_webauthn"),
    *("account_reset_password", "account_reset_password_done", "account_reset_password_from_key"),
    *("account_reset_password_from_key_done", "openid_connect_login", "openid_connect_callback", "invitation"),
}
"""Pages for people who are not signed in."""
AUDITED = {
    "sign_in": "user.sign_in",
    "account_login": "user.sign_in",
    "mfa_authenticate": "user.sign_in",
    "mfa_login_webauthn": "user.sign_in",
    "openid_connect_callback": "user.sign_in",
    "sign_out": "user.sign_out",
    "account_reset_password_from_key": "user.reset_used",
    "account_details": "user.change",
    "account_chat_project": "user.chat_project",
    "account_change_password": "user.password",
    "account_set_password": "user.password",
    "mfa_activate_totp": "user.factor_add",
    "mfa_deactivate_totp": "user.factor_remove",
    "mfa_generate_recovery_codes": "user.codes",
    "mfa_add_webauthn": "user.factor_add",
    "mfa_remove_webauthn": "user.factor_remove",
    "browser_end": "user.session_end",
    "browsers_end": "user.session_end",
    "provider_remove": "user.provider_remove",
    "invitation": "invite.accept",
}
"""What each page that changes anything leaves in the audit log; the tests of the page look for it."""
SHOWN_ONLY = {
    *("account", "mfa_index", "mfa_list_webauthn", "mfa_view_recovery_codes", "mfa_download_recovery_codes"),
    *("account_reauthenticate", "mfa_reauthenticate", "mfa_reauthenticate_webauthn", "mfa_edit_webauthn"),
    *("account_reset_password", "account_reset_password_done", "account_reset_password_from_key_done"),
    *("openid_connect_login",),
}
"""Pages that only show, lead on, or rename what is one's own."""


def names_of(patterns: Any) -> Iterator[str]:
    for one in patterns:
        if isinstance(one, URLResolver):
            yield from names_of(one.url_patterns)
        elif isinstance(one, URLPattern):
            yield str(one.name)


def test_every_page_says_who_may_open_it_and_what_it_records() -> None:
    names = set(names_of(access_urls.urlpatterns))
    assert names == set(AUDITED) | SHOWN_ONLY
    assert names >= OPEN


def address_of(name: str) -> str:
    arguments = {"browser_end": [1], "mfa_remove_webauthn": [1], "mfa_edit_webauthn": [1]}
    return reverse(name, args=arguments.get(name, []))


@pytest.mark.parametrize("role", ["owner", "admin", "member", "viewer", "billing", "auditor"])
def test_every_role_has_its_own_account_and_nobody_else_has(role: str) -> None:
    client = Client()
    client.force_login(member("ann", role))
    page = client.get("/account")
    assert page.status_code == 200
    assert f"{role.capitalize()} in {Org.objects.get()}" in page.text
    assert (reverse("admin:chat_apikey_changelist") in page.text) is (role != "billing")
    for name in set(AUDITED) | SHOWN_ONLY:
        if name not in OPEN:
            assert Client().get(address_of(name)).status_code in (302, 405), name
            assert Client().post(address_of(name)).status_code in (302, 405), name
