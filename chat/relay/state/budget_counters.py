"""The counters of hard budgets in Valkey, as code that knows SQL fills and reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chat.relay.state.keys import Keys
from chat.relay.state.meters import BUDGET_KEPT_MS
from chat.relay.valkey import BlockingValkey

SET = Path(__file__).with_name("budget_set.lua").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Place:
    """A window of a budget."""

    budget_id: int
    window: str
    ends_at_ms: int = 0
    """0: never."""


@dataclass(frozen=True, slots=True)
class Counter:
    """What Valkey knows of a budget in a window; None: nothing."""

    spent: int | None
    held: int


def set_command(keys: Keys, *, place: Place, now_ms: int, spent: int, known: int | None) -> list[Any]:
    """Return the arguments of the EVAL that sets a counter, if it is still what was `known` before SQL was asked.

    Its reply is b"set" or b"changed".
    """
    life_ms = max(0, place.ends_at_ms - now_ms) + BUDGET_KEPT_MS if place.ends_at_ms else 0
    name = keys.budget(place.budget_id, place.window)
    return [SET, 1, name, spent, keys.run_prefix, life_ms, "" if known is None else known]


def counter_forget(client: BlockingValkey, keys: Keys, place: Place) -> None:
    """Forget what is spent of a budget, so that the next request fills it from SQL. What runs reserve stays."""
    client.hdel(keys.budget(place.budget_id, place.window), "spent")


def counter_read(fields: list[bytes | None]) -> Counter:
    """Return the counter of the fields `spent` and `held`."""
    spent, held = fields
    return Counter(None if spent is None else int(spent), int(held or 0))
