"""Signing in by an OpenID provider, over real HTTP: who is found, who is refused, who gets an account."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from chat.access.chat_projects import default_project
from chat.access.invitations import Invited, invitation_create
from chat.access.mail_addresses import address_vouch
from chat.access.roles import Role
from lightcone_site.sign_in import mail_settings, oidc_settings
from tests.chat.access.oidc_provider import Provider, oidc_provider
from tests.chat.audit.secrets_of_tests import PASSWORD, entries_after, last_entry
from tests.people import member

pytestmark = pytest.mark.django_db
ANN = {"sub": "id-of-ann", "email": "ann@example.com", "email_verified": True, "name": "Ann Lee"}


@pytest.fixture
def provider(valkey: str, settings: Any) -> Iterator[Provider]:
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    with oidc_provider() as made:
        made.claims = dict(ANN)
        made.use(settings)
        yield made


def sign_in(client: Client | None = None, **asked: str) -> tuple[Client, Any]:
    """Go to the provider and back, as a browser does, and return where that ends."""
    client = client or Client()
    there = client.post(reverse("openid_connect_login", kwargs={"provider_id": "provider"}), asked)
    assert there.status_code == 200, there.text
    back = httpx2.get(there.context["address"]).headers["Location"]
    assert back.startswith("http://testserver/sign-in/oidc/provider/login/callback/")
    return client, client.get(back.removeprefix("http://testserver"))


def vouched(name: str, email: str = "ann@example.com") -> User:
    """Return a member whose address an administrator has set."""
    user = member(name, email=email)
    address_vouch(user=user)
    return user


@pytest.mark.parametrize("way", ["own page", "invitation", "other invitation", "administrator", "changed since"])
def test_an_address_that_only_its_holder_typed_finds_no_account(provider: Provider, way: str) -> None:
    """Who typed a colleague's address into an own account shared it with the colleague, who came later."""
    owner = Client()
    owner.force_login(member("owner", "owner"))
    if "invitation" in way:
        email = "ann@example.com" if way == "invitation" else "eve@example.com"
        to = Invited(org=default_project().org, role=Role.MEMBER, email=email)
        _, secret = invitation_create(actor=User.objects.get(username="owner"), to=to)
        person = {"username": "eve", "email": "ann@example.com", "password1": PASSWORD, "password2": PASSWORD}
        assert Client().post(reverse("invitation", args=[secret]), person).status_code == 302
    else:
        eve = member("eve", email="eve@example.com")
        if way != "own page":
            fields = {"username": "eve", "email": "ann@example.com", "is_active": "on"}
            last = owner.post(reverse("admin:auth_user_change", args=[eve.pk]), fields)
            assert last.status_code == 302, last.text
        if way == "changed since":
            User.objects.filter(pk=eve.pk).update(email="else@example.com")
            provider.claims["email"] = "else@example.com"
        elif way == "own page":
            User.objects.filter(pk=eve.pk).update(email="ann@example.com")
    client, answer = sign_in()
    is_joined = way in ("invitation", "administrator")
    assert answer.url == ("/" if is_joined else "/sign-in")
    assert SocialAccount.objects.exists() is is_joined
    if not is_joined:
        assert "Sign in with its password, then connect Corp" in client.get("/sign-in").text


def test_a_look_alike_of_an_address_finds_no_account(provider: Provider) -> None:
    vouched("sam", "sam@example.com")
    provider.claims["email"] = "\u017fam@example.com"
    assert sign_in()[1].url == "/sign-in"
    assert not SocialAccount.objects.exists()


def test_an_account_is_found_by_a_verified_address_and_then_by_its_id(provider: Provider) -> None:
    ann = vouched("ann", "Ann@Example.com")
    assert "Sign in with Corp" in Client().get("/sign-in").text
    last = last_entry()
    client, answer = sign_in(next="/account")
    assert answer.url == "/account"
    assert "Connected" in client.get("/account").text
    assert [entry.action for entry in entries_after(last)] == ["user.provider_add", "user.sign_in"]
    assert entries_after(last)[-1].after == {"method": "OpenID provider"}
    provider.claims["email"] = "renamed@example.com"
    assert sign_in()[1].url == "/"
    assert SocialAccount.objects.get().user == ann
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    "changes",
    [{"email_verified": False}, {"email": "else@example.com"}, {"email": None, "email_verified": None}],
    ids=["not verified", "unknown", "without"],
)
def test_nobody_else_is_let_in(provider: Provider, changes: dict[str, Any]) -> None:
    vouched("ann")
    provider.claims |= changes
    client, answer = sign_in()
    assert answer.url == "/sign-in"
    assert "Nobody here has this account of Corp" in client.get("/sign-in").text
    assert not SocialAccount.objects.exists()
    assert User.objects.count() == 1


def test_an_address_of_two_accounts_finds_none(provider: Provider) -> None:
    for name in ("ann", "eve"):
        vouched(name)
    assert sign_in()[1].url == "/sign-in"
    assert not SocialAccount.objects.exists()


@pytest.mark.parametrize("fields", [{"is_active": False}, {}], ids=["inactive", "without a role"])
def test_accounts_without_access_stay_out(provider: Provider, fields: dict[str, Any]) -> None:
    user = User.objects.create_user("ann", email="ann@example.com", **fields)
    SocialAccount.objects.create(user=user, provider="provider", uid="id-of-ann")
    client, answer = sign_in()
    assert answer.url == "/sign-in"
    assert "no role in an organisation" in client.get("/sign-in").text
    assert client.get("/account").status_code == 302


def test_the_settings_may_give_a_role_to_everybody_there(provider: Provider, settings: Any) -> None:
    provider.use(settings, role="viewer")
    client, answer = sign_in()
    assert answer.status_code == 302
    ann = User.objects.get()
    assert (ann.email, ann.first_name, ann.memberships.get().role) == ("ann@example.com", "Ann", "viewer")
    assert not ann.has_usable_password()
    page = client.get("/account")
    assert "None is set" in page.text
    assert "your only way" in client.post(reverse("provider_remove"), follow=True).text
    form = {"password1": PASSWORD, "password2": PASSWORD}
    assert client.post(reverse("account_set_password"), form).status_code == 302
    last = last_entry()
    asked = client.post(reverse("provider_remove"))
    assert asked.url.startswith(reverse("account_reauthenticate"))
    assert client.post(asked.url, {"password": PASSWORD}).url == "/account"
    assert "Disconnected" in client.get("/account").text
    assert [entry.action for entry in entries_after(last)] == ["user.provider_remove"]
    assert sign_in()[1].url == "/", "a verified address finds it again"


def test_an_invited_person_comes_by_the_provider(provider: Provider) -> None:
    org = default_project().org
    owner = member("owner", "owner")
    invitation, secret = invitation_create(actor=owner, to=Invited(org=org, role=Role.BILLING))
    client = Client()
    assert "Come by Corp instead" in client.get(reverse("invitation", args=[secret])).text
    assert secret not in str(dict(client.session))
    assert sign_in(client)[1].status_code == 302
    invitation.refresh_from_db()
    assert invitation.accepted_by.memberships.get().role == "billing"
    assert client.get("/account").status_code == 200
    provider.claims |= {"sub": "other", "email": "other@example.com"}
    assert sign_in()[1].url == "/sign-in"


def test_the_second_step_follows_the_provider_too(provider: Provider) -> None:
    from allauth.mfa.totp.internal.auth import TOTP

    TOTP.activate(vouched("ann"), "JBSWY3DPEHPK3PXP")
    client, answer = sign_in()
    assert answer.url.startswith(reverse("mfa_authenticate"))
    assert client.get("/account").status_code == 302


def test_a_signed_in_person_connects_the_account_there(provider: Provider) -> None:
    provider.claims["email"] = "else@example.com"
    member("ann", password=PASSWORD)
    client = Client()
    client.post("/sign-in", {"username": "ann", "password": PASSWORD})
    answer = sign_in(client, process="connect")[1]
    assert answer.url == reverse("account_reauthenticate")
    assert client.post(answer.url, {"password": PASSWORD}).url == "/account"
    assert SocialAccount.objects.get().user.username == "ann"
    member("bob", password=PASSWORD)
    bob = Client()
    bob.post("/sign-in", {"username": "bob", "password": PASSWORD})
    sign_in(bob, process="connect")
    bob.post(reverse("account_reauthenticate"), {"password": PASSWORD})
    assert "Somebody else here has connected" in bob.get("/account").text
    assert SocialAccount.objects.get().user.username == "ann"


def test_what_the_provider_does_not_confirm_leads_back(provider: Provider) -> None:
    vouched("ann")
    provider.refuses = True
    client, answer = sign_in()
    assert answer.url == "/sign-in"
    assert "did not confirm who you are" in client.get("/sign-in").text
    provider.refuses = False
    callback = reverse("openid_connect_callback", kwargs={"provider_id": "provider"})
    for asked in ({"code": "x", "state": "forged"}, {}):
        assert Client().get(callback, asked).url == "/sign-in"
    provider.claims["iss"] = "https://evil.example"
    assert sign_in()[1].url == "/sign-in"
    assert not SocialAccount.objects.exists()


def test_a_provider_that_is_away_leads_back(provider: Provider, settings: Any) -> None:
    provider.issuer = "http://127.0.0.1:9"
    provider.use(settings)
    client = Client()
    answer = client.post(reverse("openid_connect_login", kwargs={"provider_id": "provider"}))
    assert answer.url == "/sign-in"
    assert "did not confirm" in client.get("/sign-in").text


def test_only_a_form_of_ours_begins_a_sign_in_at_the_provider(provider: Provider, settings: Any) -> None:
    """A link, which anybody may give, signed people out and in as somebody of the provider."""
    address = reverse("openid_connect_login", kwargs={"provider_id": "provider"})
    client = Client(enforce_csrf_checks=True)
    assert client.get(address).url == "/sign-in"
    assert client.post(address, {"process": "login"}).status_code == 403
    page = client.get("/sign-in", {"next": "/account"}).text
    assert f'method="post" action="{address}"' in page
    token = client.cookies[settings.CSRF_COOKIE_NAME].value
    there = client.post(address, {"process": "login", "next": "/account", "csrfmiddlewaretoken": token})
    assert there.status_code == 200
    assert f'<meta http-equiv="refresh" content="0; url={escape(there.context["address"])}">' in there.text
    assert there.context["address"].startswith(provider.issuer)


def test_without_settings_there_is_no_provider() -> None:
    assert "Sign in with" not in Client().get("/sign-in").text.replace("Sign in with a passkey", "")
    for name in ("openid_connect_login", "openid_connect_callback"):
        assert Client().get(reverse(name, kwargs={"provider_id": "provider"})).status_code == 404


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"OIDC_ISSUER": "login.example.com"}, "must be an address like"),
        ({"OIDC_ISSUER": "http://login.example.com"}, "must begin with https://"),
        ({"OIDC_ISSUER": "https://login.example.com"}, "needs LIGHTCONE_OIDC_CLIENT_ID"),
        ({"OIDC_ROLE": "owner"}, "LIGHTCONE_OIDC_ROLE must be one of"),
        ({"SMTP_HOST": "mail.example.com"}, "needs LIGHTCONE_SMTP_FROM"),
        ({"SMTP_SECURITY": "ssl"}, "LIGHTCONE_SMTP_SECURITY must be one of"),
        ({"SMTP_PORT": "70000"}, "between 1 and 65535"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], problem: str
) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"LIGHTCONE_{name}", value)
    read = mail_settings if any(name.startswith("SMTP") for name in values) else oidc_settings
    with pytest.raises(ImproperlyConfigured, match=problem):
        read()
