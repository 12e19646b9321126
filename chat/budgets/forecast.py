"""What a window of a budget shows: spent, reserved, left, and what will be spent at its end if it goes on so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from redis.exceptions import RedisError

from chat.budgets.counters import counters_read, place_of
from chat.budgets.models import Budget, BudgetSpend
from chat.budgets.services import BudgetEntry, budget_entry
from chat.budgets.windows import Window

MIN_SHARE = 0.02
"""Of a window that must be over for a forecast."""


@dataclass(frozen=True, slots=True)
class BudgetView:
    """The present window of a budget. Amounts are in the units of `BudgetSpend.spent`."""

    entry: BudgetEntry
    window: Window
    spent: int
    held: int
    created_at: datetime
    """Since when it counts."""

    @property
    def left(self) -> int:
        return max(0, self.entry.amount - self.spent - self.held)

    @property
    def percent(self) -> float:
        return 100 * self.spent / self.entry.amount

    @property
    def held_percent(self) -> float:
        return min(100.0 * self.held / self.entry.amount, max(0.0, 100 - self.percent))

    def forecast(self, now: datetime) -> int | None:
        """Return what is spent at the end of the window at the rate so far; None of a lifetime or a young window."""
        starts_at, ends_at = self.window.starts_at, self.window.ends_at
        if starts_at is None or ends_at is None:
            return None
        begins_at = max(starts_at, self.created_at)
        share = (now - begins_at) / (ends_at - begins_at)
        return None if share < MIN_SHARE else round(self.spent / share)


def budget_views(budgets: Sequence[Budget], *, now: datetime) -> dict[int, BudgetView]:
    """Return the views of budgets by id, with one query and one round trip. Without Valkey nothing is reserved."""
    entries = [budget_entry(budget) for budget in budgets]
    windows = {entry.id: entry.window_at(now) for entry in entries}
    rows = BudgetSpend.objects.filter(budget__in=list(windows), window__in={one.id for one in windows.values()})
    spent = {(row.budget_id, row.window): row.spent for row in rows}
    hard = [entry for entry in entries if entry.is_hard]
    try:
        counters = counters_read([place_of(entry.id, windows[entry.id]) for entry in hard])
        held = {entry.id: counter.held for entry, counter in zip(hard, counters, strict=True)}
    except (RedisError, OSError):
        held = {}
    views = {}
    for entry, budget in zip(entries, budgets, strict=True):
        window = windows[entry.id]
        counted = spent.get((entry.id, window.id), 0)
        views[entry.id] = BudgetView(entry, window, counted, held.get(entry.id, 0), budget.created_at)
    return views
