"""Each role at each page of the console: what opens, what may be done, and whose rows show, by the policy of roles.

The pages are those of the admin site. One that is not declared here with its acts fails.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db.models import Model
from django.template.response import TemplateResponse
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.access.keys import key_create
from chat.access.roles import Act, Reach, Role, role_reach
from chat.alerts.models import CONDITIONS, Condition
from chat.alerts.rules import rules_read
from chat.audit.services import Subject, audit_record
from chat.budgets.services import budget_save
from chat.models import (
    AdminKey,
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertRule,
    ApiKey,
    AuditEntry,
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
    RequestText,
    ServedModel,
    ServiceAccount,
    WeightedAlias,
)
from tests.people import member


class Nobody(Enum):
    ROOT = "superusers only"
    NONE = "nobody"


ROOT, NONE = Nobody.ROOT, Nobody.NONE
Need = Act | Nobody


class Place(Enum):
    """Where a row is, seen from the person: a smaller reach shows fewer of them."""

    MINE = Reach.OWN
    PROJECT = Reach.PROJECTS
    ORG = Reach.ORG
    OTHER = Reach.ORG + 1


@dataclass(frozen=True)
class Page:
    see: Act
    add: Need = NONE
    change: Need = NONE
    delete: Need = NONE
    acts: Mapping[str, Need] = field(default_factory=dict)
    """Buttons of a row."""
    list_acts: Mapping[str, Need] = field(default_factory=dict)
    """Buttons of the list."""
    has_detail: bool = True
    kept: frozenset[Place] = frozenset()
    """Whose row nobody deletes."""

    def delete_need(self, place: Place) -> Need:
        return NONE if place in self.kept else self.delete


def managed(see: Act, manage: Act, **more: Any) -> Page:
    return Page(see, add=manage, change=manage, delete=manage, **more)


KEYS, MODELS = Act.KEYS_MANAGE, Act.MODELS_MANAGE
PAGES: dict[type[Model], Page] = {
    ApiKey: managed(Act.KEYS_SEE, KEYS, acts={"rotate": KEYS, "disable": KEYS, "enable": KEYS}),
    AdminKey: Page(Act.ADMIN_KEYS_SEE, add=Act.ADMIN_KEYS_MANAGE, acts={"revoke": Act.ADMIN_KEYS_MANAGE}),
    ServiceAccount: managed(Act.PROJECTS_SEE, Act.PROJECTS_MANAGE, acts={"new_key": Act.PROJECTS_MANAGE}),
    Project: managed(
        Act.PROJECTS_SEE,
        Act.PROJECTS_MANAGE,
        acts=dict.fromkeys(("redaction", "archive", "restore"), Act.PROJECTS_MANAGE),
    ),
    Org: Page(Act.PROJECTS_SEE, add=ROOT, change=Act.ORG_CHANGE, delete=ROOT, kept=frozenset({Place.PROJECT})),
    Membership: managed(Act.PEOPLE_SEE, Act.PEOPLE_MANAGE),
    User: managed(Act.PEOPLE_SEE, Act.PEOPLE_MANAGE),
    Invitation: Page(Act.PEOPLE_SEE, add=Act.PEOPLE_MANAGE, acts={"revoke": Act.PEOPLE_MANAGE}),
    Budget: managed(Act.USAGE_SEE, Act.BUDGETS_MANAGE),
    Alert: Page(Act.USAGE_SEE),
    AlertChannel: managed(
        Act.USAGE_SEE, Act.BUDGETS_MANAGE, acts=dict.fromkeys(("send_test", "rotate"), Act.BUDGETS_MANAGE)
    ),
    AlertDelivery: Page(Act.USAGE_SEE),
    AlertRule: Page(Act.ALERTS_SEE, change=Act.ALERTS_MANAGE),
    Batch: Page(Act.BATCHES_SEE, acts={"cancel": Act.BATCHES_MANAGE}),
    ProjectFile: Page(Act.BATCHES_SEE, delete=Act.BATCHES_MANAGE),
    RequestLog: Page(Act.LOGS_SEE, acts={"text": Act.BODIES_SEE}),
    AuditEntry: Page(Act.AUDIT_SEE),
    ServedModel: managed(
        Act.MODELS_SEE,
        MODELS,
        acts=dict.fromkeys(("load", "unload", "restart", "pin", "unpin"), MODELS),
        list_acts={"pull": MODELS},
    ),
    ModelAdapter: managed(Act.MODELS_SEE, MODELS),
    ModelPrice: Page(Act.MODELS_SEE, add=MODELS, delete=MODELS),
    WeightedAlias: managed(Act.MODELS_SEE, MODELS),
    ModelJob: Page(Act.MODELS_SEE, add=MODELS, acts={"cancel": MODELS}),
}
"""What each page asks for."""
OWN_PAGES = {
    "mail": Act.SYSTEM_SEE,
    "model_try": Act.MODELS_SEE,
    "system": Act.SYSTEM_SEE,
    "usage": Act.USAGE_SEE,
    "workers": Act.WORKERS_SEE,
}
"""Pages that belong to no table."""
OF_EVERYBODY = frozenset(
    ("index", "app_list", "search", "autocomplete", "jsi18n", "view_on_site")
    + ("login", "logout", "password_change", "password_change_done")
)
"""Pages that open with any role; they show what the others do."""
LIVE_PAGES = ("live_snapshot", "worker_drain", "worker_resume", "request_cancel", "model_warm", "model_fit")
TESTED_ELSEWHERE = frozenset(
    {
        "auth_user_password_change",
        "chat_auditentry_export",
        "chat_requestlog_export",
        "chat_servedmodel_warm",
        "usage_export",
        "auth_user_reset_link",
        "auth_user_remove_factors",
        *LIVE_PAGES,
    }
)
"""In test_people.py, test_request_log.py, test_usage.py, and, below tests/chat, audit/test_page.py, live/test_roles.py
and access/test_invitations.py.
"""
REFUSED = {302, 403, 404}
"""For a row that does not show: as for one that does not exist."""


@dataclass(frozen=True)
class World:
    """A person with a role, and rows that are near and far."""

    person: User
    client: Client
    role: Role | None
    """None: a superuser."""
    is_operator: bool
    rows: Mapping[type[Model], Mapping[Place, Any]]

    def reach(self, need: Need) -> int:
        """Return how far an act goes. A superuser reaches other organisations."""
        if self.role is None:
            return 0 if need is NONE else Place.OTHER.value
        if isinstance(need, Nobody) or (need.is_of_installation and not self.is_operator):
            return 0
        return role_reach(self.role, need)


def name_of(model: type[Model], place: Place) -> str:
    """Return the text by which a row is found on a page. A membership shows as its person, a price as its model."""
    if model is AlertRule:
        return str(CONDITIONS[Condition.DISK_LOW])
    model = {Membership: User, ModelPrice: ServedModel}.get(model, model)
    return f"{model.__name__}-{place.name}".lower()


def rows_made(person: User, project: Project, other: Project) -> dict[type[Model], dict[Place, Any]]:
    """Make a row of each table in each place that the table knows."""
    second = Project.objects.create(org=project.org, name=name_of(Project, Place.ORG))
    projects = {Place.PROJECT: project, Place.ORG: second, Place.OTHER: other}
    keys = {
        place: key_create(project=where, name=name_of(ApiKey, place), owner=owner)[0]
        for place, where, owner in (
            (Place.MINE, project, person),
            (Place.ORG, project, None),
            (Place.OTHER, other, None),
        )
    }
    colleague = member(name_of(User, Place.ORG), org=project.org)
    stranger = member(name_of(User, Place.OTHER), org=other.org)
    rows: dict[type[Model], dict[Place, Any]] = {
        Project: projects,
        ServiceAccount: {
            place: ServiceAccount.objects.create(project=where, name=name_of(ServiceAccount, place))
            for place, where in projects.items()
        },
        Org: {Place.PROJECT: project.org, Place.OTHER: other.org},
        ApiKey: keys,
        User: {Place.ORG: colleague, Place.OTHER: stranger},
        Invitation: {
            Place.ORG: invitation_made(Place.ORG, colleague, project),
            Place.OTHER: invitation_made(Place.OTHER, stranger, other),
        },
        AdminKey: {
            Place.ORG: admin_key_made(Place.ORG, colleague, project.org),
            Place.OTHER: admin_key_made(Place.OTHER, stranger, other.org),
        },
        Membership: {Place.ORG: colleague.memberships.get(), Place.OTHER: stranger.memberships.get()},
    }
    makers = {
        Budget: budget_made,
        AuditEntry: entry_made,
        RequestLog: log_made,
        Batch: batch_made,
        ProjectFile: file_made,
    }
    for model, make in makers.items():
        rows[model] = {place: make(name_of(model, place), key) for place, key in keys.items()}
    rows |= alerts_made(project.org, other.org)
    served = ServedModel.objects.create(name=name_of(ServedModel, Place.ORG), path="/models/x.gguf")
    rows[ServedModel] = {Place.ORG: served}
    rows[ModelPrice] = {
        Place.ORG: ModelPrice.objects.create(
            model=served, model_name=name_of(ServedModel, Place.ORG), starts_at=timezone.now(), input=1, output=1
        )
    }
    adapter = ModelAdapter.objects.create(model=served, name=name_of(ModelAdapter, Place.ORG), path="/adapter")
    rows[ModelAdapter] = {Place.ORG: adapter}
    targets = [{"model": served.name, "weight": 1}]
    rows[WeightedAlias] = {
        Place.ORG: WeightedAlias.objects.create(name=name_of(WeightedAlias, Place.ORG), targets=targets)
    }
    rows[ModelJob] = {
        Place.ORG: ModelJob.objects.create(public_id="job_1", kind="pull", asked=name_of(ModelJob, Place.ORG))
    }
    return rows


def admin_key_made(place: Place, by: User, org: Org) -> AdminKey:
    name = name_of(AdminKey, place)
    return AdminKey.objects.create(public_id=name, name=name, org=org, owner=by, digest=name)


def invitation_made(place: Place, by: User, project: Project) -> Invitation:
    return Invitation.objects.create(
        digest=place.name,
        email=f"{name_of(Invitation, place)}@example.com",
        org=project.org,
        created_by=by,
        expires_at=timezone.now() + timedelta(days=1),
    )


def log_made(name: str, key: ApiKey) -> RequestLog:
    where = {"org_id": key.project.org_id, "project_id": key.project_id, "key_public_id": key.public_id}
    run_id = uuid4()
    text = zlib.compress(b'{"request": {"messages": []}, "answers": []}')
    RequestText.objects.create(run_id=run_id, packed=text, num_bytes=45, is_cut=False)
    return RequestLog.objects.create(
        run_id=run_id,
        arrived_at=timezone.now(),
        status=200,
        outcome="finished",
        model=name,
        account_id=key.owner_id,
        **where,
    )


def entry_made(name: str, key: ApiKey) -> AuditEntry:
    audit_record(action="key.change", on=Subject(key.public_id, name, key.project.org_id, key.project_id))
    return AuditEntry.objects.get(object_name=name)


def alerts_made(home: Org, away: Org) -> dict[type[Model], dict[Place, Any]]:
    """Make alerts of budgets with their deliveries and channels. Members see none of them."""
    made: dict[type[Model], dict[Place, Any]] = {Alert: {}, AlertChannel: {}, AlertDelivery: {}}
    now = timezone.now()
    for place, org in ((Place.ORG, home), (Place.OTHER, away)):
        known = {"condition": "budget_80", "since": now, "fired_at": now, "seen_at": now, "value": 80}
        made[Alert][place] = Alert.objects.create(name=name_of(Alert, place), subject=f"b:{place}", org=org, **known)
        channel = AlertChannel.objects.create(
            name=name_of(AlertChannel, place), org=org, address="https://hooks.example.com/x"
        )
        made[AlertChannel][place] = channel
        made[AlertDelivery][place] = AlertDelivery.objects.create(
            channel=channel, channel_name=org.name, org=org, event="firing", title=name_of(AlertDelivery, place)
        )
    return made | {AlertRule: {Place.ORG: rules_read()[Condition.DISK_LOW]}}


def budget_made(name: str, key: ApiKey) -> Budget:
    budget = Budget(name=name, scope="key", key=key, amount=100)
    budget_save(budget=budget)
    return budget


def file_made(name: str, key: ApiKey) -> ProjectFile:
    return ProjectFile.objects.create(
        public_id=f"file-{name}"[:40],
        filename=name,
        project=key.project,
        key_public_id=key.public_id,
        purpose="batch",
        is_complete=True,
    )


def batch_made(name: str, key: ApiKey) -> Batch:
    return Batch.objects.create(
        public_id=name,
        project=key.project,
        key_public_id=key.public_id,
        endpoint="/v1/chat/completions",
        input_file_id="file-x",
        expires_at=timezone.now(),
    )


@pytest.fixture(autouse=True)
def _no_kept_search() -> Iterator[None]:
    """Forget searches of the console, which are kept by the id of their user."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def world(db: None) -> Callable[..., World]:
    def make(role: Role | None, *, is_operator: bool = True) -> World:
        home = Org.objects.create(name=name_of(Org, Place.PROJECT), is_operator=is_operator)
        away = Org.objects.create(name=name_of(Org, Place.OTHER), is_operator=not is_operator)
        project = Project.objects.create(org=home, name=name_of(Project, Place.PROJECT))
        other = Project.objects.create(org=away, name=name_of(Project, Place.OTHER))
        person = User.objects.create_superuser("person") if role is None else member("person", role.value, org=home)
        project.members.add(person)
        client = Client()
        client.force_login(User.objects.get(pk=person.pk))
        return World(person, client, role, is_operator, rows_made(person, project, other))

    return make


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render no page, which takes most of the time: only what is answered counts, and texts of refusals."""
    monkeypatch.setattr(TemplateResponse, "rendered_content", "")


EVERYBODY = pytest.mark.parametrize("role", [None, *Role], ids=lambda role: role or "superuser")


def address(model: type[Model], page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def is_right(status: int, *, is_shown: bool, is_done: bool) -> bool:
    """Return True for 200 where it is done, 403 where the row shows but it is not, and else as for a missing row."""
    return status == (200 if is_done else 403) if is_shown else status in REFUSED


def addresses(patterns: Iterable[Any]) -> Iterator[str]:
    """Return the names of all addresses. The two without one only lead on."""
    for pattern in patterns:
        yield from addresses(pattern.url_patterns) if hasattr(pattern, "url_patterns") else filter(None, [pattern.name])


def test_each_page_of_the_console_declares_its_acts() -> None:
    declared = {*OF_EVERYBODY, *TESTED_ELSEWHERE, *OWN_PAGES}
    for model, page in PAGES.items():
        names = ("changelist", "add", "change", "delete", "history", *page.acts, *page.list_acts)
        declared |= {f"{model._meta.app_label}_{model._meta.model_name}_{name}" for name in names}
    assert set(addresses(admin.site.get_urls())) == declared


@EVERYBODY
@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize("is_operator", [True, False])
def test_pages_of_no_table_open_by_their_act(world: Callable[..., World], role: Role | None, is_operator: bool) -> None:
    here = world(role, is_operator=is_operator)
    for name, act in OWN_PAGES.items():
        assert here.client.get(reverse(f"admin:{name}")).status_code == (200 if here.reach(act) else 403), name
    for name in OF_EVERYBODY & {"index", "password_change"}:
        assert here.client.get(reverse(f"admin:{name}"), follow=True).status_code == 200, name


@EVERYBODY
def test_lists_show_what_the_role_reaches(world: Callable[..., World], role: Role | None) -> None:
    here = world(role)
    for model, page in PAGES.items():
        reach = here.reach(page.see)
        answer = here.client.get(address(model, "changelist"))
        assert answer.status_code == (200 if reach else 403), model
        for place in here.rows[model]:
            assert (name_of(model, place) in answer.text) == (place.value <= reach), (model, place)
        assert here.client.get(address(model, "add")).status_code == (200 if here.reach(page.add) else 403), model
        for name, need in page.list_acts.items():
            assert here.client.get(address(model, name)).status_code == (302 if here.reach(need) else 403), name


@EVERYBODY
def test_acts_on_the_installation_are_for_its_operator(world: Callable[..., World], role: Role | None) -> None:
    here = world(role, is_operator=False)
    for model, page in PAGES.items():
        if page.see.is_of_installation:
            status = 200 if here.reach(page.see) else 403
            assert here.client.get(address(model, "changelist")).status_code == status, model


@EVERYBODY
def test_rows_show_as_far_as_the_role_reaches(world: Callable[..., World], role: Role | None) -> None:
    here = world(role)
    for model, page in PAGES.items():
        for place, row in here.rows[model].items():
            is_shown = page.has_detail and place.value <= here.reach(page.see)
            answer = here.client.get(address(model, "change", row.pk))
            assert is_right(answer.status_code, is_shown=is_shown, is_done=True), (model, place)
            assert (name_of(model, place) in answer.text) == is_shown, (model, place)


@EVERYBODY
@pytest.mark.usefixtures("unrendered")
def test_buttons_of_rows_open_as_far_as_the_role_reaches(world: Callable[..., World], role: Role | None) -> None:
    here = world(role)
    for model, page in PAGES.items():
        for place, row in here.rows[model].items():
            is_shown = page.has_detail and place.value <= here.reach(page.see)
            answer = here.client.get(address(model, "history", row.pk))
            assert is_right(answer.status_code, is_shown=is_shown, is_done=True), (model, place)
            asked: list[tuple[str, Need]] = [("delete", page.delete_need(place)), *page.acts.items()]
            for name, need in asked:
                answer = here.client.get(address(model, name, row.pk))
                is_done = place.value <= here.reach(need)
                assert is_right(answer.status_code, is_shown=is_shown, is_done=is_done), (model, place, name)
                assert name_of(model, place) not in answer.text, (model, place, name)


@EVERYBODY
@pytest.mark.usefixtures("unrendered")
def test_rows_change_as_far_as_the_role_reaches(world: Callable[..., World], role: Role | None) -> None:
    """Forms are sent without what they require, so that 200 tells what is missing."""
    here = world(role)
    for model, page in PAGES.items():
        for place, row in here.rows[model].items():
            is_shown = page.has_detail and place.value <= here.reach(page.see)
            answer = here.client.post(address(model, "change", row.pk), {})
            is_done = place.value <= here.reach(page.change)
            assert is_right(answer.status_code, is_shown=is_shown, is_done=is_done), (model, place)
            if place.value > here.reach(page.delete_need(place)):
                here.client.post(address(model, "delete", row.pk), {"post": "yes"})
                bulk = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
                here.client.post(address(model, "changelist"), bulk)
                assert model._default_manager.filter(pk=row.pk).exists(), (model, place)


@EVERYBODY
def test_searches_and_choices_show_what_lists_show(world: Callable[..., World], role: Role | None) -> None:
    here = world(role)
    found = [here.client.get(reverse("admin:search"), {"s": term}).text for term in ("lightcone", "authentication")]
    for model, page in PAGES.items():
        link = f'href="{address(model, "changelist")}"'
        assert any(link in text for text in found) == bool(here.reach(page.see)), model
    for model, name, target in choices_of_pages():
        names = {"app_label": model._meta.app_label, "model_name": model._meta.model_name, "field_name": name}
        answer = here.client.get(reverse("admin:autocomplete"), names)
        reach = here.reach(PAGES[target].see)
        assert answer.status_code == (200 if reach else 403), (model, name)
        if reach:
            offered = {one["id"] for one in json.loads(answer.text)["results"]}
            for place, row in here.rows[target].items():
                assert (str(row.pk) in offered) == (place.value <= reach), (model, name, place)


def choices_of_pages() -> list[tuple[type[Model], str, type[Model]]]:
    """Return each relation of a page to another that is searched there."""
    return [
        (model, relation.name, relation.related_model)
        for model in PAGES
        for relation in model._meta.get_fields()
        if relation.is_relation and not relation.auto_created and relation.related_model in PAGES
        if admin.site._registry[relation.related_model].search_fields
    ]


def test_addresses_of_no_row_answer_as_for_a_missing_one(world: Callable[..., World]) -> None:
    """A word where a number is due was an error of the server."""
    here = world(Role.OWNER)
    for model, page in PAGES.items():
        for name in ("change", "history", "delete", *page.acts):
            for row_id in ("no", "9" * 30):
                assert here.client.get(address(model, name, row_id)).status_code in REFUSED, (model, name, row_id)
