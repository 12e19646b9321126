"""Find audit entries, newest first. Every filter uses an index; none counts."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import TypeAlias

from django.db.models import Q, QuerySet
from django.utils import timezone

from chat.audit.actions import KINDS, ActorKind
from chat.audit.models import AuditEntry

Entries: TypeAlias = QuerySet[AuditEntry]

SKEW = timedelta(minutes=5)
"""Twice as far as the clocks of two machines may differ."""
MAX_ID = 2**63 - 1


def entries_by(entries: Entries, actor: str) -> Entries:
    """Return what an actor has done, by name, or by kind and id as in `key:abcd1234`."""
    kind, colon, number = actor.partition(":")
    is_id = bool(colon) and kind in set(ActorKind)
    return entries.filter(Q(actor_kind=kind, actor_id=number) if is_id else Q(actor_name=actor))


def entries_on(entries: Entries, thing: str) -> Entries:
    """Return what was done to an object, by name, or by kind and id as in `key:abcd1234` or `model:7`."""
    kind, colon, number = thing.partition(":")
    is_id = bool(colon) and kind in KINDS
    return entries.filter(Q(object_kind=kind, object_id=number) if is_id else Q(object_name=thing))


def entries_between(entries: Entries, *, first: date | None, last: date | None) -> Entries:
    """Return the entries of some days, both included, in the present time zone.

    The days become a range of ids beside, so that a list by ids is found without sorting: whatever is older than the
    days by more than clocks differ has smaller ids than all of their entries.
    """
    start = None if first is None else _midnight(first)
    end = None if last is None else _midnight(last + timedelta(days=1))
    return entries_within(entries, start=start, end=end)


def entries_within(entries: Entries, *, start: datetime | None, end: datetime | None) -> Entries:
    """Return the entries from an instant on, until before another, by a range of ids beside as `entries_between`."""
    if start is not None:
        older = _nearest("-at", at__lt=start - SKEW)
        entries = entries.filter(at__gte=start, pk__gt=older or 0)
    if end is not None:
        newer = _nearest("at", at__gte=end + SKEW)
        entries = entries.filter(at__lt=end, pk__lt=newer or MAX_ID)
    return entries


def _nearest(order: str, **bound: datetime) -> int | None:
    pk: int | None = AuditEntry.objects.filter(**bound).order_by(order).values_list("pk", flat=True).first()
    return pk


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))
