"""The page of the audit log: bounded queries, keyset pages, filters, changes as a table, and files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.audit.export import COLUMNS
from chat.console.export import csv_cell, pages_of
from chat.models import AuditEntry, Org
from tests.people import member

LIST = "admin:chat_auditentry_changelist"
EVIL = "=HYPERLINK('x')<img src=x onerror=alert(1)>"
NOON = datetime(2096, 3, 10, 12, tzinfo=UTC)
"""Later than the entries that the tests' sign-ins leave."""
pytestmark = pytest.mark.django_db


def entries_make(number: int, **fields: Any) -> None:
    """Make entries, one a minute; every second one is by ann, every tenth a rotation of one key."""
    AuditEntry.objects.bulk_create(
        AuditEntry(
            **{
                "at": NOON + timedelta(minutes=index),
                "actor_kind": "user",
                "actor_id": str(7 + index % 2),
                "actor_name": ("ann", "bob")[index % 2],
                "action": "key.rotate" if index % 10 == 0 else "model.change",
                "object_kind": "key" if index % 10 == 0 else "model",
                "object_id": "ab12cd34" if index % 10 == 0 else "3",
                "object_name": "worker" if index % 10 == 0 else "base:german",
                "before": {"name": "one"},
                "after": {"name": "two"},
                **fields,
            }
        )
        for index in range(number)
    )


def shown(client: Client, **query: str) -> list[int]:
    """Return the primary keys on a page of the list."""
    answer = client.get(reverse(LIST), query)
    assert answer.status_code == 200
    return [int(pk) for pk in dict.fromkeys(re.findall(r"/chat/auditentry/(\d+)/change/", answer.text))]


def exported(client: Client, format_name: str, **query: str) -> str:
    answer = client.get(reverse("admin:chat_auditentry_export", args=[format_name]), query)
    assert answer.status_code == 200

    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(read)().decode()


FILTERS = (
    {"actor": "ann"},
    {"actor": "user:7"},
    {"object": "base:german"},
    {"object": "key:ab12cd34"},
    {"action": "key.rotate"},
    {"kind": "model"},
    {"from": "2096-03-10"},
    {"until": "2096-03-10"},
)


@pytest.mark.parametrize("query", [{}, *FILTERS], ids=str)
def test_each_filter_takes_few_queries_on_an_index_without_count_or_sort(
    admin_client: Client, query: dict[str, str]
) -> None:
    entries_make(300)
    admin_client.get(reverse(LIST))
    with CaptureQueriesContext(connection) as queries:
        assert shown(admin_client, **query)
    on_entries = [one["sql"] for one in queries if "chat_auditentry" in one["sql"]]
    assert len(queries) <= 8
    assert not any("COUNT(" in sql.upper() for sql in on_entries)
    for sql in on_entries:
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN QUERY PLAN " + sql)
            plan = " ".join(row[3] for row in cursor.fetchall())
        assert "TEMP B-TREE" not in plan, (sql, plan)
        if query:
            assert "USING" in plan, (sql, plan)


def test_each_filter_finds_what_it_says(admin_client: Client) -> None:
    entries_make(40)
    newest = list(AuditEntry.objects.values_list("pk", flat=True))
    entries = list(AuditEntry.objects.all())
    assert shown(admin_client) == newest
    for query, fits in (
        ({"actor": "ann"}, lambda one: one.actor_name == "ann"),
        ({"actor": "user:8"}, lambda one: one.actor_name == "bob"),
        ({"object": "base:german"}, lambda one: one.object_kind == "model"),
        ({"object": "key:ab12cd34"}, lambda one: one.object_kind == "key"),
        ({"action": "key.rotate", "actor": "ann"}, lambda one: one.action == "key.rotate"),
        ({"kind": "key"}, lambda one: one.object_kind == "key"),
        ({"actor": "nobody"}, lambda one: False),
    ):
        assert shown(admin_client, **query) == [one.pk for one in entries if fits(one)], query


def test_days_include_their_first_and_last_instant(admin_client: Client) -> None:
    """Ids rise with time but for clocks that differ: an entry of the day before may come after one of the day."""
    midnight = datetime(2096, 3, 11, tzinfo=UTC)
    instants = (midnight, midnight - timedelta(microseconds=1), midnight + timedelta(days=1))
    for at in instants:
        entries_make(1, at=at)
    first, before, after = AuditEntry.objects.filter(actor_name="ann").order_by("pk").values_list("pk", flat=True)
    for query, expected in (
        ({"from": "2096-03-11", "until": "2096-03-11"}, [first]),
        ({"from": "2096-03-11"}, [after, first]),
        ({"until": "2096-03-11"}, [before, first]),
        ({"from": "2096-03-13"}, []),
        ({"until": "2020-01-01"}, []),
    ):
        assert shown(admin_client, actor="ann", **query) == expected, query


@pytest.mark.parametrize(
    "query",
    [
        "from=tomorrow",
        "until=9999-12-31",
        "from=0001-01-01",
        "actor=%00",
        "action=x",
        "kind=%27",
        "before=x",
        "at__gt=1",
    ],
)
def test_a_bad_filter_is_left_out_or_refused(admin_client: Client, query: str) -> None:
    entries_make(2)
    assert admin_client.get(f"{reverse(LIST)}?{query}").status_code in (200, 302, 400)


def test_older_links_reach_every_entry_once(admin_client: Client) -> None:
    entries_make(120)
    seen, query = [], {}
    while True:
        page = shown(admin_client, **query)
        seen += page
        if len(page) < 50:
            break
        query = {"before": str(page[-1])}
    assert seen == list(AuditEntry.objects.values_list("pk", flat=True))


# One entry.


def test_an_entry_shows_who_and_each_field_before_and_after(admin_client: Client) -> None:
    values = {"rights": ["inference"], "limit": None, "note": EVIL}
    entries_make(1, before=values, after={"rights": ["inference", "keys_manage"], "limit": 60, "note": ""})
    text = admin_client.get(
        reverse("admin:chat_auditentry_change", args=[AuditEntry.objects.get(actor_name="ann").pk])
    ).text
    rows = re.findall(r'<th scope="row">(.*?)</th><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>', text, re.DOTALL)
    assert rows[0] == ("rights", "inference", "inference\nkeys_manage")
    assert rows[1] == ("limit", "–", "60")
    assert EVIL not in text
    assert "?actor=user:7" in text
    assert "?object=key:ab12cd34" in text


def test_hostile_texts_are_escaped_in_the_list(admin_client: Client) -> None:
    entries_make(1, actor_name=EVIL, object_name=EVIL, source=EVIL, before={EVIL: 1})
    assert "<img src=x" not in admin_client.get(reverse(LIST), {"actor": EVIL}).text


def test_nobody_writes_on_the_page_and_it_needs_a_permission(admin_client: Client) -> None:
    entries_make(1)
    pk = AuditEntry.objects.get(actor_name="ann").pk
    assert admin_client.get(reverse("admin:chat_auditentry_add")).status_code == 403
    for act in ("change", "delete"):
        page = reverse(f"admin:chat_auditentry_{act}", args=[pk])
        assert admin_client.post(page, {"post": "yes", "action": "x"}).status_code == 403
    pages = (reverse(LIST), reverse("admin:chat_auditentry_export", args=["csv"]))
    for role, status in (("member", 403), ("viewer", 403), ("billing", 403), ("auditor", 200), ("admin", 200)):
        client = Client()
        client.force_login(member(f"of role {role}", role))
        assert [client.get(page).status_code for page in pages] == [status, status], role
    assert admin_client.get(reverse("admin:chat_auditentry_export", args=["xml"])).status_code == 404


def test_a_reader_sees_the_entries_of_the_own_organisation_and_operators_those_of_the_installation() -> None:
    operator = Org.objects.create(name="Operator", is_operator=True)
    other, third = (Org.objects.create(name=name) for name in ("Other", "Third"))
    for org_id in (0, operator.pk, other.pk, third.pk):
        entries_make(1, org_id=org_id)
    pks = dict(AuditEntry.objects.filter(actor_name="ann").values_list("org_id", "pk"))
    for org, seen in ((operator, (operator.pk, 0)), (other, (other.pk,))):
        client = Client()
        client.force_login(member(f"auditor of {org}", "auditor", org=org))
        assert shown(client, actor="ann") == [pks[org_id] for org_id in seen]
        hidden = reverse("admin:chat_auditentry_change", args=[pks[third.pk]])
        assert client.get(hidden).status_code == 302, "as one that is not there"
        exported_ids = [json.loads(line)["id"] for line in exported(client, "jsonl", actor="ann").splitlines()]
        assert exported_ids == shown(client, actor="ann")


# Exports.


def test_both_formats_hold_all_that_the_filters_find_in_order(admin_client: Client) -> None:
    entries_make(1203)
    expected = [
        entry.pk for entry in AuditEntry.objects.filter(actor_name="ann") if entry.at < NOON + timedelta(hours=12)
    ]
    query = {"actor": "ann", "until": "2096-03-10"}
    lines = exported(admin_client, "jsonl", **query).splitlines()
    assert [json.loads(line)["id"] for line in lines] == expected
    assert json.loads(lines[0])["after"] == {"name": "two"}
    rows = list(csv.DictReader(io.StringIO(exported(admin_client, "csv", **query), newline="")))
    assert [int(row["id"]) for row in rows] == expected
    assert tuple(rows[0]) == COLUMNS
    assert json.loads(rows[0]["after"]) == {"name": "two"}


def test_an_export_is_recorded_with_its_filters(admin_client: Client) -> None:
    exported(admin_client, "csv", actor="ann", **{"from": "2096-03-10"})
    entry = AuditEntry.objects.get(action="audit.export")
    assert entry.actor_name == "admin"
    assert entry.after == {"format": "csv", "filters": {"actor": "ann", "from": "2096-03-10"}}


def test_an_export_reads_some_rows_at_a_time() -> None:
    entries_make(1203)
    with CaptureQueriesContext(connection) as queries:
        assert [len(page) for page in pages_of(AuditEntry.objects.all())] == [500, 500, 203]
    assert all("LIMIT 500" in one["sql"] for one in queries)


@pytest.mark.parametrize("beginning", ["=", "+", "-", "@", "\t", "\r"])
def test_cells_that_a_spreadsheet_would_compute_begin_with_an_apostrophe(admin_client: Client, beginning: str) -> None:
    entries_make(1, object_name=f"{beginning}1+1")
    (row,) = csv.DictReader(io.StringIO(exported(admin_client, "csv", actor="ann"), newline=""))
    assert row["object_name"] == f"'{beginning}1+1"


def test_numbers_and_other_texts_are_cells_as_they_are() -> None:
    assert [csv_cell(value) for value in (-5, "a=b", "", None, {"a": "=1"})] == [-5, "a=b", "", None, '{"a":"=1"}']


def test_pages_of_an_empty_table_are_none() -> None:
    pages: Iterator[list[AuditEntry]] = pages_of(AuditEntry.objects.all())
    assert list(pages) == []
