"""Times of a report in whole hours: a span, its periods in a zone, and the hours and days of sums that make it up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from chat.usage.measures import hour_of, instant_of
from chat.usage.models import DAY, HOUR


@dataclass(frozen=True, slots=True)
class Piece:
    """Sums of one length that begin in a range of hours."""

    length_h: int
    start_h: int
    end_h: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a span in which the zone's clocks are not set: its hours, and how many they are ahead of UTC."""

    start_h: int
    end_h: int
    ahead_h: int


@dataclass(frozen=True, slots=True)
class Span:
    """A time from one hour to another, told by periods of a zone."""

    start_h: int
    """Hours since 1970."""
    end_h: int
    """The first hour that is not part of it."""
    zone: ZoneInfo
    length_h: int
    """HOUR or DAY: of its periods. A day is one of the zone's calendar, whatever its hours."""

    def before(self) -> Span:
        """Return the time before it, as long."""
        return Span(self.start_h - (self.end_h - self.start_h), self.start_h, self.zone, self.length_h)

    def pieces(self) -> list[Piece]:
        """Return the fewest sums that make it up: whole days (UTC) inside, hours at both ends."""
        first, last = -(-self.start_h // DAY) * DAY, self.end_h // DAY * DAY
        if first >= last:
            return [Piece(HOUR, self.start_h, self.end_h)]
        all_pieces = (Piece(HOUR, self.start_h, first), Piece(DAY, first, last), Piece(HOUR, last, self.end_h))
        return [piece for piece in all_pieces if piece.start_h < piece.end_h]

    def stretches(self) -> list[Stretch]:
        """Return its parts between changes of the clocks."""
        if self.zone.key == "UTC":
            return [Stretch(self.start_h, self.end_h, 0)]
        found, begin, hour = [], self.start_h, self.start_h
        while hour < self.end_h:
            if _ahead_h(hour, self.zone) != _ahead_h(begin, self.zone):
                found.append(Stretch(begin, hour, _ahead_h(begin, self.zone)))
                begin = hour
            later = min(hour + DAY, self.end_h)
            hour = later if _ahead_h(later, self.zone) == _ahead_h(hour, self.zone) else hour + 1
        return [*found, Stretch(begin, self.end_h, _ahead_h(begin, self.zone))]

    def parts(self, num_periods: int) -> Iterator[Span]:
        """Yield spans of so many of its periods each, oldest first."""
        starts = [max(self.start_h, hour_of(start.astimezone(UTC))) for _, start in self.periods()]
        marks = [*starts[::num_periods], self.end_h]
        for begin, end in pairwise(marks):
            yield Span(begin, end, self.zone, self.length_h)

    @property
    def has_days_of_utc(self) -> bool:
        """Return True if sums by day can be its periods."""
        return self.length_h == DAY and all(stretch.ahead_h == 0 for stretch in self.stretches())

    def periods(self) -> Iterator[tuple[int, datetime]]:
        """Yield the number and the start of each period, oldest first.

        The number counts hours (UTC) or days (of the zone's calendar) from 1970.
        """
        if self.length_h == HOUR:
            for hour in range(self.start_h, self.end_h):
                yield hour, instant_of(hour).astimezone(self.zone)
            return
        first, last = (
            instant_of(hour).astimezone(self.zone).date().toordinal() - date(1970, 1, 1).toordinal()
            for hour in (self.start_h, self.end_h - 1)
        )
        for number in range(first, last + 1):
            yield number, datetime.combine(date(1970, 1, 1) + timedelta(days=number), time(), self.zone)


def day_span(first: date, last: date, zone: ZoneInfo, length_h: int) -> Span:
    """Return the span of some days of a zone, the last included."""
    return Span(_midnight_h(first, zone), _midnight_h(last + timedelta(days=1), zone), zone, length_h)


def has_whole_hours(zone: ZoneInfo, first: date, last: date) -> bool:
    """Return True if a zone is whole hours ahead of UTC at each end of some days: no other has sums of its days."""
    days = (first + timedelta(days=number) for number in range((last - first).days + 2))
    ends = (datetime.combine(day, time(), zone) for day in days)
    return all((end.utcoffset() or timedelta()) % timedelta(hours=1) == timedelta() for end in ends)


def _midnight_h(day: date, zone: ZoneInfo) -> int:
    return hour_of(datetime.combine(day, time(), zone).astimezone(UTC))


def _ahead_h(hour: int, zone: ZoneInfo) -> int:
    return (instant_of(hour).astimezone(zone).utcoffset() or timedelta()) // timedelta(hours=1)
