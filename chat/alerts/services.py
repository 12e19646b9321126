"""Turn what is seen into episodes and notices. Each look is a transaction that one process makes at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max

from chat.alerts.deliveries import notices_queue
from chat.alerts.episodes import Episode, Timing, episode_step
from chat.alerts.models import Alert, AlertRule, Event
from chat.alerts.rules import rules_read

logger = logging.getLogger(__name__)

Place = tuple[str, str]
"""A condition and a subject."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look finds of one subject."""

    subject: str
    name: str
    holds: bool | None
    """None: this look cannot tell, and all stays as it is."""
    value: float | None = None
    detail: str = ""
    org_id: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of one condition.

    `is_whole`: whether subjects that are not named are known to be well. Otherwise their alerts stay open, and end
    without having been seen for `given_up_after`.
    """

    condition: str
    seen: Sequence[Seen]
    is_whole: bool = True
    given_up_after: timedelta = timedelta(hours=1)


SEEN_EVERY = timedelta(seconds=60)
"""How often an open alert notes that it was seen, with its value."""


def alerts_observe(looks: Iterable[Look], *, now: datetime) -> list[tuple[Alert, Event]]:
    """Store what follows from looks, and queue the notices. Return these.

    Conditions whose rule is off are not judged, and their open alerts end.
    """
    looks = list(looks)
    rules = rules_read()
    if not _changes(looks, rules, now):
        return []
    with transaction.atomic():
        # The lock keeps out other processes; what was read before it may be old.
        rules = {rule.condition: rule for rule in AlertRule.objects.select_for_update().order_by("pk")}
        notices = [one for change in _changes(looks, rules, now) if (one := _apply(change, now)) is not None]
        notices_queue(notices, now=now)
    for alert, event in notices:
        logger.warning("alert %s: %s %s", event.value, alert.condition, alert.subject)
    return notices


@dataclass(frozen=True, slots=True)
class _Change:
    alert: Alert
    """The row as it was, or a new one."""
    episode: Episode | None
    notice: Event | None
    seen: Seen | None


@dataclass(frozen=True, slots=True)
class _Known:
    """What is stored of a subject: its open alert, and when the last firing notice was given."""

    alert: Alert | None
    last_notified_at: datetime | None


def _changes(looks: Sequence[Look], rules: Mapping[str, AlertRule], now: datetime) -> list[_Change]:
    names = [look.condition for look in looks]
    opened: dict[Place, Alert] = {
        (alert.condition, alert.subject): alert
        for alert in Alert.objects.filter(ended_at=None, condition__in=names).select_related("org")
    }
    held = {(look.condition, one.subject): one for look in looks for one in look.seen if one.holds}
    last_notified = _last_notified({*opened, *held})
    changes: list[_Change] = []
    for look in looks:
        rule = rules[look.condition]
        seen = {one.subject: one for one in look.seen}
        mine = {subject for condition, subject in opened if condition == look.condition}
        for subject in sorted(mine | set(seen)):
            place = (look.condition, subject)
            known = _Known(opened.get(place), last_notified.get(place))
            change = _change(look, rule, seen.get(subject), known, now)
            if change is not None:
                changes.append(change)
    return changes


def _last_notified(places: set[Place]) -> dict[Place, datetime]:
    """Return when the last firing notice of each was given."""
    if not places:
        return {}
    rows = Alert.objects.filter(
        condition__in={condition for condition, _ in places},
        subject__in={subject for _, subject in places},
        notified_at__isnull=False,
    )
    return {
        (condition, subject): at
        for condition, subject, at in rows.order_by()
        .values_list("condition", "subject")
        .annotate(at=Max("notified_at"))
    }


def _change(look: Look, rule: AlertRule, seen: Seen | None, known: _Known, now: datetime) -> _Change | None:
    """Return what changes about one subject. None: nothing."""
    alert = known.alert
    holds = _holds(look, seen, alert, now)
    if not rule.is_on:
        return None if alert is None else _Change(alert, None, Event.RESOLVED if alert.notified_at else None, None)
    if holds is None or (alert is None and not holds):
        return None
    before = None if alert is None else Episode(alert.since, alert.fired_at, alert.notified_at)
    timing = Timing(timedelta(seconds=rule.hold_s), timedelta(seconds=rule.cooldown_s))
    step = episode_step(before, holds=holds, now=now, timing=timing, last_notified_at=known.last_notified_at)
    if alert is not None and step.episode == before and step.notice is None and not _is_stale(alert, seen, now):
        return None
    if alert is None:
        assert seen is not None
        alert = Alert(condition=look.condition, subject=seen.subject, name=seen.name, org_id=seen.org_id)
    alert.threshold = rule.threshold if holds else alert.threshold
    return _Change(alert, step.episode, step.notice, seen if holds else None)


def _holds(look: Look, seen: Seen | None, alert: Alert | None, now: datetime) -> bool | None:
    if seen is not None:
        return seen.holds
    if look.is_whole or (alert is not None and now - alert.seen_at > look.given_up_after):
        return False
    return None


def _is_stale(alert: Alert, seen: Seen | None, now: datetime) -> bool:
    return seen is not None and abs(now - alert.seen_at) >= SEEN_EVERY


def _apply(change: _Change, now: datetime) -> tuple[Alert, Event] | None:
    """Store a change. An episode that has never fired leaves no row."""
    alert, episode, seen = change.alert, change.episode, change.seen
    if seen is not None:
        alert.name, alert.value, alert.detail, alert.seen_at = seen.name[:300], seen.value, seen.detail[:300], now
    if episode is not None:
        alert.since, alert.fired_at, alert.notified_at = episode.since, episode.fired_at, episode.notified_at
        alert.save()
    elif alert.fired_at is None:
        alert.delete()
    else:
        alert.ended_at = now
        alert.save()
    return None if change.notice is None else (alert, change.notice)
