"""Fill the counters of hard budgets in Valkey from SQL: when one is missing, at the start, and on demand."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from channels.db import database_sync_to_async
from django.conf import settings

from chat.budgets.models import Budget
from chat.budgets.services import budget_entry, budget_spent
from chat.budgets.windows import Window
from chat.relay.state.budget_counters import Counter, Place, counter_read, set_command
from chat.relay.state.keys import Keys
from chat.relay.state.meters import BudgetMeter
from chat.relay.valkey import Answers, valkey_connect_blocking

logger = logging.getLogger(__name__)

LATE_S = 60.0


async def counter_fill(client: Answers, keys: Keys, meter: BudgetMeter) -> None:
    """Tell Valkey what is spent of a budget that it does not know, as after the loss of its memory."""
    place = Place(meter.budget_id, meter.window, meter.ends_at_ms)
    spent = await database_sync_to_async(budget_spent)(budget_id=place.budget_id, window=place.window)
    await client.eval(*set_command(keys, place=place, now_ms=_now_ms(), spent=spent, known=None))


def place_of(budget_id: int, window: Window) -> Place:
    return Place(budget_id, window.id, int(window.ends_at.timestamp() * 1000) if window.ends_at else 0)


class Rebuild:
    """Sets the counters of all open windows to what SQL has, and what live runs reserve. Repeat `turn`.

    What had ended when the counters were read is in SQL once the records of that time have left the stream, and what
    ends later changes its counter. A counter that has changed is left for the next turn.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: _Begun | None = None
        self._late: dict[Place, float] = {}
        """Since when each counter waits to be set."""
        self._logged_at = -LATE_S

    def turn(self) -> int | None:
        """Return how many counters were set, or None while SQL lacks ended runs: try again shortly.

        Raises redis.RedisError or OSError if Valkey is unavailable.
        """
        keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
        with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
            begun = self._begun = self._begun or _begin(client, keys)
            done = _set_all(client, keys, begun) if _is_stored(client, keys, begun.last) else None
        self._note(begun.places, done or set())
        if done is None:
            return None
        self._begun = None
        return len(done)

    def _note(self, places: list[Place], done: set[Place]) -> None:
        """Log counters that have not been set for a minute, at most once a minute."""
        now = self._clock()
        self._late = {place: self._late.get(place, now) for place in places if place not in done}
        late = [str(place.budget_id) for place, since in self._late.items() if now - since >= LATE_S]
        if late and now - self._logged_at >= LATE_S:
            self._logged_at = now
            logger.warning(
                "counters of %d hard budgets (%s) could not be compared with the database for a minute",
                len(late),
                ", ".join(late[:10]),
            )


@dataclass(frozen=True, slots=True)
class _Begun:
    """What Valkey knew before SQL is asked. `last`: the newest record that waited; b"": none."""

    places: list[Place]
    known: list[Counter]
    last: bytes


def _begin(client: Answers, keys: Keys) -> _Begun:
    now = datetime.now(UTC)
    hard = [budget_entry(budget) for budget in Budget.objects.filter(is_hard=True)]
    places = [place_of(entry.id, entry.window_at(now)) for entry in hard]
    known = _read(client, keys, places)
    newest = client.xrevrange(keys.usage, count=1)
    return _Begun(places, known, newest[0][0] if newest else b"")


def _is_stored(client: Answers, keys: Keys, last: bytes) -> bool:
    """Return True if every record up to `last` has left the stream, as the writer deletes what SQL has."""
    return not last or not client.xrange(keys.usage, max=last, count=1)


def _set_all(client: Answers, keys: Keys, begun: _Begun) -> set[Place]:
    done = set()
    for place, counter in zip(begun.places, begun.known, strict=True):
        spent = budget_spent(budget_id=place.budget_id, window=place.window)
        command = set_command(keys, place=place, now_ms=_now_ms(), spent=spent, known=counter.spent)
        if client.eval(*command) == b"set":
            done.add(place)
    return done


def counters_read(places: Sequence[Place]) -> list[Counter]:
    """Return the counters of windows, with one round trip. Raises redis.RedisError or OSError."""
    if not places:
        return []
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        return _read(client, Keys(settings.LIGHTCONE_DEPLOYMENT), places)


def _read(client: Answers, keys: Keys, places: Sequence[Place]) -> list[Counter]:
    pipe = client.pipeline(transaction=False)
    for place in places:
        pipe.hmget(keys.budget(place.budget_id, place.window), "spent", "held")
    return [counter_read(fields) for fields in pipe.execute()]


def _now_ms() -> int:
    return int(time.time() * 1000)
