"""Fill the counters of hard budgets in Valkey from SQL: when one is missing, at the start, and on demand."""

from __future__ import annotations

import time
from collections.abc import Sequence
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


async def counter_fill(client: Answers, keys: Keys, meter: BudgetMeter) -> None:
    """Tell Valkey what is spent of a budget that it does not know, as after the loss of its memory."""
    place = Place(meter.budget_id, meter.window, meter.ends_at_ms)
    spent = await database_sync_to_async(budget_spent)(budget_id=place.budget_id, window=place.window)
    await client.eval(*set_command(keys, place=place, now_ms=_now_ms(), spent=spent, known=None))


def place_of(budget_id: int, window: Window) -> Place:
    return Place(budget_id, window.id, int(window.ends_at.timestamp() * 1000) if window.ends_at else 0)


def counters_rebuild() -> int | None:
    """Set the counters of all open windows to what SQL has, and what live runs reserve. Return how many were set.

    None: SQL lacks ended runs that the usage writer has not stored yet, or all would have been set.
    Raises redis.RedisError or OSError if Valkey is unavailable.
    """
    keys = Keys(settings.LIGHTCONE_DEPLOYMENT)
    now = datetime.now(UTC)
    hard = [budget_entry(budget) for budget in Budget.objects.filter(is_hard=True)]
    places = [place_of(entry.id, entry.window_at(now)) for entry in hard]
    with valkey_connect_blocking(settings.LIGHTCONE_REDIS_URL) as client:
        known = _read(client, keys, places)
        # What has ended before this is in SQL if nothing waits; what ends later changes its counter.
        if client.xlen(keys.usage):
            return None
        replies = []
        for place, counter in zip(places, known, strict=True):
            spent = budget_spent(budget_id=place.budget_id, window=place.window)
            command = set_command(keys, place=place, now_ms=_now_ms(), spent=spent, known=counter.spent)
            replies.append(client.eval(*command))
    return replies.count(b"set")


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
