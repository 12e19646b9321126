"""The page of usage: what it shows, to whom, and that its files say the same."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.access.keys import key_create
from chat.access.roles import Role
from chat.catalog.services import model_register
from chat.models import AuditEntry, ModelPrice, Org, Project, RequestLog, UsageTotal
from chat.usage.services import usage_records_write
from chat.usage.spans import Span
from tests.chat.records import NOON, record
from tests.people import member

DAYS = {"span": "days", "first": "2026-01-01", "last": "2026-01-01", "zone": "UTC"}
FORMULA = '=HYPERLINK("x")'


def page(client: Client, **query: str) -> str:
    answer = client.get(reverse("admin:usage"), DAYS | query)
    assert answer.status_code == 200
    return unescape(answer.text)


def tile(text: str, name: str) -> str:
    found = re.search(rf"<dt>{re.escape(name)}</dt><dd>([^<]*)</dd>", text)
    assert found is not None, name
    return found[1]


def remark(text: str, name: str) -> str:
    found = re.search(rf'<dt>{re.escape(name)}</dt><dd>[^<]*</dd><dd class="lc-remark">([^<]*)</dd>', text)
    assert found is not None, name
    return found[1]


def download(client: Client, part: str, format_name: str, **query: str) -> str:
    answer: Any = client.get(reverse("admin:usage_export", args=[part, format_name]), DAYS | query)
    assert answer.status_code == 200

    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(read)().decode()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def table(text: str) -> dict[str, list[str]]:
    """Return the cells of each row of the page's tables by its name."""
    found = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', text, re.S)
    return {re.sub("<.*?>", "", name): re.findall(r"<td>(.*?)</td>", cells) for name, cells in found}


def test_tiles_show_the_sums_and_compare_them_with_the_time_before(admin_client: Client) -> None:
    usage_records_write([record(reasoning_tokens=3) for _ in range(4)])
    usage_records_write([record(status=503, outcome="failed"), record(status=404, outcome="rejected")])
    usage_records_write([record(at_s=NOON - 86_400) for _ in range(3)])
    text = page(admin_client)
    assert tile(text, "Requests") == "6"
    assert remark(text, "Requests") == "+100.0 % against before"
    assert (tile(text, "Client errors"), tile(text, "Server errors")) == ("1", "1")
    assert tile(text, "Prompt tokens") == "50"
    assert remark(text, "Completion tokens") == "12 of reasoning, +66.7 % against before"
    assert "2026-01-01 00:00 to 2026-01-02 00:00, UTC" in text
    assert text.count('class="lc-chart"') == 3
    assert text.count("<tfoot>") == 1


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("model", {"small": "2", "large": "1"}),
        ("key", {"Robot (accept0001)": "1", "accept0002 (deleted)": "2"}),
        ("project", {"Acme / Search": "3"}),
        ("user", {"ann": "2", "(none)": "1"}),
        ("route", {"/v1/chat/completions": "2", "(none)": "1"}),
        ("status", {"answered": "2", "error of the server": "1"}),
        ("org", {"Acme": "3"}),
    ],
)
def test_groups_are_named_and_counted(
    admin_client: Client, project: Project, group: str, expected: dict[str, str]
) -> None:
    Org.objects.create(name="Other")
    ann = member("ann", org=project.org)
    key_create(project=project, name="Robot", raw=f"lc_accept0001_{'0' * 48}")
    where = {"org_id": project.org_id, "project_id": project.pk}
    route = "/v1/chat/completions"
    usage_records_write(
        [
            record(**where, route=route),
            record(**where, key_public_id="accept0002", account_id=ann.pk, model="large", route=route),
            record(**where, key_public_id="accept0002", account_id=ann.pk, status=500, outcome="failed"),
        ]
    )
    text = page(admin_client, group=group)
    found = {name: cells[0] for name, cells in table(text).items() if not name.startswith(("2026", "Together"))}
    assert found == expected


def test_a_group_leads_to_itself_alone_and_to_its_requests(admin_client: Client, project: Project) -> None:
    where = {"org_id": project.org_id, "project_id": project.pk}
    usage_records_write([record(**where), record(**where, model="a&b"), record(**where, model="a&b")])
    text = page(admin_client, group="model")
    assert f"/chat/requestlog/?model={quote('a&b')}" in text
    link = re.search(r'href="(\?[^"]*model=a%26b[^"]*)"', text)
    assert link is not None
    narrowed = unescape(admin_client.get(reverse("admin:usage") + link[1]).text)
    assert tile(narrowed, "Requests") == "2"
    assert "Model: a&b" in narrowed
    assert tile(page(admin_client, model="a&b", group="project"), "Requests") == "2", "from the facts"
    assert tile(page(admin_client, model="a&b", project=str(project.pk), group="key"), "Requests") == "2"
    assert tile(page(admin_client, model="other"), "Requests") == "0"


def test_days_are_those_of_the_zone(admin_client: Client) -> None:
    """23:30 UTC of the last day of 2025 is the first day of 2026 in Berlin."""
    usage_records_write([record(at_s=NOON - 12.5 * 3600), record(), record(at_s=NOON + 11.5 * 3600)])
    assert tile(page(admin_client), "Requests") == "2"
    assert table(page(admin_client, zone="Europe/Berlin", period="day"))["2026-01-01"][0] == "2"
    week = page(admin_client, zone="Europe/Berlin", first="2025-12-31", last="2026-01-02")
    assert [table(week)[f"{day}"][0] for day in ("2025-12-31", "2026-01-01", "2026-01-02")] == ["0", "2", "1"]
    hours = table(page(admin_client, zone="America/New_York", period="hour", last="2026-01-02"))
    assert hours["2026-01-01 07:00"][0] == "1"
    assert "Days are those of UTC" in page(admin_client, zone="Asia/Kolkata")
    admin_client.cookies["lightcone_zone"] = "Asia/Tokyo"
    assert "Asia/Tokyo" in admin_client.get(reverse("admin:usage")).text


@pytest.mark.parametrize(("day", "num_hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_day_on_which_clocks_are_set_has_its_own_hours(admin_client: Client, day: str, num_hours: int) -> None:
    first = datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() - 7200 + 3600 * (num_hours == 23)
    usage_records_write([record(at_s=first + hour * 3600) for hour in range(-1, 26)])
    query = {"zone": "Europe/Berlin", "first": "2026-01-01", "last": "2026-12-31"}
    assert table(page(admin_client, **query))[day][0] == str(num_hours)
    assert tile(page(admin_client, zone="Europe/Berlin", first=day, last=day), "Requests") == str(num_hours)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"zone": "Berlin"}, "is no time zone; write one such as Europe/Berlin"),
        ({"first": "2026-02-30"}, "Enter a valid date"),
        ({"first": ""}, "Give the first day and the last"),
        ({"first": "2026-01-02"}, "The last day is before the first; exchange them."),
        ({"first": "2016-01-02"}, "choose at most 1,830"),
        ({"first": "2025-11-02", "period": "hour"}, "choose at most 31"),
        ({"last": "9999-01-02"}, "Days are in the years 2000 to 2100"),
        ({"group": "colour"}, "Select a valid choice"),
        ({"span": "7y"}, "Select a valid choice"),
        ({"project": "NaN"}, "Enter a whole number"),
        ({"project": "-1"}, "greater than or equal to 0"),
        ({"user": "9" * 30}, "less than or equal to"),
        ({"model": "m" * 201}, "at most 200 characters"),
        ({"key": "a\0"}, "Null characters are not allowed"),
        ({"status": "bad"}, "Select a valid choice"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(
    admin_client: Client, query: dict[str, str], words: str
) -> None:
    usage_records_write([record()])
    assert words in page(admin_client, **query)
    answer = admin_client.get(reverse("admin:usage_export", args=["periods", "csv"]), DAYS | query)
    assert answer.status_code == 302, "no file of something else"
    assert not AuditEntry.objects.filter(action="usage.export").exists()


def test_many_days_by_hours_are_shown_by_days(admin_client: Client) -> None:
    answer = admin_client.get(reverse("admin:usage"), {"span": "90d", "period": "hour"})
    assert "Shown by days" in answer.text


@pytest.mark.parametrize("group", ["", "model", "key"])
def test_exported_figures_equal_the_shown_ones(admin_client: Client, group: str) -> None:
    price = {"model": model_register(name="small", path="/m"), "model_name": "small"}
    start = datetime(2020, 1, 1, tzinfo=UTC)
    ModelPrice.objects.create(starts_at=start, input=Decimal("0.15"), output=Decimal("0.333333"), **price)
    usage_records_write(
        [
            record(at_s=NOON + hour * 3600, key_public_id=f"key{hour % 3:05}", model=("small", "large")[hour % 2])
            for hour in range(60)
        ]
    )
    query = {"group": group, "last": "2026-01-04", "zone": "Europe/Berlin"}
    text = page(admin_client, **query)
    as_csv = rows_of(download(admin_client, "periods", "csv", **query))
    as_json = [json.loads(line) for line in download(admin_client, "periods", "jsonl", **query).splitlines()]
    for rows in (as_csv, as_json):
        assert f"{sum(int(row['requests']) for row in rows):,}" == tile(text, "Requests") == "60"
        assert f"{sum(int(row['completion_tokens']) for row in rows):,}" == tile(text, "Completion tokens")
        nanos = sum(Decimal(row["cost"]) for row in rows) * 10**9
        assert nanos == sum(RequestLog.objects.values_list("cost_nanos", flat=True)) > 0
        by_day = {day: sum(int(row["requests"]) for row in rows if row["from"].startswith(day)) for day in DAYS_SHOWN}
        assert by_day == {day: int(table(text)[day][0]) for day in DAYS_SHOWN}
    if group:
        shown = table(text)
        for row in rows_of(download(admin_client, "groups", "csv", **query)):
            cells = shown[row["name"]]
            assert (row["requests"], row["prompt_tokens"]) == (cells[0], cells[4])
            of_group = [one for one in as_csv if one["group"] == row["group"]]
            assert sum(int(one["requests"]) for one in of_group) == int(row["requests"])
    entry = AuditEntry.objects.filter(action="usage.export").first()
    assert entry is not None
    assert entry.after["filters"]["last"] == "2026-01-04"


DAYS_SHOWN = ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")


def test_cells_of_files_are_computed_by_no_spreadsheet(admin_client: Client) -> None:
    usage_records_write([record(model=FORMULA)])
    (row,) = rows_of(download(admin_client, "groups", "csv", group="model"))
    assert (row["group"], row["name"]) == (f"'{FORMULA}", f"'{FORMULA}")
    (line,) = download(admin_client, "groups", "jsonl", group="model").splitlines()
    assert json.loads(line)["name"] == FORMULA


def test_all_groups_are_in_the_file_and_the_first_fifty_on_the_page(admin_client: Client) -> None:
    usage_records_write([record(model=f"model-{number:03}") for number in range(60)])
    text = page(admin_client, group="model")
    assert "10 more are in the files." in text
    assert len([name for name in table(text) if name.startswith("model-")]) == 50
    rows = rows_of(download(admin_client, "groups", "csv", group="model"))
    assert len(rows) == 60
    assert all(row["first_token_ms_p50"] for row in rows)


def seen_by(role: str | None) -> tuple[str, list[str]]:
    """Return the requests that somebody of a role sees, on the page and in a file."""
    home = Org.objects.create(name="Home", is_operator=True)
    away = Org.objects.create(name="Away")
    person = User.objects.create_superuser("person") if role is None else member("person", role, org=home)
    usage_records_write(
        [
            record(org_id=home.pk, account_id=person.pk, key_public_id="mine000001"),
            record(org_id=home.pk, account_id=person.pk, key_public_id=""),
            record(org_id=home.pk, key_public_id="other00001"),
            record(org_id=home.pk, account_id=person.pk + 1, key_public_id="other00002"),
            record(org_id=away.pk, key_public_id="away000001"),
            record(org_id=away.pk, account_id=person.pk, key_public_id="away000002"),
        ]
    )
    client = Client()
    client.force_login(User.objects.get(pk=person.pk))
    rows = rows_of(download(client, "groups", "csv", group="key"))
    text = page(client, group="key")
    assert sum(int(row["requests"]) for row in rows) == int(tile(text, "Requests"))
    assert ("Shown is what you used" in text) == (role == "member")
    return tile(text, "Requests"), sorted(row["group"] for row in rows)


@pytest.mark.django_db
@pytest.mark.parametrize("role", [None, *Role.values], ids=lambda role: role or "superuser")
def test_each_role_sees_its_part(role: str | None) -> None:
    """A member sees own keys and own chats, all other roles their organisation, a superuser everything."""
    own, home = ["", "mine000001"], ["other00001", "other00002"]
    if role is None:
        assert seen_by(role) == ("6", sorted([*own, *home, "away000001", "away000002"]))
    elif role == "member":
        assert seen_by(role) == ("2", own)
    else:
        assert seen_by(role) == ("4", sorted([*own, *home]))


@pytest.mark.django_db
def test_roles_in_two_organisations_add_up() -> None:
    first, second = (Org.objects.create(name=name) for name in ("First", "Second"))
    person = member("person", "billing", org=first)
    person.memberships.create(org=second, role="member")
    usage_records_write(
        [
            record(org_id=first.pk),
            record(org_id=second.pk),
            record(org_id=second.pk, account_id=person.pk),
            record(org_id=second.pk + 1, account_id=person.pk),
        ]
    )
    client = Client()
    client.force_login(User.objects.get(pk=person.pk))
    assert tile(page(client), "Requests") == "2"


@pytest.mark.django_db
def test_a_filter_names_only_what_the_viewer_sees(project: Project) -> None:
    away = Org.objects.create(name="Away")
    secret = Project.objects.create(org=away, name="Secret")
    key_create(project=secret, name="Hidden", raw=f"lc_away000001_{'0' * 48}")
    key_create(project=project, name="Robot", raw=f"lc_home000001_{'0' * 48}")
    eve = member("eve-of-away", org=away)
    ann = member("ann", "owner", org=project.org)
    client = Client()
    client.force_login(User.objects.get(pk=ann.pk))
    text = page(client, project=str(secret.pk), user=str(eve.pk), key="away000001")
    for words in (f"Project: #{secret.pk}", f"Person: #{eve.pk}", "API key: away000001"):
        assert words in text, words
    assert not [word for word in ("Secret", "eve-of-away", "Hidden") if word in text]
    text = page(client, project=str(project.pk), user=str(ann.pk), key="home000001")
    for words in (f"Project: {project.org} / {project}", "Person: ann", "API key: Robot (home000001)"):
        assert words in text, words


def test_a_choice_of_days_without_days_asks_for_them(admin_client: Client) -> None:
    answer = admin_client.get(reverse("admin:usage"), {"span": "days"})
    assert (answer.status_code, "Give the first day and the last" in answer.text) == (200, True)


@pytest.mark.parametrize("query", [{}, {"group": "project"}, {"span": "", "zone": ""}])
def test_the_form_shows_what_is_shown(admin_client: Client, query: dict[str, str]) -> None:
    """A link that named a group alone showed 30 days under the choice “Last 24 hours”."""
    text = admin_client.get(reverse("admin:usage"), query).text
    assert '<option value="30d" selected>' in text
    assert 'name="zone" id="id_zone" value="UTC"' in text


def test_who_has_no_role_sees_no_usage(db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("nobody"))
    for address in (reverse("admin:usage"), reverse("admin:usage_export", args=["periods", "csv"])):
        assert client.get(address).status_code in (302, 403)


@pytest.mark.parametrize("address", ["periods.xml", "pages.csv"])
def test_there_is_no_other_file(admin_client: Client, address: str) -> None:
    assert admin_client.get(f"{reverse('admin:usage')}{address}").status_code == 404


@pytest.mark.parametrize("query", [{}, {"group": "key"}, {"group": "model", "key": "key00001"}])
def test_the_page_takes_few_queries_and_reads_no_log(admin_client: Client, query: dict[str, str]) -> None:
    usage_records_write([record(key_public_id=f"key{number:05}", model=f"m{number % 9}") for number in range(99)])
    with CaptureQueriesContext(connection) as queries:
        page(admin_client, zone="Europe/Berlin", first="2025-06-01", **query)
    assert len(queries) <= 28
    assert not any("chat_requestlog" in one["sql"] for one in queries)


def test_a_year_reads_the_totals_by_an_index(admin_client: Client, db: None) -> None:
    rows = UsageTotal.objects.filter(dimension="key", length_h=24, start_h__gte=1, start_h__lt=9).order_by()
    plan = rows.values("value", "num_requests", "cost_nanos").explain()
    assert "COVERING INDEX usage_total" in plan


def test_the_sum_of_a_span_is_that_of_its_pieces() -> None:
    from zoneinfo import ZoneInfo

    span: Callable[[int, int], Span] = lambda start, end: Span(start, end, ZoneInfo("UTC"), 1)  # noqa: E731
    for start in range(0, 50, 7):
        for end in range(start + 1, 130, 11):
            pieces = span(start, end).pieces()
            hours = [hour for piece in pieces for hour in range(piece.start_h, piece.end_h)]
            assert hours == list(range(start, end))
            assert all(piece.length_h == 1 or piece.start_h % 24 == piece.end_h % 24 == 0 for piece in pieces)
            assert sum(piece.end_h - piece.start_h for piece in pieces if piece.length_h == 1) < 48
    year = Span(0, int(timedelta(days=365) / timedelta(hours=1)), ZoneInfo("Europe/Berlin"), 24)
    assert [part.end_h for part in year.parts(100)][:-1] == [part.start_h for part in year.parts(100)][1:]


def test_people_and_routes_lead_to_their_requests_of_the_shown_time(admin_client: Client, project: Project) -> None:
    ann = member("ann", org=project.org)
    usage_records_write([record(account_id=ann.pk, route="/v1/chat/completions"), record()])
    times = "from=2025-12-31T23%3A00&until=2026-01-01T23%3A00"
    for group, query in (("user", f"account=%23{ann.pk}"), ("route", "route=%2Fv1%2Fchat%2Fcompletions")):
        text = page(admin_client, group=group, zone="Europe/Berlin")
        assert f"/chat/requestlog/?{query}&{times}" in text
        assert text.count("/chat/requestlog/?") == 1, "none for those without"
    listed = admin_client.get(f"{reverse('admin:chat_requestlog_changelist')}?account=%23{ann.pk}&{times}").text
    assert f"#{ann.pk}" in listed


@pytest.mark.django_db
def test_an_export_is_in_the_audit_of_each_organisation_that_it_reaches() -> None:
    first, second, third = (Org.objects.create(name=name) for name in ("First", "Second", "Third"))
    person = member("person", "billing", org=first)
    person.memberships.create(org=second, role="member")
    client = Client()
    client.force_login(User.objects.get(pk=person.pk))
    download(client, "periods", "csv")
    found = AuditEntry.objects.filter(action="usage.export")
    assert sorted(found.values_list("org_id", flat=True)) == [first.pk, second.pk]
    client.force_login(User.objects.create_superuser("root"))
    download(client, "periods", "csv")
    assert found.filter(org_id=third.pk, actor_name="root").count() == 1


def test_a_zone_with_half_an_hour_of_summer_time_has_no_days_of_hours(admin_client: Client) -> None:
    query = {"zone": "Australia/Lord_Howe", "first": "2026-01-01", "last": "2026-12-31"}
    assert "Days are those of UTC" in page(admin_client, **query)
    assert "Days are those of UTC" not in page(admin_client, **query | {"last": "2026-01-31"})
