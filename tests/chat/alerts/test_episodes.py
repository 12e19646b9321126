"""Episodes: whatever is seen in whatever order, notices keep their promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from chat.alerts.episodes import Episode, Timing, episode_step
from chat.alerts.models import Event

START = datetime(2026, 11, 26, tzinfo=UTC)
seconds = st.integers(0, 400)
sights = st.lists(st.tuples(st.integers(1, 120), st.booleans()), max_size=80)
"""Seconds since the look before, and whether the condition holds."""


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


def run(looks: list[tuple[int, bool]], timing: Timing) -> list[tuple[datetime, Event, datetime]]:
    """Return the notices of looks: when, which, and since when the condition held."""
    now, episode, last, notices = START, None, None, []
    for pause, holds in looks:
        now += second(pause)
        since = episode.since if episode else now
        step = episode_step(episode, holds=holds, now=now, timing=timing, last_notified_at=last)
        if step.notice is not None:
            notices.append((now, step.notice, since))
        if step.notice == Event.FIRING:
            last = now
        episode = step.episode
    return notices


@given(sights, seconds, seconds)
def test_notices_alternate_and_keep_their_distance(looks: list[tuple[int, bool]], hold: int, cooldown: int) -> None:
    notices = run(looks, Timing(second(hold), second(cooldown)))
    events = [event for _, event, _ in notices]
    assert events == [Event.FIRING if index % 2 == 0 else Event.RESOLVED for index in range(len(events))]
    firing = [(at, since) for at, event, since in notices if event == Event.FIRING]
    for (earlier, _), (later, _) in zip(firing, firing[1:], strict=False):
        assert later - earlier >= second(cooldown)
    for at, since in firing:
        assert at - since >= second(hold)


@given(sights, seconds, seconds)
def test_a_lasting_state_gives_a_notice_at_last(looks: list[tuple[int, bool]], hold: int, cooldown: int) -> None:
    """What holds for longer than both times gives a notice, and later a resolved one."""
    timing = Timing(second(hold), second(cooldown))
    lasting = [*looks, (1, True), (hold + cooldown + 1, True)]
    assert run(lasting, timing)[-1][1] == Event.FIRING
    over = [event for _, event, _ in run([*lasting, (1, False)], timing)]
    assert over[-1] == Event.RESOLVED


@given(st.lists(st.integers(1, 120), max_size=40), seconds)
def test_one_episode_gives_one_notice(pauses: list[int], cooldown: int) -> None:
    notices = run([(pause, True) for pause in (1, *pauses)], Timing(cooldown=second(cooldown)))
    assert [event for _, event, _ in notices] == [Event.FIRING]


def test_a_clock_that_was_set_back_stops_no_notice() -> None:
    timing = Timing(cooldown=second(600))
    step = episode_step(None, holds=True, now=START, timing=timing, last_notified_at=START + timedelta(days=400))
    assert step.notice == Event.FIRING


def test_an_episode_shows_while_it_cools_down() -> None:
    step = episode_step(None, holds=True, now=START, timing=Timing(cooldown=second(60)), last_notified_at=START)
    assert step.notice is None
    assert step.episode == Episode(START, fired_at=START)
