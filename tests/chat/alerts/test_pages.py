"""The pages of alerts: what is open first, channels with a secret that shows once, tests with their result."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chat.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, Condition
from chat.alerts.rules import rules_read
from chat.alerts.services import Look, Seen, alerts_observe
from chat.models import Org, Project
from tests.chat.alerts.receiver import Receiver, receiver
from tests.chat.console.test_limits import fresh_of
from tests.chat.console.test_lists import sqlite_plan
from tests.people import member

__all__ = ["receiver"]

pytestmark = pytest.mark.django_db
CHANNELS, ADD = "admin:chat_alertchannel_changelist", "admin:chat_alertchannel_add"
EVIL = "<img src=x onerror=alert(1)>"


def client_of(role: str, org: Org) -> Client:
    client = Client()
    client.force_login(member(f"{role}-{org.pk}", role, org=org))
    return client


def channel_data(url: str = "https://hooks.example.com/private", **fields: Any) -> dict[str, Any]:
    return {"name": "ops", "kind": "webhook", "address": url, "is_on": "on"} | fields


def fire(condition: str, name: str, org_id: int | None = None, value: float | None = None) -> Alert:
    alerts_observe(
        [Look(condition, [Seen(name, name, True, value=value, org_id=org_id)], is_whole=False)], now=timezone.now()
    )
    return Alert.objects.get(subject=name)


def test_the_overview_says_first_what_is_wrong(admin_client: Client, project: Project) -> None:
    fire("model_failed", EVIL)
    fire("budget_100", "monthly", project.org_id, 100)
    page = admin_client.get(reverse("admin:index")).text
    first = page.index("What is wrong now")
    assert first < page.index("lc-spans")
    assert EVIL not in page
    assert "Budget used up (monthly)" in page[first:]
    assert "100 % of the budget “monthly” are spent" in page
    alerts_observe([Look("budget_100", [])], now=timezone.now())
    assert "monthly" not in admin_client.get(reverse("admin:index")).text


def test_alerts_show_to_whom_they_concern(project: Project) -> None:
    other = Org.objects.create(name="Other")
    fire("model_failed", "broken")
    fire("budget_100", "mine", project.org_id, 100)
    fire("budget_100", "theirs", other.pk, 100)
    seen = {
        (role, org.pk): {
            name
            for page in ("admin:index", "admin:chat_alert_changelist")
            for name in ("broken", "mine", "theirs")
            if name in client.get(reverse(page)).text
        }
        for role, org in (
            *(("owner", project.org), ("viewer", project.org), ("billing", project.org), ("member", project.org)),
            *(("owner", other), ("member", other)),
        )
        for client in (client_of(role, org),)
    }
    assert seen == {
        ("owner", project.org_id): {"broken", "mine"},
        ("viewer", project.org_id): {"broken", "mine"},
        ("billing", project.org_id): {"mine"},
        ("member", project.org_id): set(),
        ("owner", other.pk): {"theirs"},
        ("member", other.pk): set(),
    }


def test_a_new_webhook_shows_its_secret_once(admin_client: Client) -> None:
    answer = admin_client.post(reverse(ADD), channel_data(conditions=["disk_low"]))
    (secret,) = re.findall(r"whsec_[A-Za-z0-9+/=]{44}", answer.text)
    assert "no-store" in answer["Cache-Control"]
    channel = AlertChannel.objects.get()
    assert (channel.org, channel.conditions) == (None, ["disk_low"])
    for page in (reverse(CHANNELS), reverse("admin:chat_alertchannel_change", args=[channel.pk])):
        text = admin_client.get(page).text
        assert "whsec_" not in text
        assert "the installation" in text
    rotated = admin_client.post(reverse("admin:chat_alertchannel_rotate", args=[channel.pk])).text
    assert "whsec_" in rotated
    assert secret not in rotated


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"address": "http://169.254.169.254/"}, "LIGHTCONE_WEBHOOK_NETWORKS"),
        ({"address": "http://2130706433/"}, "127.0.0.1"),
        ({"address": "nowhere"}, "https://hooks.example.com/lightcone"),
        ({"address": "https://example.com/" + "x" * 500}, "at most 500 characters"),
        ({"name": ""}, "required"),
        ({"name": "x" * 121}, "at most 120 characters"),
        ({"kind": "pigeon"}, "pigeon"),
        ({"kind": "email", "address": "ops@example.com"}, "LIGHTCONE_SMTP_HOST"),
        ({"conditions": ["moon"]}, "moon"),
        ({"org": "999"}, "valid choice"),
    ],
)
def test_bad_channels_are_refused_with_a_sentence(admin_client: Client, fields: dict[str, Any], said: str) -> None:
    answer = admin_client.post(reverse(ADD), channel_data(**fields))
    assert answer.status_code == 200
    assert said in answer.text
    assert not AlertChannel.objects.exists()


def test_an_organisations_channel_refuses_what_it_never_gets(admin_client: Client, project: Project) -> None:
    data = channel_data(org=project.org_id, conditions=["budget_80", "disk_low"])
    assert "Disk low: an organisation" in admin_client.post(reverse(ADD), data).text
    admin_client.post(reverse(ADD), data | {"conditions": ["budget_80"]})
    assert AlertChannel.objects.get().conditions == ["budget_80"]


def test_the_second_of_two_administrators_is_stopped(admin_client: Client) -> None:
    admin_client.post(reverse(ADD), channel_data())
    channel = AlertChannel.objects.get()
    page = reverse("admin:chat_alertchannel_change", args=[channel.pk])
    shown = fresh_of(admin_client.get(page).text)
    assert admin_client.post(page, channel_data(name="first", fresh=shown)).status_code == 302
    answer = admin_client.post(page, channel_data(name="second", fresh=shown))
    assert "Somebody else has changed this" in answer.text
    assert AlertChannel.objects.get().name == "first"


def test_channels_belong_to_organisations_and_the_installation(project: Project) -> None:
    other = Org.objects.create(name="Other")
    theirs = client_of("owner", other)
    refused = theirs.post(reverse(ADD), channel_data())
    assert "This field is required" in refused.text
    assert theirs.post(reverse(ADD), channel_data(org=project.org_id)).status_code == 200
    assert not AlertChannel.objects.exists()
    theirs.post(reverse(ADD), channel_data(org=other.pk))
    mine = client_of("admin", project.org)
    mine.post(reverse(ADD), channel_data())
    assert {channel.org for channel in AlertChannel.objects.all()} == {other, None}
    billing = client_of("billing", project.org)
    assert "This field is required" in billing.post(reverse(ADD), channel_data(name="b")).text


def test_viewers_see_the_host_of_a_webhook_alone(admin_client: Client, project: Project) -> None:
    admin_client.post(reverse(ADD), channel_data())
    channel = AlertChannel.objects.get()
    viewer = client_of("viewer", project.org)
    for page in (reverse(CHANNELS), reverse("admin:chat_alertchannel_change", args=[channel.pk])):
        text = viewer.get(page).text
        assert "https://hooks.example.com/…" in text
        assert "private" not in text
    assert viewer.post(reverse("admin:chat_alertchannel_send_test", args=[channel.pk])).status_code == 403


def test_the_test_button_shows_the_result(admin_client: Client, receiver: Receiver) -> None:
    admin_client.post(reverse(ADD), channel_data(receiver.url))
    page = reverse("admin:chat_alertchannel_send_test", args=[AlertChannel.objects.get().pk])
    assert "marked as a test" in admin_client.get(page).text
    assert receiver.got == []
    assert "The test was taken. 200 taken" in admin_client.post(page, follow=True).text
    assert "A channel takes one test in 10 s" in admin_client.post(page, follow=True).text
    AlertDelivery.objects.update(created_at=timezone.now() - timedelta(seconds=11))
    receiver.answers.append((401, {}, f"{EVIL} who are you".encode()))
    answer = admin_client.post(page, follow=True).text
    assert "The test failed: The receiver answered with the status 401." in answer
    assert "who are you" in answer
    assert EVIL not in answer
    log = admin_client.get(reverse("admin:chat_alertdelivery_changelist")).text
    assert "401" in log
    assert EVIL not in log


def test_rules_are_changed_within_their_bounds(admin_client: Client) -> None:
    assert not AlertRule.objects.exists()
    assert "Disk low" in admin_client.get(reverse("admin:chat_alertrule_changelist")).text
    rule = rules_read()[Condition.DISK_LOW]
    page = reverse("admin:chat_alertrule_change", args=[rule.pk])
    answer = admin_client.post(page, {"threshold": "-1", "hold_s": "0", "cooldown_s": "0"})
    assert "Give from 0.01 to 100,000 GiB free." in answer.text
    answer = admin_client.post(page, {"threshold": "nan", "hold_s": "-1", "cooldown_s": "x"})
    assert "Enter a number" in answer.text
    rule.refresh_from_db()
    assert (rule.threshold, rule.is_on) == (1.0, True)
    assert admin_client.post(page, {"threshold": "2.5", "hold_s": "0", "cooldown_s": "5"}).status_code == 302
    rule.refresh_from_db()
    assert (rule.threshold, rule.is_on, rule.cooldown_s) == (2.5, False, 5)


def rows_made(project: Project, number: int) -> AlertChannel:
    channel = AlertChannel.objects.create(name="ops", org=project.org, address="https://hooks.example.com/x")
    now = timezone.now()
    known = {"org": project.org, "since": now, "fired_at": now, "seen_at": now, "condition": "budget_80", "value": 80}
    Alert.objects.bulk_create(
        Alert(subject=str(one), name=f"b{one}", ended_at=now if one % 2 else None, **known) for one in range(number)
    )
    AlertDelivery.objects.bulk_create(
        AlertDelivery(channel=channel, channel_name="ops", org=project.org, event="firing", title=f"t{one}")
        for one in range(number)
    )
    return channel


@pytest.mark.parametrize("name", ["alert", "alertdelivery", "alertchannel", "alertrule"])
def test_lists_take_as_many_queries_for_many_rows(
    admin_client: Client, project: Project, name: str, django_assert_max_num_queries: Any
) -> None:
    rows_made(project, 120)
    rules_read()
    with django_assert_max_num_queries(12):
        assert admin_client.get(reverse(f"admin:chat_{name}_changelist")).status_code == 200


@pytest.mark.skipif(connection.vendor != "sqlite", reason="reads plans of SQLite")
@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("alert", ""),
        ("alert", "?state=open"),
        ("alert", "?condition=budget_80"),
        ("alertdelivery", ""),
        ("alertdelivery", "?state=waiting"),
        ("alertdelivery", "?channel={channel}"),
    ],
)
def test_filters_are_served_by_an_index_in_the_order_of_the_list(
    admin_client: Client, project: Project, name: str, query: str
) -> None:
    channel = rows_made(project, 60)
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(reverse(f"admin:chat_{name}_changelist") + query.format(channel=channel.pk))
    assert page.status_code == 200
    sql = [one["sql"] for one in queries]
    assert not any("COUNT(" in statement.upper() for statement in sql)
    (on_rows,) = [statement for statement in sql if f'FROM "chat_{name}"' in statement and "LIMIT 51" in statement]
    assert "TEMP B-TREE" not in sqlite_plan(on_rows)
    if query:
        assert "INDEX" in sqlite_plan(on_rows)


def test_what_has_not_held_long_enough_does_not_show(admin_client: Client) -> None:
    rules_read()
    AlertRule.objects.update(hold_s=60)
    fire("model_failed", "passing")
    for page in ("admin:index", "admin:chat_alert_changelist"):
        assert "passing" not in admin_client.get(reverse(page)).text
    later = timezone.now() + timedelta(seconds=61)
    alerts_observe([Look("model_failed", [Seen("passing", "passing", True)])], now=later)
    assert "passing" in admin_client.get(reverse("admin:index")).text


def test_an_organisation_that_had_an_alert_can_be_deleted(admin_client: Client) -> None:
    org = Org.objects.create(name="Leaving")
    AlertChannel.objects.create(name="theirs", org=org, address="https://hooks.example.com/a")
    fire("budget_100", "theirs", org.pk, 100)
    assert AlertDelivery.objects.get().org_id == org.pk
    page = admin_client.post(reverse("admin:chat_org_delete", args=[org.pk]), {"post": "yes"})
    assert page.status_code == 302
    assert not Org.objects.filter(pk=org.pk).exists()
    assert not Alert.objects.exists()
    assert not AlertDelivery.objects.exists()
