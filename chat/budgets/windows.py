"""Windows of budgets: which one an instant is in, by the clock and the budget's zone. Nothing is ever reset.

Hours are those of UTC, so that none is twice as long where clocks go back. Days, weeks and months are the zone's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import models
from django.utils.translation import gettext_lazy as _


class WindowKind(models.TextChoices):
    HOUR = "hour", _("Hour")
    DAY = "day", _("Day")
    WEEK = "week", _("Week")
    MONTH = "month", _("Month")
    LIFETIME = "lifetime", _("For ever")


LENGTHS = {
    WindowKind.HOUR: timedelta(hours=1),
    WindowKind.DAY: timedelta(days=1),
    WindowKind.WEEK: timedelta(weeks=1),
    WindowKind.MONTH: timedelta(days=28),
}
"""The shortest of each kind, to compare kinds."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window. Both instants are UTC; those of a lifetime are None."""

    id: str
    starts_at: datetime | None = None
    ends_at: datetime | None = None


def window_at(at: datetime, *, kind: str, zone: str, week_start: int = 0) -> Window:
    """Return the window that an instant is in. `week_start`: 0 is Monday."""
    if kind == WindowKind.LIFETIME:
        return Window("all")
    if kind == WindowKind.HOUR:
        start = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        return Window(f"{start:%Y-%m-%dT%H}", start, start + timedelta(hours=1))
    clock = ZoneInfo(zone)
    day = at.astimezone(clock).date()
    if kind == WindowKind.WEEK:
        day -= timedelta(days=(day.weekday() - week_start) % 7)
        return Window(f"week {day.isoformat()}", midnight(day, clock), midnight(day + timedelta(days=7), clock))
    if kind == WindowKind.MONTH:
        first = day.replace(day=1)
        following = (first + timedelta(days=32)).replace(day=1)
        return Window(f"{first:%Y-%m}", midnight(first, clock), midnight(following, clock))
    return Window(day.isoformat(), midnight(day, clock), midnight(day + timedelta(days=1), clock))


def midnight(day: date, clock: ZoneInfo) -> datetime:
    """Return the first instant of a day. Where clocks go forward over midnight the day begins later, as they show."""
    start = datetime(day.year, day.month, day.day, tzinfo=clock).astimezone(UTC)
    while start.astimezone(clock).date() < day:  # a zone that has left the day out
        start += timedelta(hours=1)
    return start
