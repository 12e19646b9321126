"""Looks become episodes: per subject, by the rules, and for the channels of whom it concerns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from chat.alerts.channels import MOST_CHANNELS, channel_save
from chat.alerts.models import Alert, AlertChannel, AlertDelivery, AlertRule, Condition
from chat.alerts.rules import rule_save, rules_read
from chat.alerts.services import Look, Seen, alerts_observe
from chat.alerts.watch import budget_looks
from chat.audit.models import AuditEntry
from chat.budgets.models import Budget
from chat.budgets.services import budget_save
from chat.models import Org, Project
from chat.relay.state.keys import run_id_create
from chat.usage.services import usage_records_write

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 26, 12, 59, tzinfo=UTC)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def rule_of(condition: str, **fields: Any) -> AlertRule:
    rule = rules_read()[condition]
    for name, value in fields.items():
        setattr(rule, name, value)
    rule_save(rule=rule)
    return rule


def look(condition: str, *subjects: str, at: float, is_whole: bool = True, holds: bool | None = True) -> list[str]:
    """Look at subjects of which the condition holds. Return the notices."""
    seen = [Seen(subject, subject, holds) for subject in subjects]
    notices = alerts_observe([Look(condition, seen, is_whole=is_whole)], now=later(at))
    return [f"{event.value} {alert.subject}" for alert, event in notices]


def test_each_subject_has_its_own_episodes() -> None:
    failed = Condition.MODEL_FAILED
    assert look(failed, "a", at=0) == ["firing a"]
    assert look(failed, "a", "b", at=5) == ["firing b"]
    assert look(failed, "b", at=10) == ["resolved a"]
    assert look(failed, at=15) == ["resolved b"]
    assert look(failed, at=20) == []


def test_a_flapping_subject_gives_one_notice_a_cooldown() -> None:
    rule_of("model_failed", cooldown_s=600)
    notices = [event for turn in range(100) for event in look(Condition.MODEL_FAILED, *["a"][: turn % 2], at=turn * 10)]
    assert notices == ["firing a", "resolved a"] * 2


def test_what_passes_quickly_gives_no_notice() -> None:
    rule_of("queue_age", hold_s=60)
    assert look(Condition.QUEUE_AGE, "queue", at=0) == []
    assert look(Condition.QUEUE_AGE, at=50) == []
    assert not Alert.objects.exists()
    assert [look(Condition.QUEUE_AGE, "queue", at=at) for at in (100, 159, 160)] == [[], [], ["firing queue"]]


def test_what_is_not_known_changes_nothing() -> None:
    failed = Condition.MODEL_FAILED
    look(failed, "a", at=0)
    assert look(failed, "a", at=5, holds=None) == []
    assert Alert.objects.get().ended_at is None
    assert look(failed, "b", at=5, holds=None) == ["resolved a"]


def test_what_is_not_seen_stays_open_for_a_while() -> None:
    """A lost worker leaves the list after a minute, and is not well because of that."""
    lost = Condition.WORKER_LOST
    assert look(lost, "worker", at=0, is_whole=False) == ["firing worker"]
    assert look(lost, at=3000, is_whole=False) == []
    assert look(lost, at=3700, is_whole=False) == ["resolved worker"]


def test_a_rule_that_is_off_ends_its_alerts() -> None:
    look(Condition.MODEL_FAILED, "a", at=0)
    rule_of("model_failed", is_on=False)
    assert look(Condition.MODEL_FAILED, "a", at=5) == ["resolved a"]
    assert look(Condition.MODEL_FAILED, "a", at=10) == []
    rule_of("model_failed", is_on=True, cooldown_s=0)
    assert look(Condition.MODEL_FAILED, "a", at=15) == ["firing a"]


def test_the_value_of_an_open_alert_is_kept_up() -> None:
    for at, value in ((0, 3.0), (30, 4.0), (40, 4.5), (90, 5.0)):
        seen = [Seen("errors", "Lightcone", True, value=value)]
        alerts_observe([Look(Condition.ERROR_RATE, seen)], now=later(at))
    alert = Alert.objects.get()
    assert (alert.value, alert.threshold) == (5.0, 5.0)


@pytest.mark.parametrize(
    ("condition", "field", "value", "said"),
    [
        ("disk_low", "threshold", 0, "from 0.01 to"),
        ("disk_low", "threshold", float("nan"), "GiB free"),
        ("disk_low", "threshold", float("inf"), "GiB free"),
        ("error_rate", "threshold", 101, "to 100 percent"),
        ("error_rate", "threshold", None, "percent"),
        ("error_rate", "window_s", 5, "from 30"),
        ("error_rate", "window_s", None, "from 30"),
        ("error_rate", "least_requests", 0, "from 1"),
        ("queue_age", "cooldown_s", 10**9, "604,800"),
        ("worker_lost", "threshold", 51, "to 50"),
    ],
)
def test_values_that_a_condition_cannot_have_are_refused(condition: str, field: str, value: Any, said: str) -> None:
    before = rules_read()[condition]
    with pytest.raises(ValidationError) as refused:
        rule_of(condition, **{field: value})
    assert said in refused.value.message_dict[field][0]
    assert getattr(rules_read()[condition], field) == getattr(before, field)


def test_changes_of_rules_are_audited() -> None:
    rule_of("disk_low", threshold=2.5)
    entry = AuditEntry.objects.get(action="rule.change")
    assert (entry.before, entry.after, entry.object_name) == ({"threshold": 1.0}, {"threshold": 2.5}, "disk_low")


def channel_of(org: Org | None = None, **fields: Any) -> AlertChannel:
    channel = AlertChannel(**{"name": "ops", "address": "https://hooks.example.com/secret", "org": org} | fields)
    channel_save(channel=channel)
    return channel


def test_notices_go_to_the_channels_of_whom_they_concern(project: Project) -> None:
    other = Org.objects.create(name="Other")
    everywhere = channel_of()
    errors = channel_of(name="errors", conditions=["error_rate"])
    channel_of(name="off", is_on=False)
    mine, _theirs = channel_of(project.org), channel_of(other)
    look(Condition.MODEL_FAILED, "a", at=0)
    assert [one.channel for one in AlertDelivery.objects.all()] == [everywhere]
    rule_of("error_rate", hold_s=0)
    look(Condition.ERROR_RATE, "errors", at=0)
    assert {one.channel for one in AlertDelivery.objects.filter(condition="error_rate")} == {everywhere, errors}
    seen = [Seen("budget:1", "month", True, value=80, org_id=project.org_id)]
    alerts_observe([Look(Condition.BUDGET_80, seen)], now=NOW)
    assert [one.channel for one in AlertDelivery.objects.filter(condition="budget_80")] == [mine]


@pytest.mark.parametrize(
    ("fields", "place", "said"),
    [
        ({"address": "http://localhost/x"}, "address", "LIGHTCONE_WEBHOOK_NETWORKS"),
        ({"address": "ops@example.com"}, "address", "https://"),
        ({"kind": "email", "address": "https://example.com"}, "address", "e-mail"),
        ({"kind": "email", "address": "ops@example.com"}, "kind", "LIGHTCONE_SMTP_HOST"),
        ({"conditions": ["moon"]}, "conditions", "moon"),
        ({"name": "taken"}, "name", "name"),
    ],
)
def test_channels_that_cannot_work_are_refused(fields: dict[str, Any], place: str, said: str) -> None:
    channel_of(name="taken")
    with pytest.raises(ValidationError) as refused:
        channel_of(**fields)
    assert said in refused.value.message_dict[place][0]
    assert AlertChannel.objects.count() == 1


def test_the_number_of_channels_is_bounded() -> None:
    for number in range(MOST_CHANNELS):
        channel_of(name=str(number))
    with pytest.raises(ValidationError, match="50"):
        channel_of()


def test_audit_entries_of_channels_hold_no_secret() -> None:
    channel = channel_of()
    channel.address = "https://hooks.example.com/another"
    channel_save(channel=channel)
    entries = list(AuditEntry.objects.filter(object_kind="channel").order_by("pk"))
    assert [entry.action for entry in entries] == ["channel.create", "channel.change"]
    for entry in entries:
        text = str((entry.before, entry.after))
        assert "/secret" not in text
        assert "/another" not in text
        assert "whsec" not in text
    assert entries[0].after["address"] == "https://hooks.example.com/…"


def spend(budget: Budget, tokens: int, at: datetime) -> None:
    window = f"{at:%Y-%m-%dT%H}"
    stamps = {"budgets": {str(budget.pk): window}, "prompt_tokens": tokens, "completion_tokens": 0}
    known = {"run_id": run_id_create(), "arrived_at": at.timestamp(), "status": 200, "outcome": "finished"}
    usage_records_write([known | stamps])


def budget_notices(at: datetime) -> list[str]:
    return [f"{event.value} {alert.condition}" for alert, event in alerts_observe(budget_looks(at), now=at)]


def test_a_budget_that_runs_out_and_reopens_gives_both_notices(project: Project) -> None:
    budget = Budget(name="hourly", scope="project", project=project, amount=100, window="hour", is_hard=True)
    budget_save(budget=budget)
    assert budget_notices(NOW) == []
    spend(budget, 55, NOW)
    assert budget_notices(NOW) == ["firing budget_50"]
    spend(budget, 45, NOW)
    assert budget_notices(later(5)) == ["firing budget_80", "firing budget_100"]
    assert budget_notices(later(10)) == []
    # The next hour begins a minute after NOW.
    resolved = ["resolved budget_50", "resolved budget_80", "resolved budget_100"]
    assert budget_notices(later(60)) == resolved
    spend(budget, 100, later(61))
    assert budget_notices(later(62)) == [one.replace("resolved", "firing") for one in resolved]
    budget.amount = 1000
    budget_save(budget=budget)
    assert budget_notices(later(70)) == resolved
    alert = Alert.objects.filter(condition="budget_100")[0]
    assert (alert.org, alert.name, alert.value) == (project.org, "hourly", 100.0)


def test_a_deleted_budget_is_resolved(project: Project) -> None:
    budget = Budget(name="hourly", scope="project", project=project, amount=100, window="hour")
    budget_save(budget=budget)
    spend(budget, 60, NOW)
    assert budget_notices(NOW) == ["firing budget_50"]
    budget.delete()
    assert budget_notices(later(5)) == ["resolved budget_50"]
