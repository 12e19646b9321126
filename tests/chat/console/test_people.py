"""The console gives nobody more rights, keeps one superuser and each last owner, and keeps the history of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chat.access.keys import key_create
from chat.access.memberships import membership_create
from chat.access.roles import Role
from chat.models import ApiKey, Membership, Org, Project
from tests.people import member

ROOT_FORM = {"username": "root", "is_active": "on", "is_superuser": "on"}
NEW = {"password1": "correct-horse-9", "password2": "correct-horse-9", "usable_password": "true"}


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def person(project: Project) -> Callable[..., tuple[User, Client]]:
    """Make a signed-in person with a role in the organisation of the project."""

    def make(name: str, role: str = "member", **fields: Any) -> tuple[User, Client]:
        user = member(name, role, org=project.org, **fields)
        return user, client_of(user)

    return make


@pytest.fixture
def root(db: None) -> User:
    return User.objects.create_superuser("root", password="first")


@pytest.fixture
def roots_client(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def page(user: User, name: str = "change") -> str:
    return reverse(f"admin:auth_user_{name}", args=[user.pk])


# Rights.


def test_nobody_raises_the_own_account(person: Any, root: User) -> None:
    manager, client = person("manager", "admin")
    form = ROOT_FORM | {"username": "manager", "first_name": "Mary"}
    assert client.post(page(manager), form).status_code == 302
    changed = User.objects.get(pk=manager.pk)
    assert (changed.first_name, changed.is_superuser) == ("Mary", False)
    own = reverse("admin:chat_membership_change", args=[manager.memberships.get().pk])
    assert "does not let you give" in client.post(own, {"role": "owner", "may_chat": "on"}).text
    assert manager.memberships.get().role == "admin"


def test_accounts_with_roles_above_cannot_be_changed(person: Any, root: User, project: Project) -> None:
    _, client = person("manager", "admin")
    membership_create(user=root, org=project.org, role=Role("member"))
    elsewhere = person("elsewhere")[0]
    membership_create(user=elsewhere, org=Org.objects.create(name="Other"), role=Role("member"))
    above = [root, person("owner", "owner")[0], person("asleep", "owner", is_active=False)[0], elsewhere]
    for account in above:
        before = (account.password, account.is_active, account.username)
        assert client.get(page(account)).status_code == 200
        assert client.post(page(account), {"username": "taken", "is_active": "on"}).status_code == 403
        assert client.get(reverse("admin:auth_user_password_change", args=[account.pk])).status_code == 403
        assert client.post(page(account, "delete"), {"post": "yes"}).status_code == 403
        bulk = {"action": "delete_selected", "_selected_action": [account.pk], "post": "yes"}
        client.post(reverse("admin:auth_user_changelist"), bulk)
        account = User.objects.get(pk=account.pk)
        assert (account.password, account.is_active, account.username) == before
    guest = person("guest")[0]
    assert client.post(page(guest), {"username": "guest", "first_name": "Gus", "is_active": "on"}).status_code == 302
    assert client.post(page(guest, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="guest").exists()


def test_passwords_of_others_are_for_owners(person: Any) -> None:
    guest = person("guest")[0]
    change = reverse("admin:auth_user_password_change", args=[guest.pk])
    admin, owner = person("admin", "admin")[1], person("owner", "owner")[1]
    assert admin.get(change).status_code == 403
    assert owner.get(change).status_code == 200
    for client, email in ((admin, ""), (owner, "new@example.org")):
        form = {"username": "guest", "email": "new@example.org", "is_active": "on"}
        assert client.post(page(guest), form).status_code == 302
        assert User.objects.get(pk=guest.pk).email == email, "an address can get a new password"
    membership_create(user=guest, org=Org.objects.create(name="Other"), role=Role("member"))
    assert person("owner2", "owner")[1].get(change).status_code == 403, "another organisation's account too"


@pytest.mark.parametrize(("role", "given"), [("owner", "owner"), ("admin", "admin"), ("admin", "billing")])
def test_a_new_account_gets_a_role_that_its_maker_may_give(
    person: Any, project: Project, role: str, given: str
) -> None:
    client = person("maker", role)[1]
    form = NEW | {"username": "ann", "org": project.org_id, "role": given, "may_chat": "on"}
    assert client.post(reverse("admin:auth_user_add"), form).status_code == 302
    made = Membership.objects.get(user__username="ann")
    assert (made.org, made.role, made.may_chat) == (project.org, given, True)


def test_a_new_account_gets_no_role_above_its_maker(person: Any, project: Project) -> None:
    client = person("maker", "admin")[1]
    other = Org.objects.create(name="Other")
    for fields in ({"org": project.org_id, "role": "owner"}, {"org": other.pk, "role": "member"}, {}):
        assert client.post(reverse("admin:auth_user_add"), NEW | {"username": "ann"} | fields).status_code == 200
    assert not User.objects.filter(username="ann").exists()


def test_members_of_other_organisations_are_not_shown(person: Any) -> None:
    stranger = member("stranger", org=Org.objects.create(name="Other"))
    for role in ("owner", "admin", "viewer", "auditor"):
        client = person(f"a-{role}", role)[1]
        for name in ("auth_user", "chat_membership"):
            listed = client.get(reverse(f"admin:{name}_changelist"))
            assert f"a-{role}" in listed.text
            assert "stranger" not in listed.text
        assert client.get(page(stranger)).status_code == 302, "as for an account that does not exist"
    for role in ("member", "billing"):
        client = person(f"a-{role}", role)[1]
        assert client.get(reverse("admin:auth_user_changelist")).status_code == 403


def test_roles_and_people_show_where_people_are_seen(person: Any, project: Project) -> None:
    """A page of an account named its roles in all organisations, and that of a project its people to everybody."""
    guest = person("guest")[0]
    membership_create(user=guest, org=Org.objects.create(name="Elsewhere"), role=Role("owner"))
    admin = person("admin", "admin")[1]
    for shown in (admin.get(page(guest)), admin.get(reverse("admin:auth_user_changelist"))):
        assert "Member in Acme" in shown.text
        assert "Elsewhere" not in shown.text
    assert admin.post(page(guest), {"username": "taken", "is_active": "on"}).status_code == 403
    project.members.add(guest)
    change = reverse("admin:chat_project_change", args=[project.pk])
    assert "guest" in admin.get(change).text
    assert "guest" not in person("bill", "billing")[1].get(change).text


# Memberships.


def change_role(client: Client, user: User, org: Org, role: str) -> Any:
    kept = Membership.objects.get(user=user, org=org)
    return client.post(reverse("admin:chat_membership_change", args=[kept.pk]), {"role": role, "may_chat": "on"})


def test_the_last_owner_of_an_organisation_stays(person: Any, project: Project, roots_client: Client) -> None:
    owner = person("owner", "owner")[0]
    person("asleep", "owner", is_active=False)
    assert "only owner" in change_role(roots_client, owner, project.org, "admin").text
    kept = owner.memberships.get()
    assert (
        roots_client.post(reverse("admin:chat_membership_delete", args=[kept.pk]), {"post": "yes"}).status_code == 403
    )
    assert "only owner" in roots_client.post(page(owner), {"username": "owner"}).text
    assert roots_client.post(page(owner, "delete"), {"post": "yes"}).status_code == 403
    second = person("second", "owner")[0]
    assert change_role(roots_client, owner, project.org, "admin").status_code == 302
    assert "only owner" in change_role(roots_client, second, project.org, "viewer").text


def test_who_comes_second_at_the_last_owner_is_refused(
    person: Any, project: Project, roots_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form was checked while there was another owner; the second of two got an error of the server."""
    owner = person("owner", "owner")[0]
    kept = owner.memberships.get()
    monkeypatch.setattr("chat.access.admin.members.is_last_owner", lambda membership: False)
    assert change_role(roots_client, owner, project.org, "member").status_code == 403
    assert (
        roots_client.post(reverse("admin:chat_membership_delete", args=[kept.pk]), {"post": "yes"}).status_code == 403
    )
    assert owner.memberships.get().role == "owner"


def test_an_admin_changes_roles_up_to_the_own(person: Any, project: Project) -> None:
    client = person("admin", "admin")[1]
    guest, owner = person("guest")[0], person("owner", "owner")[0]
    assert change_role(client, guest, project.org, "viewer").status_code == 302
    assert "does not let you give" in change_role(client, guest, project.org, "owner").text
    assert change_role(client, owner, project.org, "member").status_code == 403
    assert guest.memberships.get().role == "viewer"


def test_people_are_added_and_taken_out(person: Any, project: Project, roots_client: Client) -> None:
    other = Org.objects.create(name="Other")
    guest = member("guest", org=other)
    add = reverse("admin:chat_membership_add")
    admin, client = person("admin", "admin")
    for name in ("no", "guest"):
        form = {"username": name, "org": project.org_id, "role": "member"}
        assert "no account of this name" in client.post(add, form).text, "as for one that does not exist"
    membership_create(user=admin, org=other, role=Role("viewer"))
    assert client.post(add, {"username": "guest", "org": other.pk, "role": "member"}).status_code == 200
    assert client.post(add, {"username": "guest", "org": project.org_id, "role": "member"}).status_code == 302
    assert "already" in client.post(add, {"username": "guest", "org": project.org_id, "role": "viewer"}).text
    project.members.add(guest)
    kept = guest.memberships.get(org=project.org)
    assert client.post(reverse("admin:chat_membership_delete", args=[kept.pk]), {"post": "yes"}).status_code == 302
    assert list(guest.memberships.all()) == [guest.memberships.get(org=other)]
    assert not project.members.exists()
    form = {"username": "guest", "org": project.org_id, "role": "member"}
    assert roots_client.post(add, form).status_code == 302, "superusers add everybody"


# The last administrator, and history.


@pytest.mark.parametrize("missing", ["is_active", "is_superuser"])
def test_the_last_administrator_cannot_be_demoted(root: User, roots_client: Client, missing: str) -> None:
    form = {name: value for name, value in ROOT_FORM.items() if name != missing}
    answer = roots_client.post(page(root), form)
    assert "only superuser" in answer.text
    User.objects.create_superuser("second")
    assert roots_client.post(page(root), form).status_code == 302
    assert not getattr(User.objects.get(username="root"), missing)


def test_own_and_last_administrator_accounts_cannot_be_deleted(root: User, roots_client: Client) -> None:
    """The page of the only superuser had a working Delete button."""
    User.objects.create_superuser("retired", is_active=False)
    bulk = {"action": "delete_selected", "_selected_action": [root.pk], "post": "yes"}

    def is_refused() -> bool:
        assert page(root, "delete") not in roots_client.get(page(root)).text
        assert "You cannot delete the account" in roots_client.post(reverse("admin:auth_user_changelist"), bulk).text
        return roots_client.post(page(root, "delete"), {"post": "yes"}).status_code == 403

    assert is_refused()
    second = User.objects.create_superuser("second")
    assert is_refused()
    client = Client()
    client.force_login(second)
    assert client.post(page(root, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="root").exists()


def test_the_history_of_changes_outlives_its_accounts(root: User, roots_client: Client, project: Project) -> None:
    second = User.objects.create_superuser("second")
    client = Client()
    client.force_login(second)
    project_page = reverse("admin:chat_project_change", args=[project.pk])
    client.post(project_page, {"name": "Renamed", "org": project.org_id})
    asked = roots_client.get(page(second, "delete"))
    assert "Log entry" not in asked.text
    assert roots_client.post(page(second, "delete"), {"post": "yes"}).status_code == 302
    assert not User.objects.filter(username="second").exists()
    entry = LogEntry.objects.get(object_id=str(project.pk), content_type__model="project")
    assert "second" in entry.user.get_username()
    assert not entry.user.is_active
    assert "second" in roots_client.get(reverse("admin:chat_project_history", args=[project.pk])).text
    assert entry.user.get_username() not in roots_client.get(reverse("admin:auth_user_changelist")).text
    assert roots_client.post(page(entry.user, "delete"), {"post": "yes"}).status_code in {302, 403}
    assert LogEntry.objects.filter(pk=entry.pk).exists()


def test_the_playground_closes_with_its_membership(person: Any, roots_client: Client) -> None:
    ann, client = person("ann")
    assert client.get("/").status_code == 200
    change = reverse("admin:chat_membership_change", args=[ann.memberships.get().pk])
    assert roots_client.post(change, {"role": "member"}).status_code == 302
    refused = client.get("/")
    assert refused.status_code == 403
    assert "may not use the playground" in refused.text


# Keys.


def key_form(project: Project, **fields: Any) -> dict[str, Any]:
    return {
        "name": "new",
        "project": project.pk,
        "rights": ["inference"],
        "min_priority": 0,
        "networks": "",
        "origins": "",
    } | fields


@pytest.fixture
def other(project: Project) -> Project:
    return Project.objects.create(org=project.org, name="Others")


def test_members_make_keys_of_their_own_in_their_projects(person: Any, project: Project, other: Project) -> None:
    maker, client = person("maker")
    add = reverse("admin:chat_apikey_add")
    for place in (other, project):
        assert "lc-secret" not in client.post(add, key_form(place)).text
    project.members.add(maker)
    assert "lc-secret" not in client_of(maker).post(add, key_form(other)).text
    assert not ApiKey.objects.exists()
    assert "lc-secret" in client_of(maker).post(add, key_form(project)).text
    assert (ApiKey.objects.get().project, ApiKey.objects.get().owner) == (project, maker)


def test_admins_make_keys_of_projects_and_of_their_own(person: Any, project: Project) -> None:
    boss, client = person("boss", "admin")
    add = reverse("admin:chat_apikey_add")
    assert "lc-secret" in client.post(add, key_form(project)).text
    assert "lc-secret" in client.post(add, key_form(project, is_own="on")).text
    assert [key.owner for key in ApiKey.objects.order_by("id")] == [None, boss]
    foreign = Project.objects.create(org=Org.objects.create(name="Other"), name="Theirs")
    assert "lc-secret" not in client.post(add, key_form(foreign)).text


def test_keys_get_only_rights_that_their_creator_may_give(person: Any, project: Project) -> None:
    maker, client = person("maker")
    project.members.add(maker)
    add = reverse("admin:chat_apikey_add")
    strong: tuple[dict[str, Any], ...] = (
        {"rights": ["inference", "chat_template"]},
        {"rights": ["keys_manage"]},
        {"rights": ["usage_read"]},
        {"min_priority": -1},
    )
    for fields in strong:
        assert "lc-secret" not in client.post(add, key_form(project, **fields)).text
    assert 'value="chat_template"' not in client.get(add).text
    client = person("boss", "admin")[1]
    for fields in strong:
        assert "lc-secret" in client.post(add, key_form(project, **fields)).text
    elsewhere = Project.objects.create(org=Org.objects.create(name="Other"), name="Theirs")
    client = client_of(member("theirs", "owner", org=elsewhere.org))
    assert "lc-secret" in client.post(add, key_form(elsewhere, rights=["keys_manage"])).text
    for fields in ({"rights": ["chat_template"]}, {"rights": ["models_manage"]}, {"min_priority": -1}):
        assert "lc-secret" not in client.post(add, key_form(elsewhere, **fields)).text, "of the operator alone"


def test_keys_of_others_and_with_more_rights_cannot_be_changed(person: Any, project: Project, other: Project) -> None:
    """Rotating a key shows its text and thereby grants its rights."""
    keeper, client = person("keeper")
    project.members.add(keeper)
    plain, strong, hasty, shared = (
        key_create(project=project, name=name, owner=owner, **policy)[0]
        for name, owner, policy in (
            ("plain", keeper, {}),
            ("strong", keeper, {"rights": ["inference", "chat_template"]}),
            ("hasty", keeper, {"min_priority": -3}),
            ("shared", None, {}),
        )
    )
    for key, status in ((plain, 200), (strong, 403), (hasty, 403), (shared, 403)):
        rotate = reverse("admin:chat_apikey_rotate", args=[key.pk])
        assert client.post(rotate, {"overlap_hours": "0"}).status_code == status
    for key in (strong, hasty):
        shown = client.get(reverse("admin:chat_apikey_change", args=[key.pk]))
        assert shown.status_code == 200
        assert "/rotate" not in shown.text
        assert client.post(reverse("admin:chat_apikey_change", args=[key.pk]), key_form(project)).status_code == 403
    assert client.post(reverse("admin:chat_apikey_change", args=[plain.pk]), key_form(other)).status_code == 200
    assert ApiKey.objects.get(pk=plain.pk).project == project
    listed = client.get(reverse("admin:chat_apikey_changelist")).text
    assert ">plain<" in listed
    assert "shared" not in listed
    viewer = person("viewer", "viewer")[1]
    assert "shared" in viewer.get(reverse("admin:chat_apikey_changelist")).text
    assert viewer.post(reverse("admin:chat_apikey_disable", args=[shared.pk])).status_code == 403


def test_own_keys_end_with_what_gave_them(person: Any, project: Project, roots_client: Client) -> None:
    """A key of somebody who has left went on."""
    admin = person("admin", "admin")[0]
    keys = {}
    for name in ("leaves", "demoted", "sleeps", "loses", "deleted", "stays"):
        user = person(name)[0]
        project.members.add(user)
        keys[name] = key_create(project=project, name=name, owner=user)[0]
    users = {user.username: user for user in User.objects.all()}
    kept = users["leaves"].memberships.get()
    roots_client.post(reverse("admin:chat_membership_delete", args=[kept.pk]), {"post": "yes"})
    change_role(client_of(admin), users["demoted"], project.org, "viewer")
    roots_client.post(page(users["sleeps"]), {"username": "sleeps"})
    members = [user.pk for user in project.members.exclude(username="loses")]
    form = {"name": project.name, "members": members}
    assert roots_client.post(reverse("admin:chat_project_change", args=[project.pk]), form).status_code == 302
    roots_client.post(page(users["deleted"], "delete"), {"post": "yes"})
    for name, key in keys.items():
        key.refresh_from_db()
        assert bool(key.disabled_at or key.deleted_at) == (name != "stays"), name
    assert keys["deleted"].deleted_at


def test_own_keys_with_rights_end_with_the_role_that_gave_them(person: Any, project: Project) -> None:
    """An admin's own key kept the right to manage keys when the admin became a member."""
    owner = person("boss", "owner")[1]
    admin = person("admin", "admin")[0]
    project.members.add(admin)
    keys = {
        name: key_create(project=project, name=name, owner=admin, **policy)[0]
        for name, policy in (
            ("plain", {}),
            ("manages", {"rights": ["keys_manage"]}),
            ("trusted", {"rights": ["chat_template"]}),
            ("hasty", {"min_priority": -1}),
        )
    }
    change_role(owner, admin, project.org, "member")
    for name, key in keys.items():
        key.refresh_from_db()
        assert bool(key.disabled_at) == (name != "plain"), name
        if name != "plain":
            answer = owner.post(reverse("admin:chat_apikey_enable", args=[key.pk]), follow=True)
            assert "admin may not have a key" in answer.text
            assert ApiKey.objects.get(pk=key.pk).disabled_at
    plain = reverse("admin:chat_apikey_change", args=[keys["plain"].pk])
    assert "admin may not have a key" in owner.post(plain, key_form(project, rights=["usage_read"])).text
    second = Project.objects.create(org=project.org, name="Second")
    assert "admin may not have a key" in owner.post(plain, key_form(second)).text
    assert ApiKey.objects.get(pk=keys["plain"].pk).project == project
    assert owner.post(plain, key_form(project, name="renamed")).status_code == 302


def test_the_organisation_that_operates_cannot_be_deleted(roots_client: Client, db: None) -> None:
    """Nobody but superusers managed models after that."""
    for org, status in ((Org.objects.create(name="One", is_operator=True), 403), (Org.objects.create(name="Two"), 302)):
        delete = reverse("admin:chat_org_delete", args=[org.pk])
        assert roots_client.post(delete, {"post": "yes"}).status_code == status
        bulk = {"action": "delete_selected", "_selected_action": [org.pk], "post": "yes"}
        roots_client.post(reverse("admin:chat_org_changelist"), bulk)
        assert Org.objects.filter(pk=org.pk).exists() == org.is_operator


def test_projects_take_people_of_their_organisation(person: Any, project: Project) -> None:
    boss, client = person("boss", "admin")
    theirs = Org.objects.create(name="Other")
    guest, stranger = person("guest")[0], member("stranger", org=theirs)
    change = reverse("admin:chat_project_change", args=[project.pk])
    refused = client.post(change, {"name": project.name, "members": [stranger.pk]})
    assert "not one of the available choices" in refused.text
    assert "stranger" not in refused.text, "names of other organisations were told by number"
    membership_create(user=boss, org=theirs, role=Role("viewer"))
    assert "no member of Acme" in client.post(change, {"name": project.name, "members": [stranger.pk]}).text
    assert client.post(change, {"name": project.name, "members": [guest.pk]}).status_code == 302
    assert list(project.members.all()) == [guest]
    assert client_of(guest).get(change).status_code == 200
    assert client_of(guest).post(change, {"name": "Mine"}).status_code == 403
    assert client_of(stranger).get(change).status_code == 302, "as for a project that does not exist"


# Pages.


def test_the_menu_has_what_the_role_shows(person: Any) -> None:
    """The menu had pages that answered 403."""
    for role, hidden in (
        ("owner", set()),
        ("billing", {"requestlog", "apikey", "servedmodel", "membership"}),
        ("member", {"servedmodel", "membership"}),
    ):
        client = person(f"a-{role}", role)[1]
        shown = client.get(reverse("admin:index"))
        for name in ("requestlog", "usage", "apikey", "project", "membership", "servedmodel"):
            address = reverse("admin:usage" if name == "usage" else f"admin:chat_{name}_changelist")
            assert (f'href="{address}"' in shown.text) is (name not in hidden), (role, name)
            assert client.get(address).status_code == (403 if name in hidden else 200), (role, name)


def test_models_belong_to_the_organisation_that_operates(person: Any) -> None:
    address = reverse("admin:chat_servedmodel_changelist")
    owner = client_of(member("theirs", "owner", org=Org.objects.create(name="Other")))
    assert owner.get(address).status_code == 403
    assert person("viewer", "viewer")[1].get(address).status_code == 200
    assert person("viewer2", "viewer")[1].get(reverse("admin:chat_servedmodel_add")).status_code == 403
    assert person("admin", "admin")[1].get(reverse("admin:chat_servedmodel_add")).status_code == 200


def test_everybody_changes_the_own_password(person: Any) -> None:
    guest, client = person("guest", "member", password="horse-of-before")
    form = {"oldpassword": "horse-of-before", "password1": "correct-horse-9", "password2": "correct-horse-9"}
    assert f'href="{reverse("account")}"' in client.get(reverse("admin:index")).text
    assert client.get(reverse("admin:password_change")).url == reverse("account_change_password")
    assert client.post(reverse("account_change_password"), form).url == reverse("account")
    assert User.objects.get(pk=guest.pk).check_password("correct-horse-9")
    assert client.get(reverse("admin:index")).status_code == 200


def test_a_refused_page_links_back(person: Any) -> None:
    """Who followed a link without permission saw one line of text."""
    _, client = person("bob", "billing")
    answer = client.get(reverse("admin:chat_requestlog_changelist"))
    assert answer.status_code == 403
    assert "may not open this page" in answer.text
    assert reverse("admin:index") in answer.text
    assert f'href="{reverse("playground")}"' in answer.text
    for path in ("/admin/nowhere/", "/nowhere"):
        answer = client.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 404
        assert "There is no such page" in answer.text


def test_the_console_refuses_signed_in_users_without_a_role(client: Client, db: None) -> None:
    """They got the sign-in form without an explanation although they were signed in."""
    client.force_login(User.objects.create_user("ann"))
    answer = client.get(reverse("admin:index"), follow=True)
    assert answer.status_code == 403
    assert "may not open this page" in answer.text
    client.logout()
    assert client.get(reverse("admin:login"), follow=True).status_code == 200
