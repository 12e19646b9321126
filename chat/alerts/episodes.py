"""The state machine of one alert on one subject: when it fires, when a notice is due, when it is over.

It is a pure function of the state, what is seen, and the clock. The promises, for any sequence of what is seen:
  notices alternate: firing, resolved, firing, …; an episode has at most one of each
  nothing fires that has held for less than `hold`
  two firing notices are at least `cooldown` apart; an episode that lasts longer than that has its notice late
  a firing notice is followed by a resolved one once the episode is over
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from chat.alerts.models import Event

NOTHING = timedelta(0)


@dataclass(frozen=True, slots=True)
class Timing:
    hold: timedelta = NOTHING
    cooldown: timedelta = NOTHING


@dataclass(frozen=True, slots=True)
class Episode:
    since: datetime
    fired_at: datetime | None = None
    notified_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What follows. `episode`: None once it is over."""

    episode: Episode | None
    notice: Event | None = None


def episode_step(
    episode: Episode | None, *, holds: bool, now: datetime, timing: Timing, last_notified_at: datetime | None
) -> Step:
    """Return what follows from seeing the condition hold, or not. `last_notified_at`: of a firing notice."""
    if not holds:
        return Step(None, Event.RESOLVED if episode is not None and episode.notified_at else None)
    episode = episode or Episode(since=now)
    if episode.fired_at is None and now - episode.since >= timing.hold:
        episode = replace(episode, fired_at=now)
    if episode.fired_at is None or episode.notified_at is not None or _is_cooling(last_notified_at, now, timing):
        return Step(episode)
    return Step(replace(episode, notified_at=now), Event.FIRING)


def _is_cooling(last_notified_at: datetime | None, now: datetime, timing: Timing) -> bool:
    """Return True during the cool-down. A notice from the future is one from before the clock was set back."""
    return last_notified_at is not None and last_notified_at <= now < last_notified_at + timing.cooldown
