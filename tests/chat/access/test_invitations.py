"""Invitations and links for a new password: who makes them, what they give, and that each works once."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.access.chat_projects import default_project
from chat.access.invitations import Invited, invitation_create
from chat.access.roles import Role
from chat.models import Invitation, Membership, Org, Project
from tests.chat.access.mail_server import MailServer, mail_server
from tests.chat.audit.secrets_of_tests import PASSWORD, entries_after, last_entry
from tests.people import member

pytestmark = pytest.mark.django_db
LINK = re.compile(r"http://testserver(/[A-Za-z0-9/_-]+)")
PERSON = {"username": "bob", "first_name": "Bob", "last_name": "", "email": "bob@example.com"}
PERSON |= {"password1": PASSWORD, "password2": PASSWORD}


@pytest.fixture(autouse=True)
def _fresh_counters(valkey: str, settings: Any) -> None:
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"


@pytest.fixture
def mail(settings: Any) -> Iterator[MailServer]:
    with mail_server() as server:
        server.use(settings)
        yield server


def boss(role: str = "owner") -> tuple[User, Client]:
    user = member(f"the-{role}", role, password=PASSWORD, email=f"{role}@example.com")
    client = Client()
    client.force_login(user)
    return user, client


def invite(client: Client, **changes: Any) -> Any:
    form = {"email": "", "org": default_project().org_id, "role": "member", "may_chat": "on", "days": 7}
    return client.post(reverse("admin:chat_invitation_add"), form | changes)


def link_in(text: str) -> str:
    found = LINK.search(text)
    assert found, text
    return found[1]


def test_an_invitation_makes_an_account_with_role_and_projects_once() -> None:
    project = default_project()
    _, client = boss("admin")
    last = last_entry()
    link = link_in(invite(client, email="bob@example.com", role="viewer", projects=[project.pk]).text)
    guest = Client()
    page = guest.get(link)
    assert f"Join {project.org}" in page.text
    assert 'value="bob@example.com"' in page.text
    assert page.text.count('maxlength="4096"') == 2, "browsers read 4,096 as 4, and cut passwords"
    answer = guest.post(link, PERSON)
    assert answer.url == "/"
    bob = User.objects.get(username="bob")
    assert (bob.email, bob.memberships.get().role, list(bob.projects.all())) == ("bob@example.com", "viewer", [project])
    assert guest.get("/account").status_code == 200
    made = ["invite.create", "user.create", "member.create", "project.change", "invite.accept", "user.sign_in"]
    assert [entry.action for entry in entries_after(last)] == made
    again = Client().post(link, PERSON | {"username": "eve", "email": ""})
    assert again.status_code == 410
    assert "has been used" in again.text
    assert not User.objects.filter(username="eve").exists()


def test_the_link_is_shown_once_and_not_stored() -> None:
    _, client = boss()
    secret = link_in(invite(client).text).rpartition("/")[2]
    invitation = Invitation.objects.get()
    pages = client.get(reverse("admin:chat_invitation_change", args=[invitation.pk])).text
    pages += client.get(reverse("admin:chat_invitation_changelist")).text
    assert secret not in pages + invitation.digest + str([entry.after for entry in entries_after(0)])


def test_nobody_invites_to_more_than_they_hold() -> None:
    actor, client = boss("admin")
    assert "Select a valid choice" in invite(client, role="owner").text
    other = Org.objects.create(name="Other")
    assert "Select a valid choice" in invite(client, org=other.pk).text
    for role in (Role.OWNER, Role.AUDITOR):
        with pytest.raises(PermissionDenied):
            invitation_create(actor=actor, to=Invited(org=default_project().org, role=Role(role)))
    assert not Invitation.objects.exists()
    for role in ("member", "viewer", "billing", "auditor"):
        assert invite(boss(role)[1]).status_code == 403


def test_projects_of_other_organisations_are_refused() -> None:
    default_project()
    root = User.objects.create_superuser("root")
    client = Client()
    client.force_login(root)
    theirs = Project.objects.create(org=Org.objects.create(name="Other"), name="Theirs")
    assert "Choose only projects of" in invite(client, projects=[theirs.pk]).text
    assert not Invitation.objects.exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"email": "nonsense"}, "Enter a valid email"),
        ({"email": "a" * 250 + "@example.com"}, "at most 254"),
        ({"days": 0}, "greater than or equal to 1"),
        ({"days": 91}, "less than or equal to 90"),
        ({"days": "NaN"}, "Enter a whole number"),
        ({"role": "king"}, "Select a valid choice"),
    ],
)
def test_bad_invitations_are_refused(changes: dict[str, Any], problem: str) -> None:
    assert problem in invite(boss()[1], **changes).text
    assert not Invitation.objects.exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"username": "THE-OWNER"}, "Somebody has this name"),
        ({"username": "a" * 151}, "at most 150"),
        ({"username": "(deleted 7) ann"}, "Choose another name"),
        ({"email": "OWNER@example.com"}, "Another account has this address"),
        ({"password1": "12345678", "password2": "12345678"}, "too common"),
        ({"password2": f"{PASSWORD}!"}, "not the same password"),
        ({"password1": "a1" * 3000, "password2": "a1" * 3000}, "at most 4096"),
    ],
)
def test_a_bad_account_uses_no_invitation(changes: dict[str, Any], problem: str) -> None:
    link = link_in(invite(boss()[1]).text)
    answer = Client().post(link, PERSON | changes)
    assert problem in answer.text
    assert User.objects.count() == 1
    assert Invitation.objects.get().is_open


def test_invitations_end() -> None:
    owner, client = boss()
    revoked, expired, demoted = (link_in(invite(client, role="admin").text) for _ in range(3))
    rows = list(Invitation.objects.order_by("pk"))
    last = last_entry()
    assert client.get(reverse("admin:chat_invitation_revoke", args=[rows[0].pk])).status_code == 200
    assert client.post(reverse("admin:chat_invitation_revoke", args=[rows[0].pk])).status_code == 302
    assert [entry.action for entry in entries_after(last)] == ["invite.revoke"]
    assert "was revoked" in Client().get(revoked).text
    Invitation.objects.filter(pk=rows[1].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert "has expired" in Client().get(expired).text
    Membership.objects.filter(user=owner).update(role="viewer")
    assert "may not give this role any more" in Client().get(demoted).text
    for link in (revoked, expired, demoted, "/invitations/nonsense"):
        answer = Client().post(link, PERSON)
        assert answer.status_code == 410
    assert Client().get("/invitations/" + "a" * 65).status_code == 404
    assert not User.objects.filter(username="bob").exists()


def test_an_admin_does_not_revoke_the_invitation_of_an_owner() -> None:
    invite(boss("owner")[1], role="owner")
    _, client = boss("admin")
    assert client.post(reverse("admin:chat_invitation_revoke", args=[Invitation.objects.get().pk])).status_code == 403
    assert Invitation.objects.get().is_open


def test_wrong_links_are_counted(settings: Any) -> None:
    link = link_in(invite(boss()[1]).text)
    for _ in range(settings.LIGHTCONE_MAX_LOGIN_FAILURES):
        Client().get("/invitations/nonsense")
    assert "Too many failed" in Client().get("/invitations/nonsense").text
    assert Client().get(link).status_code == 200, "a right link is not a guess"


def test_joining_a_project_records_who_joined(project: Project) -> None:
    """The entry named an empty list before, whoever was a member."""
    _, client = boss()
    project.members.add(member("ann"), member("zoe"))
    link, last = link_in(invite(client, projects=[project.pk]).text), last_entry()
    assert Client().post(link, PERSON).status_code == 302
    (made,) = [entry for entry in entries_after(last) if entry.action == "project.change"]
    assert (made.before, made.after) == ({"members": ["ann", "zoe"]}, {"members": ["ann", "bob", "zoe"]})
    zed = User.objects.create_user("zed")
    project.members.add(zed)
    link, last = link_in(invite(client, projects=[project.pk]).text), last_entry()
    guest = Client()
    guest.force_login(zed)
    assert guest.post(link).status_code == 302
    assert "project.change" not in [entry.action for entry in entries_after(last)]


def test_who_has_an_account_joins_with_it() -> None:
    owner = member("theirs", "owner", org=Org.objects.create(name="Other"))
    client = Client()
    client.force_login(owner)
    link = link_in(invite(client, org=owner.memberships.get().org_id).text)
    ann = Client()
    ann.force_login(member("ann"))
    assert "Join as ann" in ann.get(link).text
    assert ann.post(link).url == "/account"
    assert set(Membership.objects.filter(user__username="ann").values_list("org__name", "role")) == {
        (default_project().org.name, "member"),
        ("Other", "member"),
    }
    second = link_in(invite(client, org=owner.memberships.get().org_id).text)
    assert "member of this organisation already" in ann.post(second, follow=True).text
    assert Client().get(second).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_two_at_once_make_one_account() -> None:
    link = link_in(invite(boss()[1]).text)

    def accept(name: str) -> int:
        from django.db import connection

        try:
            return Client().post(link, PERSON | {"username": name, "email": ""}).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(accept, ["eve", "mal"])) == [302, 410]
    assert User.objects.filter(username__in=["eve", "mal"]).count() == 1


# Mail.


def test_an_invitation_is_mailed(mail: MailServer) -> None:
    answer = invite(boss()[1], email="bob@example.com")
    assert "was sent to bob@example.com" in answer.text
    (sent,) = mail.mails
    assert (sent["To"], sent["From"]) == ("bob@example.com", "lightcone@example.com")
    assert link_in(mail.text()) == link_in(answer.text)


def test_a_mail_that_fails_leaves_the_link_to_copy(mail: MailServer) -> None:
    mail.refuses = True
    answer = invite(boss()[1], email="bob@example.com")
    assert "could not be sent" in answer.text
    assert "no such person here" in answer.text
    assert Client().get(link_in(answer.text)).status_code == 200


def test_the_mail_page_shows_settings_without_the_password_and_sends_a_test(mail: MailServer) -> None:
    _, client = boss()
    page = client.get(reverse("admin:mail")).text
    assert "LIGHTCONE_SMTP_PASSWORD" in page
    assert "of-the-mail" not in page
    assert "has taken the mail" in client.post(reverse("admin:mail"), {"to": "me@example.com"}, follow=True).text
    assert [sent["To"] for sent in mail.mails] == ["me@example.com"]
    mail.refuses = True
    assert "no such person here" in client.post(reverse("admin:mail"), {"to": "me@example.com"}, follow=True).text
    assert "valid email" in client.post(reverse("admin:mail"), {"to": "nonsense"}).text
    auditor = boss("auditor")[1]
    assert "Send a test" not in auditor.get(reverse("admin:mail")).text
    assert auditor.post(reverse("admin:mail"), {"to": "me@example.com"}).status_code == 403
    assert len(mail.mails) == 1


def test_without_mail_the_page_says_how_to_set_it_up() -> None:
    page = boss()[1].get(reverse("admin:mail")).text
    assert "No mail is sent" in page
    assert "Send a test" not in page


# Links for a new password.

NEW = "battery-staple-horse-9"
SET = {"password1": NEW, "password2": NEW}


def used(link: str, form: dict[str, str] = SET) -> Any:
    client = Client()
    page = client.get(link, follow=True)
    return client.post(page.request["PATH_INFO"], form, follow=True)


def test_a_mailed_link_sets_a_password_once(mail: MailServer) -> None:
    ann = member("ann", password=PASSWORD, email="Ann@example.com")
    here = Client()
    here.post("/sign-in", {"username": "ann", "password": PASSWORD})
    assert here.get("/account").status_code == 200
    client, last = Client(), last_entry()
    assert "Forgotten your password" in client.get("/sign-in").text
    for address in ("ann@example.com", "nobody@example.com"):
        answer = client.post(reverse("account_reset_password"), {"email": address}, follow=True)
        assert "If an account has this address" in answer.text
    assert [sent["To"] for sent in mail.mails] == ["Ann@example.com"], "the typed address got it, not the stored one"
    link = link_in(mail.text())
    assert "The password is set" in used(link).text
    assert User.objects.get(pk=ann.pk).check_password(NEW)
    assert [entry.action for entry in entries_after(last)] == ["user.reset_link", "user.password", "user.reset_used"]
    assert here.get("/account").status_code == 302, "browsers stayed signed in"
    assert "wrong, has been used, or is too old" in used(link).text


def test_bad_new_passwords_and_links_change_nothing(mail: MailServer, settings: Any) -> None:
    ann = member("ann", password=PASSWORD, email="ann@example.com")
    Client().post(reverse("account_reset_password"), {"email": "ann@example.com"})
    link = link_in(mail.text())
    assert "too short" in used(link, {"password1": "short", "password2": "short"}).text
    assert "same password each time" in used(link, SET | {"password2": "other"}).text
    assert "is too old" in Client().get(link[:-3] + "xyz").text
    assert Client().get("/password-reset/zzz-abc-def").status_code == 200
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert "is too old" in Client().get(link).text
    settings.PASSWORD_RESET_TIMEOUT = 259200
    Client().post("/sign-in", {"username": "ann", "password": PASSWORD})
    assert "is too old" in Client().get(link).text, "a sign-in ends the link"
    assert User.objects.get(pk=ann.pk).check_password(PASSWORD)


def test_requests_for_links_are_limited(mail: MailServer, settings: Any) -> None:
    member("ann", email="ann@example.com")
    answers = [Client().post(reverse("account_reset_password"), {"email": "ann@example.com"}) for _ in range(7)]
    assert len(mail.mails) == settings.LIGHTCONE_MAX_LOGIN_FAILURES
    assert "Too many failed" in answers[-1].text


def test_a_mail_server_that_fails_tells_nobody_which_addresses_are_known(mail: MailServer) -> None:
    member("ann", email="ann@example.com")
    mail.refuses = True
    for address in ("ann@example.com", "nobody@example.com"):
        answer = Client().post(reverse("account_reset_password"), {"email": address}, follow=True)
        assert "If an account has this address" in answer.text


def test_nobody_waits_for_the_mail_server(mail: MailServer) -> None:
    """The time of an answer told which addresses have an account."""
    member("ann", email="ann@example.com")
    with mail.held():
        answer = Client().post(reverse("account_reset_password"), {"email": "ann@example.com"}, follow=True)
        assert "If an account has this address" in answer.text
        assert not mail.taken
    assert [sent["To"] for sent in mail.mails] == ["ann@example.com"]


def test_without_mail_the_page_says_whom_to_ask() -> None:
    page = Client().get(reverse("account_reset_password"))
    assert "Ask an owner" in page.text
    assert Client().post(reverse("account_reset_password"), {"email": "a@b.de"}).status_code == 302


@pytest.mark.parametrize("role", ["owner", "admin", "viewer", "member"])
def test_owners_alone_make_links_for_the_passwords_of_others(role: str) -> None:
    ann = member("ann", password=PASSWORD)
    _, client = boss(role)
    address, last = reverse("admin:auth_user_reset_link", args=[ann.pk]), last_entry()
    if role != "owner":
        assert client.post(address).status_code in (302, 403, 404)
        assert entries_after(last) == []
        return
    assert "The person who opens the link" in client.get(address).text
    link = link_in(client.post(address).text)
    assert "The password is set" in used(link).text
    assert User.objects.get(pk=ann.pk).check_password(NEW)
    made = ["user.reset_link", "user.password", "user.reset_used"]
    assert [entry.action for entry in entries_after(last)] == made


@pytest.mark.parametrize("way", ["page", "command"])
def test_lost_second_factors_are_removed(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    from allauth.mfa.models import Authenticator

    ann = member("ann", password=PASSWORD)
    Authenticator.objects.create(user=ann, type="totp", data={"secret": "x"})
    address = reverse("admin:auth_user_remove_factors", args=[ann.pk])
    assert boss("admin")[1].post(address).status_code in (302, 403)
    assert Authenticator.objects.exists()
    last = last_entry()
    if way == "page":
        assert boss()[1].post(address).status_code == 302
    else:
        call_command("password", "ann", "--remove-factors")
    assert not Authenticator.objects.exists()
    assert "user.factor_remove" in [entry.action for entry in entries_after(last)]
