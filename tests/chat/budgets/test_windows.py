"""Windows of budgets against a slow reference that walks the clock of the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.budgets.windows import window_at

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "Australia/Lord_Howe"),
    *("Pacific/Apia", "Africa/Casablanca", "Asia/Beirut", "America/Havana"),
)
STEP = timedelta(minutes=15)


def slow_key(at: datetime, kind: str, zone: str, week_start: int) -> str:
    """Return what a calendar on the wall would call the window."""
    here = at.astimezone(ZoneInfo(zone))
    if kind == "day":
        return f"{here:%Y-%m-%d}"
    if kind == "month":
        return f"{here:%Y-%m}"
    day = here.date()
    while day.weekday() != week_start:
        day -= timedelta(days=1)
    return f"week {day.isoformat()}"


@given(
    at=st.datetimes(datetime(2011, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    zone=st.sampled_from(ZONES),
    kind=st.sampled_from(["day", "week", "month"]),
    week_start=st.sampled_from([0, 5, 6]),
)
def test_a_window_is_what_the_wall_says_and_holds_the_instant(
    at: datetime, zone: str, kind: str, week_start: int
) -> None:
    window = window_at(at, kind=kind, zone=zone, week_start=week_start)
    assert window.id == slow_key(at, kind, zone, week_start)
    assert window.starts_at is not None
    assert window.ends_at is not None
    assert window.starts_at <= at < window.ends_at
    assert slow_key(window.starts_at, kind, zone, week_start) == window.id
    assert slow_key(window.starts_at - timedelta(seconds=1), kind, zone, week_start) != window.id
    assert slow_key(window.ends_at, kind, zone, week_start) != window.id
    assert slow_key(window.ends_at - timedelta(seconds=1), kind, zone, week_start) == window.id


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 3, 12, tzinfo=UTC)),
        ("Asia/Beirut", datetime(2026, 3, 28, 12, tzinfo=UTC)),
        ("Pacific/Apia", datetime(2011, 12, 28, 12, tzinfo=UTC)),
        ("America/Havana", datetime(2026, 10, 31, 12, tzinfo=UTC)),
    ],
)
def test_windows_over_a_change_of_clocks_follow_each_other_without_gap(zone: str, start: datetime) -> None:
    for kind, week_start in (("hour", 0), ("day", 0), ("week", 0), ("week", 6), ("month", 0)):
        windows = []
        for number in range(4 * 24 * 4):
            window = window_at(start + number * STEP, kind=kind, zone=zone, week_start=week_start)
            if not windows or windows[-1] != window:
                windows.append(window)
        assert len({window.id for window in windows}) == len(windows), "none comes back"
        for one, two in zip(windows, windows[1:], strict=False):
            assert one.ends_at == two.starts_at


def test_a_week_begins_on_the_chosen_day() -> None:
    sunday = datetime(2026, 11, 22, 12, tzinfo=UTC)
    assert window_at(sunday, kind="week", zone="UTC", week_start=0).id == "week 2026-11-16"
    assert window_at(sunday, kind="week", zone="UTC", week_start=6).id == "week 2026-11-22"


def test_the_lifetime_has_no_end() -> None:
    window = window_at(datetime(2026, 11, 22, tzinfo=UTC), kind="lifetime", zone="UTC")
    assert (window.id, window.ends_at) == ("all", None)
