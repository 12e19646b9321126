"""The list of requests: filters as chips in the URL, search by the beginning of an id, bounded looks, and exports."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.access.roles import Role
from chat.models import AuditEntry, Org, Project, RequestLog
from chat.usage import log_admin, log_search
from chat.usage.services import usage_records_write
from tests.chat.records import NOON, record
from tests.people import member

LOGS = "admin:chat_requestlog_changelist"


def listed(client: Client, query: str = "") -> set[str]:
    """Return the models of the rows that a list shows; tests name each row by its model."""
    text = client.get(reverse(LOGS) + query).text
    ids = dict.fromkeys(re.findall(r"/chat/requestlog/([0-9a-f-]{36})/change/", text))
    return set(RequestLog.objects.filter(pk__in=ids).values_list("model", flat=True))


@pytest.fixture
def rows(project: Project) -> dict[str, dict[str, Any]]:
    ann = member("ann", org=project.org)
    here: dict[str, Any] = {"org_id": project.org_id, "project_id": project.pk}
    made = {
        "plain": record(model="plain", **here),
        "slow": record(model="slow", at_s=NOON + 60, ended_at=NOON + 90, **here),
        "long": record(model="long", at_s=NOON + 120, prompt_tokens=5000, completion_tokens=200, **here),
        "failed": record(model="failed", status=500, outcome="failed", dialect="ollama", route="/api/chat", **here),
        "hers": record(
            model="hers", account_id=ann.pk, key_public_id="", user_label="ann", dialect="playground", **here
        ),
        "sent": record(model="sent", client_request_id="order-77-a", batch_id="batch_9f", **here),
        "away": record(model="away", org_id=project.org_id + 1, project_id=project.pk + 1),
    }
    usage_records_write(list(made.values()))
    return made


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?min_ms=20000", {"slow"}),
        ("?max_ms=1000&status=500", {"failed"}),
        ("?min_tokens=5200", {"long"}),
        ("?max_tokens=17&outcome=failed", {"failed"}),
        ("?from=2026-01-01T12:01&until=2026-01-01T12:02", {"slow"}),
        ("?dialect=ollama", {"failed"}),
        ("?route=/api/chat", {"failed"}),
        ("?account=ann", {"hers"}),
        ("?model=plain&key=accept0001&status=200", {"plain"}),
        ("?q=order-77", {"sent"}),
        ("?q=batch_9", {"sent"}),
        ("?q=an", {"hers"}),
        ("?q=order-78", set()),
        ("?q=order-77&status=500", set()),
    ],
)
def test_filters_and_prefixes_find_their_rows(admin_client: Client, rows: Any, query: str, found: set[str]) -> None:
    assert listed(admin_client, query) == found


def test_a_run_id_is_found_by_its_beginning_with_or_without_dashes(admin_client: Client, rows: Any) -> None:
    run_id = rows["slow"]["run_id"]
    for term in (run_id, run_id[:14], f"{run_id[:8]}-{run_id[8:12]}-{run_id[12:14]}", run_id.upper()):
        assert "slow" in listed(admin_client, f"?q={term}&status=200"), term


def test_each_filter_is_a_chip_that_leads_to_the_list_without_it(admin_client: Client, rows: Any) -> None:
    query = {
        "project": str(rows["plain"]["project_id"]),
        "status": "200",
        "min_ms": "5",
        "q": "order",
        "before": "f" * 32,
    }
    text = admin_client.get(reverse(LOGS), query).text
    chips = re.findall(r'class="lc-chip" href="([^"]+)"', text)
    without = [set(re.findall(r"(\w+)=", chip.replace("&amp;", "&"))) for chip in chips]
    names = {"project", "status", "min_ms", "q"}
    assert sorted(map(sorted, without)) == sorted(sorted(names - {name}) for name in names)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?min_ms=-5", "Duration from (ms): &#x27;-5&#x27; is no whole number from 0 to 1,000,000,000."),
        ("?max_tokens=NaN", "Tokens up to: &#x27;NaN&#x27; is no whole number"),
        ("?min_tokens=99999999999999999999999", "is no whole number"),
        ("?from=yesterday", "From (UTC): &#x27;yesterday&#x27; is no time"),
        ("?until=9999-99-99", "is no time"),
        ("?account=nobody", "Person: you see no account &#x27;nobody&#x27;"),
        ("?account=%23x", "Person: you see no account"),
    ],
)
def test_a_filter_that_cannot_be_read_says_so_and_filters_nothing(
    admin_client: Client, rows: Any, query: str, said: str
) -> None:
    assert said in admin_client.get(reverse(LOGS) + query).text
    assert listed(admin_client, query) == set(rows)


def test_a_rare_combination_looks_at_the_newest_rows_and_goes_on(
    admin_client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "LOOKED_AT", 100)
    monkeypatch.setattr(log_admin.LogChangeList, "looked_at", 100)
    old = record(at_s=NOON - 60, ended_at=NOON + 999, model="slow")
    usage_records_write([old] + [record(at_s=NOON + index) for index in range(250)])
    url, pages = reverse(LOGS) + "?status=200&min_ms=500000", []
    while url:
        text = admin_client.get(url).text
        pages.append(set(re.findall(r"/chat/requestlog/([0-9a-f-]{36})/change/", text)))
        on = re.search(r'href="([^"]+)" rel="next"', text)
        assert (on is not None) == ("Only the newest 100 requests were looked at" in text)
        url = reverse(LOGS) + on[1].replace("&amp;", "&") if on else ""
    assert [len(found) for found in pages] == [0, 0, 1]


def test_the_column_that_finds_fewest_rows_leads(
    admin_client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "LOOKED_AT", 100)
    usage_records_write(
        [record(at_s=NOON + index, key_public_id="rare" if index < 3 else "often") for index in range(250)]
    )
    with CaptureQueriesContext(
        connection,
    ) as queries:
        answer = admin_client.get(reverse(LOGS) + "?status=200&key=rare")
    assert "were looked at" not in answer.text
    last = [one["sql"] for one in queries if '"chat_requestlog"' in one["sql"]][-1]
    assert '"chat_requestlog"."key_public_id" = \'rare\'' in last
    assert '"chat_requestlog"."status" = 200' not in last


def test_a_prefix_of_many_rows_is_compared_newest_first(
    admin_client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_FOUND", 20)
    usage_records_write([record(at_s=NOON + index, client_request_id=f"many-{index}") for index in range(60)])
    with CaptureQueriesContext(connection) as queries:
        text = admin_client.get(reverse(LOGS) + "?q=many-").text
    looks = [one["sql"] for one in queries if "LIMIT 21" in one["sql"]]
    assert looks
    assert not any("ORDER BY" in sql for sql in looks), "every row with the prefix would be sorted"
    found = list(dict.fromkeys(re.findall(r"/chat/requestlog/([0-9a-f-]{36})/change/", text)))
    assert found == [str(pk) for pk in RequestLog.objects.order_by("-pk").values_list("pk", flat=True)[:50]]


def test_a_member_finds_nothing_of_others_by_id_or_filter(client: Client, rows: Any, project: Project) -> None:
    client.force_login(User.objects.get(username="ann"))
    assert listed(client) == {"hers"}
    for query in ("?q=order-77", f"?q={rows['sent']['run_id']}", "?account=%230", "?status=500", "?account=%23999"):
        assert listed(client, query) == set(), query


def export(client: Client, format_name: str, query: str = "") -> str:
    answer: Any = client.get(reverse("admin:chat_requestlog_export", args=[format_name]) + query)
    assert answer.status_code == 200

    async def read() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return asyncio.run(read()).decode()


@pytest.mark.django_db(transaction=True)
def test_an_export_has_what_is_listed_and_is_audited(admin_client: Client, db: None) -> None:
    usage_records_write([record(model="=1+1", user_label="@x"), record(status=500, outcome="failed")])
    lines = list(csv.DictReader(io.StringIO(export(admin_client, "csv", "?status=200"))))
    assert [(line["model"], line["user_label"], line["status"]) for line in lines] == [("'=1+1", "'@x", "200")]
    assert export(admin_client, "jsonl").count("\n") == 2
    entry = AuditEntry.objects.filter(action="requests.export").order_by("pk").first()
    assert entry is not None
    assert entry.after == {"format": "csv", "filters": {"status": "200"}}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.django_db(transaction=True)
def test_an_export_goes_as_far_as_the_role(client: Client, role: Role) -> None:
    org = Org.objects.create(name="Here")
    ann = member("ann", role, org=org)
    usage_records_write([record(org_id=org.pk, account_id=ann.pk), record(org_id=org.pk), record(org_id=org.pk + 1)])
    client.force_login(ann)
    far = {Role.BILLING: None, Role.MEMBER: 1}.get(role, 2)
    if far is None:
        assert client.get(reverse("admin:chat_requestlog_export", args=["csv"])).status_code == 403
    else:
        assert export(client, "jsonl").count("\n") == far
    assert client.get("/admin/chat/requestlog/export.exe").status_code == 404


def test_an_export_with_filters_that_cannot_be_read_says_nothing_secret(admin_client: Client, rows: Any) -> None:
    answer = admin_client.get(reverse("admin:chat_requestlog_export", args=["csv"]) + "?" + urlencode({"before": "x"}))
    assert answer.status_code == 302


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_an_instant_beyond_the_calendar_is_no_time(admin_client: Client, text: str) -> None:
    answer = admin_client.get(reverse("admin:chat_requestlog_changelist"), {"from": text})
    assert (answer.status_code, "is no time; write one such as" in answer.text) == (200, True)


@pytest.mark.parametrize("query", [{"outcome": "nonsense"}, {"status": "999"}, {"status": "x"}])
def test_a_value_that_is_none_filters_nothing(admin_client: Client, query: dict[str, str]) -> None:
    usage_records_write([record(user_label="kept")])
    (log,) = RequestLog.objects.all()
    assert str(log.pk) in admin_client.get(reverse("admin:chat_requestlog_changelist"), query).text
