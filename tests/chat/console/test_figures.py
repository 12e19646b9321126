"""Figures have the form of the reader's language on pages, and that of programs everywhere else."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management.color import no_style
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from chat.access.chat_projects import default_project
from chat.access.keys import key_create
from chat.access.models import Membership, Org, Project
from chat.budgets.models import Budget
from chat.catalog.models import ServedModel
from chat.console.figures import fraction, gigabytes, milliseconds, number, percent, short_number, signed
from chat.usage.prices import cost_text
from chat.usage.services import usage_records_write
from tests.chat.console.test_roles_matrix import NONE, PAGES, address, rows_made
from tests.chat.records import NOON, record
from tests.people import member

FIGURES = [
    (lambda: number(0), "0", "0"),
    (lambda: number(1_033), "1,033", "1.033"),
    (lambda: number(-1_234_567.5, 1), "-1,234,567.5", "-1.234.567,5"),
    (lambda: number(2.675, 0), "3", "3"),
    (lambda: short_number(7e-06), "0.000007", "0,000007"),
    (lambda: short_number(1e21, 3), "1,000,000,000,000,000,000,000", "1.000.000.000.000.000.000.000"),
    (lambda: short_number(4.50), "4.5", "4,5"),
    (lambda: short_number(100.0), "100", "100"),
    (lambda: fraction(Decimal("1234.5")), "1,234.50", "1.234,50"),
    (lambda: fraction(Decimal("0.075")), "0.075", "0,075"),
    (lambda: signed(1_477.44, 1), "+1,477.4", "+1.477,4"),
    (lambda: signed(-3.0, 1), "-3.0", "-3,0"),
    (lambda: percent(0.043, 1), "4.3 %", "4,3 %"),
    (lambda: milliseconds(850), "850 ms", "850 ms"),
    (lambda: milliseconds(1_240_000), "1,240.00 s", "1.240,00 s"),
    (lambda: gigabytes(1_234_567_890_123), "1,234.57 GB", "1.234,57 GB"),
    (lambda: cost_text(1_234_567_890_000), "1,234.57 USD", "1.234,57 USD"),
    (lambda: cost_text(605_912_000), "0.605912 USD", "0,605912 USD"),
    (lambda: cost_text(1), "<0.000001 USD", "<0,000001 USD"),
]


@pytest.mark.parametrize(("text", "english", "german"), FIGURES)
def test_a_figure_has_the_form_of_the_language(text, english, german):
    with override("en"):
        assert text() == english
    with override("de"):
        assert text() == german


NOON_AT = datetime.fromtimestamp(NOON, UTC)
LARGE = 1_234_567
"""An id that has separators where it is taken for a figure."""
READ_BY_PROGRAMS = frozenset(
    ("value", "href", "action", "name", "id", "for", "maxlength", "minlength", "min", "max", "step", "rows", "colspan")
)
DAYS = {"span": "days", "first": "2026-01-01", "last": "2026-01-01", "zone": "UTC"}


class Attributes(HTMLParser):
    """The attributes of a page that programs read."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("name") != "csrfmiddlewaretoken" and given.get("type") not in ("submit", "button"):
            self.found += [(tag, name, value) for name, value in attrs if name in READ_BY_PROGRAMS]


def attributes(page: str) -> list[tuple[str, str, str | None]]:
    read = Attributes()
    read.feed(page)
    return read.found


@pytest.fixture
def root(db: None) -> Client:
    """Return the client of a person who may do everything, in German."""
    client = Client(headers={"accept-language": "de"})
    client.force_login(User.objects.create_superuser("root", pk=LARGE))
    return client


def test_ids_and_fields_are_the_same_in_each_language(root: Client) -> None:
    org = Org.objects.create(pk=LARGE, name="Home")
    project = Project.objects.create(pk=LARGE, org=org, name="One", tokens_per_minute=LARGE)
    other = Project.objects.create(org=Org.objects.create(name="Away"), name="Two")
    ServedModel.objects.create(pk=LARGE, name="large", path="/models/large.gguf")
    with connection.cursor() as cursor:
        for line in connection.ops.sequence_reset_sql(no_style(), [User, Org, Project, ServedModel]):
            cursor.execute(line)
    rows = rows_made(member("somebody", org=org), project, other)
    places = [reverse("account")]
    for model, page in PAGES.items():
        row = next(iter(rows[model].values()))
        places += [address(model, "changelist"), address(model, "change", row.pk)]
        places += [] if page.add is NONE else [address(model, "add")]
    for place in places:
        german = root.get(place)
        english = root.get(place, headers={"accept-language": "en"})
        assert german.status_code == english.status_code == 200, place
        assert attributes(german.text) == attributes(english.text), place


def test_figures_of_a_row_have_the_form_of_the_language(root: Client) -> None:
    usage_records_write([record(prompt_tokens=5580, cached_tokens=1395)])
    page = root.get(reverse("admin:chat_requestlog_changelist")).text
    assert "5.580 (1.395)" in page
    row = re.search(r'href="([^"]+/change/[^"]*)"', page)
    assert row is not None
    assert "1.395" in root.get(row[1]).text
    usage = root.get(reverse("admin:usage"), DAYS).text
    assert "5.580" in usage
    assert "5,580" not in usage


@pytest.mark.parametrize("language", ["en", "de"])
def test_instants_have_one_form(root: Client, language: str) -> None:
    person = member("somebody", org=Org.objects.create(name="Home"))
    User.objects.filter(pk=person.pk).update(last_login=NOON_AT, date_joined=NOON_AT)
    person.memberships.update(created_at=NOON_AT)
    for place in (address(User, "changelist"), address(User, "change", person.pk), address(Membership, "changelist")):
        assert "2026-01-01 12:00:00 UTC" in root.get(place, headers={"accept-language": language}).text, place


def test_a_form_takes_back_what_it_shows(root: Client) -> None:
    budget = Budget.objects.create(
        name="Large", scope="project", project=default_project(), unit="money", amount=1_234_500_000
    )
    place = address(Budget, "change", budget.pk)
    shown = {name: value for _tag, name, value in attributes(root.get(place).text) if name == "value"}
    assert "1.234,5" not in str(shown)
    fields = {name: value for name, value in _fields(root.get(place).text) if name != "_continue"}
    assert Decimal(fields["how_much"]) == Decimal("1234.5")
    assert root.post(place, fields).status_code == 302
    budget.refresh_from_db()
    assert budget.amount == 1_234_500_000


def test_files_are_the_same_in_each_language(root: Client) -> None:
    key = key_create(project=default_project(), name="one")[0]
    where = {"key_public_id": key.public_id, "project_id": key.project_id, "org_id": key.project.org_id}
    usage_records_write([record(at_s=NOON, prompt_tokens=1_234_567, **where)])
    days = f"?{urlencode(DAYS)}"
    exports = [reverse("admin:usage_export", args=["periods", name]) + days for name in ("csv", "jsonl")]
    exports += [reverse("admin:chat_requestlog_export", args=[name]) for name in ("csv", "jsonl")]
    for place in exports:
        german, english = (read(root, place, language) for language in ("de", "en"))
        assert german == english, place
        assert "1234567" in german, place


def read(client: Client, place: str, language: str) -> str:
    answer: Any = client.get(place, headers={"accept-language": language})
    assert answer.status_code == 200

    async def pieces() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(pieces)().decode()


def _fields(page: str) -> list[tuple[str, str]]:
    """Return what a browser would send of a form: its fields and chosen options."""
    found: list[tuple[str, str]] = []
    for select in re.finditer(r'<select name="([^"]+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', select[2])
        found += [(select[1], chosen[1])] if chosen else []
    for one in re.finditer(r"<input [^>]*>", page):
        name, value = (re.search(rf'\b{each}="([^"]*)"', one[0]) for each in ("name", "value"))
        kind = re.search(r'\btype="([^"]*)"', one[0])
        if name and (not kind or kind[1] not in ("submit", "checkbox") or " checked" in one[0]):
            found.append((name[1], value[1] if value else ""))
    return found
