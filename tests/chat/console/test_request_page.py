"""The page of a request: where its time went, what it cost and why, what it belongs to, and its texts."""

from __future__ import annotations

import html
import json
import re
import shlex
import zlib
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chat.access.keys import key_create
from chat.access.roles import Role
from chat.batches.files import FileAbout
from chat.batches.services import BatchOrder, batch_create
from chat.catalog.services import model_register
from chat.models import ApiKey, AuditEntry, Conversation, Project, RequestLog
from chat.usage.log_detail import stretches
from chat.usage.log_export import log_values
from chat.usage.services import usage_records_write
from tests.chat.batches.stored_files import file_create
from tests.chat.records import NOON, price_from, record
from tests.people import member

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}]


def written(project: Project, **fields: Any) -> RequestLog:
    sent = record(org_id=project.org_id, project_id=project.pk, **fields)
    usage_records_write([sent])
    return RequestLog.objects.get(pk=sent["run_id"])


def with_text(project: Project, **fields: Any) -> RequestLog:
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True)
    plain = {"request": {"model": "small", "messages": ASKED, "stop": ["END"]}, "answers": [{"content": "4"}]}
    return written(project, texts=zlib.compress(json.dumps(plain).encode()), **fields)


def page(client: Client, log: RequestLog, name: str = "change") -> str:
    answer = client.get(reverse(f"admin:chat_requestlog_{name}", args=[log.pk]))
    assert answer.status_code == 200
    return str(answer.text)


def test_the_time_line_has_its_parts_in_order_without_gaps(project: Project) -> None:
    parts = stretches(written(project))
    assert [(part.kind, part.text, part.ends_at) for part in parts] == [
        ("queue", "20 ms", "20 ms"),
        ("prompt", "100 ms", "120 ms"),
        ("answer", "880 ms", "1.00 s"),
    ]
    assert [(part.x, part.width) for part in parts] == [(0, 20), (20, 100), (120, 880)]


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"first_token_at": None}, ["queue", "answer"]),
        ({"first_token_at": None, "started_at": None}, ["answer"]),
        ({"ended_at": None}, []),
        ({"started_at": NOON + 5, "first_token_at": NOON + 9}, ["queue", "prompt", "answer"]),
    ],
)
def test_a_request_that_never_got_far_has_fewer_parts(project: Project, fields: Any, kinds: list[str]) -> None:
    parts = stretches(written(project, **fields))
    assert [part.kind for part in parts] == kinds
    assert all(part.x >= 0 and part.x + part.width <= 1000 for part in parts)


def test_the_page_says_time_error_and_parameters(admin_client: Client, project: Project) -> None:
    log = written(
        project, status=500, outcome="failed", error_code="engine_error", error_message="The core <b>died</b>.",
        limit_hit="project 1: 5 requests a minute",
        parameters={"temperature": 0.5, "messages": 2}, attempts=2,
    )  # fmt: skip
    text = page(admin_client, log)
    for said in (
        "In the queue: 20 ms",
        "2 attempts",
        "The core &lt;b&gt;died&lt;/b&gt;.",
        "project 1: 5 requests a minute",
        "temperature=0.5, messages=2",
    ):
        assert said in text
    assert "<svg" in text


def test_the_cost_is_written_out_by_the_prices_of_its_time(admin_client: Client, project: Project) -> None:
    price_from(0, input=Decimal(1000), cached=Decimal(100), output=Decimal(2000))
    log = written(project)
    text = page(admin_client, log)
    assert re.findall(r'<th scope="row">(.*?)</th><td>(\d+)</td><td>([\d,]+)</td>', text) == [
        ("prompt", "6", "1,000"),
        ("prompt, cached", "4", "100"),
        ("completion", "7", "2,000"),
    ]
    assert re.findall(r"<td>([\d.]+ USD)</td>", text) == ["0.006 USD", "0.0004 USD", "0.014 USD"]
    assert "Cost: 0.0204 USD" in text
    price_from(NOON + 60, input=Decimal(5), output=Decimal(5))
    assert page(admin_client, log).count("0.0204 USD") == text.count("0.0204 USD")


def test_key_person_model_batch_and_files_are_links_where_they_show(
    admin_client: Client, client: Client, project: Project
) -> None:
    ann = member("ann", org=project.org)
    project.members.add(ann)
    key, _ = key_create(project=project, name="hers", owner=ann, requests_per_minute=60)
    model = model_register(name="small", path="/models/small.gguf")
    file = file_create(about=FileAbout(project.pk, key.public_id, "in.jsonl", "batch"), content=b"x")
    batch = batch_create(order=BatchOrder(project.pk, key.public_id, "/v1/chat/completions", file.public_id))
    log = written(project, key_public_id=key.public_id, account_id=ann.pk, batch_id=batch.public_id)
    rows = {"apikey": key, "project": project, "batch": batch, "projectfile": file}
    links = {reverse(f"admin:chat_{name}_change", args=[row.pk]) for name, row in rows.items()}
    others = {("auth_user", ann.pk), ("chat_servedmodel", model.pk)}
    of_admins = {reverse(f"admin:{name}_change", args=[pk]) for name, pk in others}
    found = set(re.findall(r'href="([^"]+)"', page(admin_client, log)))
    assert links | of_admins <= found
    assert "Requests per minute: 60" in page(admin_client, log)
    client.force_login(User.objects.get(pk=ann.pk))
    found = set(re.findall(r'href="([^"]+)"', page(client, log)))
    assert found & (links | of_admins) == links
    key.delete()
    assert key.public_id in page(admin_client, log)


def test_the_whole_id_of_an_error_opens_its_request(admin_client: Client, client: Client, project: Project) -> None:
    log = written(project, client_request_id="req-1", status=500, outcome="failed")
    target = reverse("admin:chat_requestlog_change", args=[log.pk])
    for term in ("req-1", log.run_id.hex, str(log.pk)):
        assert (
            admin_client.get(reverse("admin:chat_requestlog_changelist"), {"q": term}).headers.get("Location") == target
        )
    assert admin_client.get(reverse("admin:chat_requestlog_changelist"), {"q": "req-"}).status_code == 200
    client.force_login(member("bob", org=project.org))
    assert client.get(reverse("admin:chat_requestlog_changelist"), {"q": "req-1"}).status_code == 200


def test_a_curl_command_has_no_key_and_the_kept_request(admin_client: Client, project: Project) -> None:
    log = with_text(project, parameters={"temperature": 0.5, "max_tokens": 9, "messages": 2}, is_stream=True)
    text = page(admin_client, log, "text")
    command = re.search(r'<pre class="lc-code" id="curl">(.*?)</pre>', text, re.DOTALL)
    assert command is not None

    words = shlex.split(html.unescape(command[1]).replace("\\\n", " "))
    assert words[:2] == ["curl", "http://testserver/v1/chat/completions"]
    assert "Authorization: Bearer $LIGHTCONE_API_KEY" in words
    assert json.loads(words[-1]) == {
        "model": "small", "messages": ASKED, "stop": ["END"], "temperature": 0.5, "max_tokens": 9, "stream": True
    }  # fmt: skip


def test_texts_show_to_whom_the_role_lets_read_and_each_reading_is_audited(client: Client, project: Project) -> None:
    people = {role: member(role.value, role, org=project.org) for role in Role}
    log = with_text(project, account_id=people[Role.MEMBER].pk)
    may_read = {Role.OWNER, Role.AUDITOR, Role.MEMBER}
    for role, person in people.items():
        client.force_login(person)
        status = client.get(reverse("admin:chat_requestlog_text", args=[log.pk])).status_code
        assert status == (200 if role in may_read else 404 if role is Role.BILLING else 403), role
        assert AuditEntry.objects.filter(action="request.read", actor_name=role.value).exists() == (role in may_read)


def test_a_request_becomes_a_chat_of_whoever_opens_it(client: Client, project: Project) -> None:
    owner, viewer = member("owner", Role.OWNER, org=project.org), member("viewer", Role.VIEWER, org=project.org)
    log = with_text(project)
    url = reverse("playground_log_open", args=[log.pk])
    client.force_login(viewer)
    assert client.post(url).status_code == 404
    client.force_login(owner)
    assert client.get(url).status_code == 405
    answer = client.post(url)
    chat = Conversation.objects.get()
    assert answer.headers["Location"] == reverse("playground_conversation", args=[chat.public_id])
    assert chat.user_id == owner.pk
    assert AuditEntry.objects.get(action="request.read").actor_name == "owner"
    bare = written(project)
    assert client.post(reverse("playground_log_open", args=[bare.pk])).status_code == 404


def test_the_page_shows_each_limit_that_the_key_has(admin_client: Client, project: Project) -> None:
    log = written(project, key_public_id="limits00001")
    key, _raw = key_create(project=project, name="Robot", raw=f"lc_limits00001_{'0' * 48}")
    ApiKey.objects.filter(pk=key.pk).update(requests_per_day=1234, max_queue_percent=7, max_context=4096)
    text = html.unescape(page(admin_client, log))
    assert "Requests per day: 1,234 · Share of the queue (%): 7 · Context (tokens): 4,096" in text
    assert "Requests per minute" not in text


IMAGES = {"image": {"number": 2, "bytes": 1_572_864}, "file": {"number": 1, "bytes": 300}}
SOUND = {"audio": {"number": 1, "bytes": 2048}, "video": {"number": 3, "bytes": 0}}


@pytest.mark.parametrize(
    ("media", "shown"),
    [
        ({}, "–"),
        (IMAGES, "2 images, 1.5 MB · 1 file, 300 bytes"),
        ({"image": {"number": 1, "bytes": 2048, "tokens": 576}}, "1 image, 2.0 KB, 576 tokens"),
        ({"audio": {"number": 1, "bytes": 2048, "duration_ms": 2500}}, "1 sound, 2.0 KB, 2.50 s"),
        (SOUND, "1 sound, 2.0 KB · 3 videos, 0 bytes"),
        ({"hologram": {"number": 1, "bytes": 1}}, "1 file, 1 byte"),
    ],
)
def test_the_page_says_how_much_there_was_beside_text(
    admin_client: Client, project: Project, media: Any, shown: str
) -> None:
    log = written(project, media=media)
    assert shown in page(admin_client, log).replace("\xa0", " ")
    assert log_values(log)["media"] == media
    RequestLog.objects.filter(pk=log.pk).update(media=None)
    assert "Beside text" in page(admin_client, log)
    assert log_values(RequestLog.objects.get(pk=log.pk))["media"] == {}
