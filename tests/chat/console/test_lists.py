"""Lists of big tables: few queries, no count, everything escaped, keyset pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.access.keys import key_create
from chat.catalog.services import model_register, model_state_report
from chat.models import Org, Project, RequestLog, ServedModel
from chat.usage.services import usage_records_write
from tests.chat.records import NOON, record

LOGS = "admin:chat_requestlog_changelist"
EVIL = "<img src=x onerror=alert(1)>"


def statements(client: Client, page: str) -> tuple[str, list[str]]:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        answer = client.get(page)
    assert answer.status_code == 200
    return answer.text, [query["sql"] for query in queries]


@pytest.mark.slow
def test_five_thousand_logs_take_few_queries_without_count_or_sort(admin_client: Client, db: None) -> None:
    """Each filter alone takes one bounded query on the log, served by an index in the order of the list."""
    for start in range(0, 5000, 500):
        usage_records_write(
            [record(at_s=NOON + index, status=503 if index % 10 == 0 else 200) for index in range(start, start + 500)]
        )
    queries = (
        "",
        "?outcome=finished",
        "?status=503",
        "?model=small",
        "?key=accept0001",
        "?project=1",
        "?span=30d",
    )
    for query in queries:
        _, sql = statements(admin_client, reverse(LOGS) + query)
        assert len(sql) <= 9, sql
        assert not any("COUNT(" in statement.upper() for statement in sql)
        (on_logs,) = [statement for statement in sql if "chat_requestlog" in statement]
        assert "LIMIT 51" in on_logs
        if connection.vendor == "sqlite":
            plan = sqlite_plan(on_logs)
            assert "INDEX" in plan, f"{query}: {plan}"
            assert "TEMP B-TREE" not in plan, f"{query}: {plan}"


def sqlite_plan(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + statement)
        return " ".join(row[3] for row in cursor.fetchall())


def test_older_links_keep_every_filter(admin_client: Client, db: None) -> None:
    """The link to older rows lost each filter whose name begins with p."""
    usage_records_write([record(at_s=NOON + index) for index in range(60)])
    found = re.search(r'href="([^"]+)" rel="next"', admin_client.get(reverse(LOGS) + "?project=1&status=200").text)
    assert found is not None
    assert "project=1" in found[1]
    assert "status=200" in found[1]


def pages(client: Client, url: str) -> Iterator[list[str]]:
    while url:
        text = client.get(url).text
        yield re.findall(r"/chat/requestlog/([0-9a-f-]{36})/change/", text)
        older = re.search(r'href="([^"]+)" rel="next"', text)
        url = reverse(LOGS) + older[1].replace("&amp;", "&") if older else ""


def test_older_links_reach_every_row_once_newest_first(admin_client: Client, db: None) -> None:
    usage_records_write([record(at_s=NOON + index) for index in range(120)])
    seen = [run_id for page in pages(admin_client, reverse(LOGS)) for run_id in dict.fromkeys(page)]
    assert seen == [str(pk) for pk in RequestLog.objects.order_by("-pk").values_list("pk", flat=True)]


def test_a_request_is_found_by_run_id_and_by_the_clients_id(admin_client: Client, db: None) -> None:
    sent = record(client_request_id="mine-1")
    usage_records_write([sent, record(client_request_id="mine-2")])
    for term in (sent["run_id"][:20], "mine-1"):
        text = admin_client.get(reverse(LOGS), {"q": term, "status": "200"}).text
        assert len(set(re.findall(r"/chat/requestlog/([0-9a-f-]{36})/change/", text))) == 1


@pytest.mark.parametrize("page", ["requestlog", "batch", "projectfile"])
def test_a_search_opens_each_list_with_and_without_search_fields(admin_client: Client, db: None, page: str) -> None:
    assert admin_client.get(reverse(f"admin:chat_{page}_changelist") + "?q=x").status_code == 200


def test_hostile_texts_of_clients_are_written_escaped(admin_client: Client, db: None) -> None:
    model_register(name="small", path="/models/small.gguf")
    sent = record(
        model=EVIL,
        model_asked=EVIL,
        user_label=EVIL,
        user_agent=EVIL,
        client_request_id=EVIL,
        finish_reason=EVIL,
        metadata={EVIL: EVIL},
    )
    usage_records_write([sent])
    log = RequestLog.objects.get()
    for page in (
        reverse(LOGS),
        reverse("admin:chat_requestlog_change", args=[log.pk]),
        reverse("admin:usage"),
        reverse("admin:index"),
    ):
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert EVIL not in answer.text
    assert "&lt;img" in answer.text or "onerror" not in answer.text


@pytest.mark.parametrize(
    "query",
    [
        "user_agent__contains=x",
        "metadata__a=1",
        "o=3",
        "o=-9.1",
        "before=x",
        "p=99",
        "all=",
        "status=x",
        "project=1e9",
        "key=%00",
        "e=1",
    ],
)
def test_unknown_query_parameters_neither_filter_nor_sort(admin_client: Client, db: None, query: str) -> None:
    usage_records_write([record()])
    with CaptureQueriesContext(connection) as queries:
        answer = admin_client.get(reverse(LOGS) + "?" + query)
    assert answer.status_code in {200, 302, 400}
    on_logs = [item["sql"] for item in queries if 'FROM "chat_requestlog"' in item["sql"]]
    assert all('ORDER BY "chat_requestlog"."run_id" DESC' in sql and 'user_agent" LIKE' not in sql for sql in on_logs)


def test_logs_and_usage_cannot_be_written(admin_client: Client, db: None) -> None:
    usage_records_write([record()])
    log = RequestLog.objects.get()
    assert admin_client.get(reverse("admin:chat_requestlog_add")).status_code == 403
    assert admin_client.post(reverse("admin:chat_requestlog_change", args=[log.pk]), {"model": "x"}).status_code == 403
    assert admin_client.post(reverse("admin:chat_requestlog_delete", args=[log.pk]), {"post": "yes"}).status_code == 403


def test_lists_of_keys_and_projects_take_constantly_many_queries(admin_client: Client, project: Project) -> None:
    for page in ("admin:chat_apikey_changelist", "admin:chat_project_changelist", "admin:chat_org_changelist"):
        key_create(project=project, name="one")
        _, few = statements(admin_client, reverse(page))
        for index in range(20):
            key_create(project=project, name=f"key {index}")
            Project.objects.create(org=Org.objects.create(name=f"{page} {index}"), name=f"{page} {index}")
        _, many = statements(admin_client, reverse(page))
        assert len(many) == len(few)


def test_every_page_of_the_console_opens(admin_client: Client, project: Project) -> None:
    usage_records_write([record()])
    model = model_register(name="small", path="/models/small.gguf")
    model_state_report(name="small", state="ready", computed_by="backend native; steps layer by layer")
    names = [
        "index",
        "auth_user_changelist",
        "auth_user_add",
        "chat_membership_changelist",
        "chat_membership_add",
        "chat_org_add",
        "chat_project_add",
        "chat_apikey_add",
    ]
    names += ["chat_servedmodel_changelist", "chat_servedmodel_add", "usage"]
    names += ["chat_modelprice_changelist", "chat_modelprice_add"]
    for name in names:
        assert admin_client.get(reverse(f"admin:{name}")).status_code == 200, name
    assert (
        "backend native; steps layer by layer"
        in admin_client.get(reverse("admin:chat_servedmodel_change", args=[model.pk])).text
    )
    assert admin_client.get(reverse("admin:chat_project_change", args=[project.pk])).status_code == 200


def model_data(**fields: Any) -> dict[str, Any]:
    data = {
        "name": "large",
        "path": "/models/large.gguf",
        "is_elsewhere": "on",
        "owned_by": "acme",
        "enabled": "on",
        "aliases": "",
        "sampling_defaults": "{}",
    }
    return {name: value for name, value in (data | fields).items() if value is not False}


def test_a_new_default_model_replaces_the_previous_one(admin_client: Client, db: None) -> None:
    model_register(name="small", path="/models/small.gguf")
    answer = admin_client.post(
        reverse("admin:chat_servedmodel_add"),
        model_data(
            is_default="on",
            aliases="big\nhuge",
            sampling_defaults='{"temperature": 0.7, "top_k": "40.0"}',
            system_prompt="Be brief.",
        ),
    )
    assert answer.status_code == 302
    assert ServedModel.objects.get(name="large").sampling_defaults == {"temperature": 0.7, "top_k": 40}, (
        "as a request is read"
    )
    assert ServedModel.objects.get(name="large").system_prompt == "Be brief."
    assert list(ServedModel.objects.filter(is_default=True).values_list("name", "aliases")) == [
        ("large", ["big", "huge"])
    ]


BAD_DEFAULTS = ("[]", '{"temperature": "hot"}', '{"temperature": 5}', '{"top_k": -2}', '{"max_tokens": 5}')
"""The second gave a 500 for every request of the model, the third sampled at temperature 5."""


def test_a_path_without_a_model_is_refused_unless_marked_as_elsewhere(
    admin_client: Client, db: None, tmp_path: Path
) -> None:
    """`/no/such/file.gguf` was saved, offered to clients, and reported as loading for ever."""
    add = reverse("admin:chat_servedmodel_add")
    (tmp_path / "notes.txt").write_text("no model")
    for path in ("/no/such/file.gguf", "relative.gguf", str(tmp_path), str(tmp_path / "notes.txt")):
        answer = admin_client.post(add, model_data(path=path, is_elsewhere=False))
        assert answer.status_code == 200
        assert "Tick “On another machine”" in answer.context["adminform"].form.errors["path"][1]
    assert not ServedModel.objects.exists()
    assert admin_client.post(add, model_data(path="/no/such/file.gguf", is_elsewhere="on")).status_code == 302
    change = reverse("admin:chat_servedmodel_change", args=[ServedModel.objects.get().pk])
    renamed = model_data(path="/no/such/file.gguf", is_elsewhere=False, owned_by="acme")
    assert admin_client.post(change, renamed).status_code == 302, "a path that stays is not looked at again"
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    assert admin_client.post(change, model_data(path=str(tmp_path), is_elsewhere=False)).status_code == 302


@pytest.mark.parametrize(
    "fields", [{"aliases": "small"}, {"name": "small"}, *({"sampling_defaults": defaults} for defaults in BAD_DEFAULTS)]
)
def test_an_invalid_model_is_refused_on_its_form(admin_client: Client, db: None, fields: dict[str, str]) -> None:
    model_register(name="small", path="/models/small.gguf")
    answer = admin_client.post(reverse("admin:chat_servedmodel_add"), model_data(**fields))
    assert answer.status_code == 200
    assert ServedModel.objects.count() == 1
