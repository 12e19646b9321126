"""Every act of the console leaves an entry of the right action: a page without one fails here.

The acts are read from the pages themselves: their URLs, permissions and bulk actions, and the pages of no table. Each
has a case below.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from chat.access.admin_keys import admin_key_create
from chat.access.invitations import Invited, invitation_create
from chat.access.keys import key_create, key_disable
from chat.access.roles import Role
from chat.alerts.channels import channel_save
from chat.alerts.rules import rules_read
from chat.batches.files import FileAbout
from chat.batches.services import BatchOrder, batch_create
from chat.budgets.services import budget_save
from chat.catalog.adapters import adapter_set
from chat.catalog.services import model_register
from chat.catalog.weighted_aliases import weighted_alias_set
from chat.model_jobs.services import job_create
from chat.models import (
    AdminKey,
    AlertChannel,
    AlertRule,
    ApiKey,
    Batch,
    Budget,
    Invitation,
    Membership,
    ModelAdapter,
    ModelJob,
    ModelPrice,
    Org,
    Project,
    ProjectFile,
    RequestLog,
    ServedModel,
    ServiceAccount,
    WeightedAlias,
)
from chat.usage.services import usage_records_write
from lightcone_site.sign_in import MailSettings
from tests.chat.audit.secrets_of_tests import PASSWORD, entries_after, last_entry
from tests.chat.batches.stored_files import file_create
from tests.chat.console.test_keys import form_data as key_form
from tests.chat.console.test_lists import model_data
from tests.chat.live.floor import LiveFloor, floor
from tests.chat.records import record
from tests.people import member

__all__ = ["floor"]

VIEWS = ("changelist", "history", "add", "change", "delete")
UNAUDITED = {
    *("chat_servedmodel_pull", "chat_servedmodel_warm", "chat_project_redaction", "system", "usage"),
    *("workers", "live_snapshot", "model_try", "model_fit"),
}
"""Two lead to a form, the others only show."""
NEW_USER = {
    "username": "bob",
    "role": "member",
    "may_chat": "on",
    "password1": PASSWORD,
    "password2": PASSWORD,
    "usable_password": "true",
}


@dataclass
class World:
    """One row of each kind."""

    client: Client
    project: Project
    key: ApiKey
    user: User
    model: ServedModel
    adapter: ModelAdapter
    alias: WeightedAlias
    job: ModelJob
    batch: Batch
    file: ProjectFile
    settings: Any
    worker: str
    run_id: str

    def post(self, page: str, /, *args: Any, **data: Any) -> None:
        answer = self.client.post(reverse(f"admin:{page}", args=args), {"post": "yes", **data})
        assert answer.status_code in (200, 302), answer.text

    def bulk_delete(self, name: str, *rows: Any) -> None:
        marked = [row.pk for row in rows]
        self.post(f"{name}_changelist", action="delete_selected", _selected_action=marked)


@pytest.fixture
def world(
    admin_client: Client,
    project: Project,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    floor: LiveFloor,
) -> World:
    settings.LIGHTCONE_MODEL_STORE = tmp_path
    for act in ("model_load_ask", "model_unload_ask", "model_restart_ask"):
        monkeypatch.setattr(f"chat.catalog.acts.{act}", lambda *, name: None)
    for act in ("drain_send", "stop_send"):
        monkeypatch.setattr(f"chat.live.acts.{act}", lambda *sent: None)
    model = model_register(name="small", path="/models/small.gguf")
    model_register(name="large", path="/models/large.gguf")
    file = file_create(about=FileAbout(project.pk, "accept0001", "in.jsonl", "batch"), content=b"x")
    batch = batch_create(order=BatchOrder(project.pk, "accept0001", "/v1/chat/completions", file.public_id))
    return World(
        client=admin_client,
        project=project,
        key=key_create(project=project, name="worker")[0],
        user=member("ann", org=project.org, password=PASSWORD),
        model=model,
        adapter=adapter_set(model=model, name="german", path="/a", is_elsewhere=True),
        alias=weighted_alias_set(name="either", targets=[{"model": "small", "weight": 1}]),
        job=job_create(kind="pull", asked="org/name"),
        batch=batch,
        file=file_create(about=FileAbout(project.pk, "accept0001", "free.jsonl", "batch"), content=b"x"),
        settings=settings,
        worker=floor.host(),
        run_id=floor.run("small", project_id=project.pk),
    )


def empty_project(world: World) -> Project:
    return Project.objects.create(org=world.project.org, name="Empty")


def archived_project(world: World) -> Project:
    return Project.objects.create(org=world.project.org, name="Old", archived_at=timezone.now())


def admin_key(world: World) -> AdminKey:
    owner = User.objects.get(username="admin")
    return admin_key_create(actor=owner, org=world.project.org, name="ci")[0]


def service_account(world: World) -> ServiceAccount:
    return ServiceAccount.objects.create(project=world.project, name="ci")


def coming_price(world: World) -> ModelPrice:
    start = timezone.now() + timedelta(days=1)
    return ModelPrice.objects.create(model=world.model, model_name="small", starts_at=start, input=1, output=1)


def new_person(world: World) -> User:
    return User.objects.create_user("cy")


def membership(world: World) -> Membership:
    return world.user.memberships.get()


def request_with_text(world: World) -> RequestLog:
    Project.objects.filter(pk=world.project.pk).update(keeps_api_texts=True)
    text = zlib.compress(b'{"request": {"messages": []}, "answers": []}')
    usage_records_write([record(project_id=world.project.pk, texts=text)])
    return RequestLog.objects.get()


def empty_org(world: World) -> Org:
    return Org.objects.create(name="Empty")


def factor(world: World) -> Authenticator:
    return Authenticator.objects.create(user=world.user, type="totp", data={"secret": "x"})


def invitation(world: World) -> Invitation:
    return invitation_create(
        actor=User.objects.get(username="admin"), to=Invited(org=world.project.org, role=Role.MEMBER)
    )[0]


def mail_set_up(world: World) -> None:
    world.settings.LIGHTCONE_MAIL = MailSettings(host="localhost", sender="lightcone@example.com")


ADAPTER = {"name": "french", "path": "/b", "is_elsewhere": "on", "enabled": "on"}
OTHER = {"password1": f"{PASSWORD}!", "password2": f"{PASSWORD}!", "usable_password": "true"}


@dataclass(frozen=True)
class Case:
    """The action of an act's entry (of two, if it does two things), the request, and what is made before."""

    action: str
    ask: Callable[[World, Any], object]
    prepare: Callable[[World], object] = lambda world: None


def form(page: str, pk: Callable[[World], Any] | None = None, **fields: Any) -> Callable[[World, Any], None]:
    """Return the request of a form, for the row whose key `pk` gives. Fields may be functions of the world."""

    def ask(world: World, made: Any) -> None:
        data = {name: value(world) if callable(value) else value for name, value in fields.items()}
        is_row = page.rpartition("_")[2] != "add"
        row = (made.pk if pk is None else pk(world),) if is_row else ()
        world.post(page, *row, **data)

    return ask


def key_of(name: str) -> Callable[[World], Any]:
    """Return what gives the primary key of a row of the world."""
    return lambda world: getattr(world, name).pk


def key_fields(**fields: Any) -> Callable[[World, Any], None]:
    return lambda world, _: world.post("chat_apikey_add", **key_form(world.project, **fields))


def budget_of(world: World) -> Budget:
    budget = Budget(name="most", project=world.project, amount=10)
    budget_save(budget=budget)
    return budget


def disk_rule(world: World) -> AlertRule:
    return rules_read()["disk_low"]


def webhook_of(world: World) -> AlertChannel:
    """Make a channel of this machine, where nobody listens."""
    world.settings.LIGHTCONE_WEBHOOK_NETWORKS = ["127.0.0.1"]
    channel = AlertChannel(name="ops", address="http://127.0.0.1:9/")
    channel_save(channel=channel)
    return channel


BUDGET = {
    "name": "most",
    "scope": "project",
    "unit": "tokens",
    "how_much": "10",
    "time_window": "month",
    "time_zone": "UTC",
    "week_start": "0",
}
PROJECT = key_of("project")
ORG: Any = lambda world: world.project.org_id  # noqa: E731
MEMBERS: Any = lambda world: [world.user.pk]  # noqa: E731
CASES = {
    "auth_user_add": Case("user.create member.create", form("auth_user_add", **NEW_USER, org=ORG)),
    "auth_user_change": Case(
        "user.change", form("auth_user_change", key_of("user"), username="ann", email="ann@example.com", is_active="on")
    ),
    "chat_membership_add": Case(
        "member.create",
        form("chat_membership_add", username="cy", org=ORG, role="viewer"),
        new_person,
    ),
    "chat_membership_change": Case(
        "member.change", form("chat_membership_change", role="admin", may_chat="on"), membership
    ),
    "chat_membership_delete": Case("member.delete", form("chat_membership_delete"), membership),
    "auth_user_password_change": Case("user.password", form("auth_user_password_change", key_of("user"), **OTHER)),
    "auth_user_delete": Case("user.delete", form("auth_user_delete", key_of("user"))),
    "auth_user: delete_selected": Case("user.delete", lambda world, _: world.bulk_delete("auth_user", world.user)),
    "auth_user_reset_link": Case("user.reset_link", form("auth_user_reset_link", key_of("user"))),
    "auth_user_remove_factors": Case("user.factor_remove", form("auth_user_remove_factors", key_of("user")), factor),
    "chat_invitation_add": Case(
        "invite.create", form("chat_invitation_add", email="dee@example.com", org=ORG, role="member", days="7")
    ),
    "chat_invitation_revoke": Case("invite.revoke", form("chat_invitation_revoke"), invitation),
    "mail": Case("mail.test", lambda world, _: world.post("mail", to="dee@example.com"), mail_set_up),
    "chat_org_add": Case("org.create", form("chat_org_add", name="New")),
    "chat_org_change": Case("org.change", form("chat_org_change", ORG, name="Renamed")),
    "chat_org_delete": Case("org.delete", form("chat_org_delete"), empty_org),
    "chat_org: delete_selected": Case("org.delete", lambda world, org: world.bulk_delete("chat_org", org), empty_org),
    "chat_project_add": Case("project.create", form("chat_project_add", name="New", org=ORG, members=MEMBERS)),
    "chat_project_change": Case(
        "project.change", form("chat_project_change", PROJECT, name="Search", org=ORG, members=MEMBERS)
    ),
    "chat_project_delete": Case("project.delete", form("chat_project_delete"), empty_project),
    "chat_project: delete_selected": Case(
        "project.delete", lambda world, project: world.bulk_delete("chat_project", project), empty_project
    ),
    "chat_project_archive": Case("project.archive", form("chat_project_archive", PROJECT), empty_project),
    "chat_project_restore": Case("project.restore", form("chat_project_restore"), archived_project),
    "chat_adminkey_add": Case("admin_key.create", form("chat_adminkey_add", name="ci", org=ORG)),
    "chat_adminkey_revoke": Case("admin_key.revoke", form("chat_adminkey_revoke"), admin_key),
    "chat_serviceaccount_add": Case(
        "service_account.create key.create", form("chat_serviceaccount_add", name="ci", project=PROJECT)
    ),
    "chat_serviceaccount_change": Case(
        "service_account.change", form("chat_serviceaccount_change", name="deploy"), service_account
    ),
    "chat_serviceaccount_new_key": Case("key.create", form("chat_serviceaccount_new_key"), service_account),
    "chat_serviceaccount_delete": Case("service_account.delete", form("chat_serviceaccount_delete"), service_account),
    "chat_budget_add": Case("budget.create", form("chat_budget_add", **BUDGET, project=PROJECT)),
    "chat_budget_change": Case("budget.change", form("chat_budget_change", name="less", how_much="5"), budget_of),
    "chat_budget_delete": Case("budget.delete", form("chat_budget_delete"), budget_of),
    "chat_alertrule_change": Case(
        "rule.change", form("chat_alertrule_change", is_on="on", threshold="5", hold_s="30", cooldown_s="60"), disk_rule
    ),
    "chat_alertchannel_add": Case(
        "channel.create",
        form("chat_alertchannel_add", name="ops", kind="webhook", address="https://hooks.example.com/", is_on="on"),
    ),
    "chat_alertchannel_change": Case(
        "channel.change", form("chat_alertchannel_change", name="night", address="http://127.0.0.1:9/"), webhook_of
    ),
    "chat_alertchannel_send_test": Case("channel.test", form("chat_alertchannel_send_test"), webhook_of),
    "chat_alertchannel_rotate": Case("channel.rotate", form("chat_alertchannel_rotate"), webhook_of),
    "chat_alertchannel_delete": Case("channel.delete", form("chat_alertchannel_delete"), webhook_of),
    "chat_apikey_add": Case("key.create", key_fields()),
    "chat_apikey_change": Case(
        "key.change",
        lambda world, _: world.post(
            "chat_apikey_change", world.key.pk, **key_form(world.project, requests_per_minute=5)
        ),
    ),
    "chat_apikey_rotate": Case("key.rotate", form("chat_apikey_rotate", key_of("key"), overlap_hours="1")),
    "chat_apikey_disable": Case("key.disable", form("chat_apikey_disable", key_of("key"))),
    "chat_apikey_enable": Case(
        "key.enable", form("chat_apikey_enable", key_of("key")), lambda world: key_disable(key=world.key)
    ),
    "chat_apikey_delete": Case("key.delete", form("chat_apikey_delete", key_of("key"), name="worker")),
    "chat_auditentry_export": Case(
        "audit.export", lambda world, _: world.client.get(reverse("admin:chat_auditentry_export", args=["csv"]))
    ),
    "chat_requestlog_text": Case(
        "request.read",
        lambda world, log: world.client.get(reverse("admin:chat_requestlog_text", args=[log.pk])),
        request_with_text,
    ),
    "chat_requestlog_export": Case(
        "requests.export", lambda world, _: world.client.get(reverse("admin:chat_requestlog_export", args=["csv"]))
    ),
    "usage_export": Case(
        "usage.export", lambda world, _: world.client.get(reverse("admin:usage_export", args=["periods", "csv"]))
    ),
    "chat_projectfile_delete": Case("file.delete", form("chat_projectfile_delete", key_of("file"))),
    "chat_batch_cancel": Case("batch.cancel", form("chat_batch_cancel", key_of("batch"))),
    "chat_servedmodel_add": Case("model.create", form("chat_servedmodel_add", **model_data(name="third"))),
    "chat_servedmodel_change": Case(
        "model.change",
        form("chat_servedmodel_change", key_of("model"), **model_data(name="small", is_default="on")),
    ),
    "chat_servedmodel_delete": Case(
        "model.delete", form("chat_servedmodel_delete", key_of("model")), lambda world: world.alias.delete() and None
    ),
    "chat_servedmodel_load": Case("model.load", form("chat_servedmodel_load", key_of("model"))),
    "chat_servedmodel_unload": Case("model.unload", form("chat_servedmodel_unload", key_of("model"))),
    "chat_modelprice_add": Case(
        "price.create", form("chat_modelprice_add", model=key_of("model"), zone="UTC", input="1", output="2")
    ),
    "chat_modelprice_delete": Case("price.delete", form("chat_modelprice_delete"), coming_price),
    "chat_servedmodel_restart": Case("model.restart", form("chat_servedmodel_restart", key_of("model"))),
    "chat_servedmodel_pin": Case("model.change", form("chat_servedmodel_pin", key_of("model"))),
    "chat_servedmodel_unpin": Case(
        "model.change",
        form("chat_servedmodel_unpin", key_of("model")),
        lambda world: ServedModel.objects.filter(pk=world.model.pk).update(pinned=True),
    ),
    "model_warm": Case("model.warm", form("model_warm", key_of("model"))),
    "worker_drain": Case("worker.drain", form("worker_drain", lambda world: world.worker)),
    "worker_resume": Case("worker.resume", form("worker_resume", lambda world: world.worker)),
    "request_cancel": Case("request.cancel", form("request_cancel", lambda world: world.run_id)),
    "chat_modeladapter_add": Case("adapter.create", form("chat_modeladapter_add", model=key_of("model"), **ADAPTER)),
    "chat_modeladapter_change": Case(
        "adapter.change", form("chat_modeladapter_change", key_of("adapter"), model=key_of("model"), **ADAPTER)
    ),
    "chat_modeladapter_delete": Case("adapter.delete", form("chat_modeladapter_delete", key_of("adapter"))),
    "chat_weightedalias_add": Case(
        "alias.create", form("chat_weightedalias_add", name="both", lines="small 1\nlarge 2")
    ),
    "chat_weightedalias_change": Case(
        "alias.change", form("chat_weightedalias_change", key_of("alias"), lines="large 2")
    ),
    "chat_weightedalias_delete": Case("alias.delete", form("chat_weightedalias_delete", key_of("alias"))),
    "chat_modeljob_add": Case("job.create", form("chat_modeljob_add", kind="pull", asked="org/other")),
    "chat_modeljob_cancel": Case("job.cancel", form("chat_modeljob_cancel", key_of("job"))),
}


def acts_of_console(user: User) -> Iterator[str]:
    """Yield the name of every act that a superuser may do on a page."""
    request = RequestFactory().get("/")
    request.user = user
    for model in apps.get_models():
        if not admin.site.is_registered(model):
            continue
        page = admin.site.get_model_admin(model)
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        names = [url.name for url in page.get_urls() if url.name]
        yield from (one for one in names if one.removeprefix(f"{name}_") not in VIEWS)
        for act in ("add", "change", "delete"):
            if getattr(page, f"has_{act}_permission")(request):
                yield f"{name}_{act}"
        yield from (f"{name}: {act}" for act in page.get_actions(request))
    yield from (str(url.name) for url in admin.site.pages)


def test_each_act_of_the_console_has_a_case(admin_user: User) -> None:
    assert set(acts_of_console(admin_user)) - UNAUDITED == set(CASES)


@pytest.mark.parametrize("act", CASES)
def test_each_act_leaves_one_entry_of_who_did_what(world: World, act: str) -> None:
    case = CASES[act]
    made = case.prepare(world)
    last = last_entry()
    case.ask(world, made)
    entries = entries_after(last)
    assert [entry.action for entry in entries] == case.action.split()
    for entry in entries:
        assert (entry.actor_kind, entry.actor_name, entry.source) == ("user", "admin", "console")
        assert entry.address == "127.0.0.1"
        assert entry.request_id
        assert entry.object_name or entry.action.endswith(".export")
        if entry.action.endswith(".change"):
            assert set(entry.before) == set(entry.after)
            assert entry.before


def test_the_answer_has_the_request_id_of_its_entry(world: World) -> None:
    answer = world.client.post(reverse("admin:chat_apikey_disable", args=[world.key.pk]))
    (entry,) = entries_after(last_entry() - 1)
    assert answer["X-Request-Id"] == entry.request_id
    assert "X-Request-Id" not in world.client.get(reverse("admin:index"))


def test_members_are_named_and_a_refused_form_leaves_nothing(world: World) -> None:
    last = last_entry()
    page = reverse("admin:chat_project_change", args=[world.project.pk])
    world.client.post(page, {"name": "", "org": world.project.org_id})
    assert entries_after(last) == []
    world.post("chat_project_change", world.project.pk, name="Found", members=[world.user.pk], may_share="on")
    (entry,) = entries_after(last)
    assert (entry.before, entry.after) == (
        {"name": "Search", "members": []},
        {"name": "Found", "members": ["ann"]},
    )


def test_what_a_deleted_model_leaves_behind_is_recorded_too(world: World) -> None:
    ServedModel.objects.filter(name="large").update(fallback="small")
    last = last_entry()
    world.post("chat_servedmodel_delete", world.model.pk)
    assert [(entry.action, entry.object_name) for entry in entries_after(last)] == [
        ("model.change", "large"),
        ("alias.delete", "either"),
        ("model.delete", "small"),
    ]


def test_entries_outlive_the_account_and_its_deletion_adds_no_other(world: World) -> None:
    staff = User.objects.create_superuser("staff", password=PASSWORD)
    client = Client()
    client.force_login(staff)
    client.post(reverse("admin:chat_org_change", args=[world.project.org_id]), {"name": "Renamed"})
    last = last_entry()
    world.post("auth_user_delete", staff.pk)
    assert [entry.action for entry in entries_after(last)] == ["user.delete"]
    kept = entries_after(0)
    assert [entry.actor_name for entry in kept if entry.action == "org.change"] == ["staff"]
