"""What a request is measured by: the scopes that it counts to, with their limits, and the hard budgets over them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from channels.db import database_sync_to_async
from django.conf import settings

from chat.access.configuration import TTLCache, configuration_changed
from chat.access.keys import Caller
from chat.budgets.counters import counter_fill, place_of
from chat.budgets.models import Unit, money_text
from chat.budgets.services import BudgetEntry, budgets_of
from chat.catalog.prices import PriceBook, Prices, price_book
from chat.catalog.services import ModelEntry
from chat.relay.state.keys import Keys
from chat.relay.state.meters import BudgetMeter, Scope
from chat.relay.valkey import Answers

CACHE_TTL_S = 5.0
CACHE_MODELS = 1_000
NANOS_PER_PRICE = 1_000
"""Billionths of the currency that a token costs, by the price of a million tokens."""
Fill = Callable[[Answers, Keys, BudgetMeter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Metering:
    """The meters of a request."""

    scopes: tuple[Scope, ...]
    budgets: tuple[BudgetMeter, ...] = ()
    stamps: dict[str, str] = field(default_factory=dict)
    """Of the budgets that its spending counts to, soft ones too: the window by id."""
    context: int | None = None
    """The tokens that the model takes, if known."""
    fill: Fill = counter_fill
    """Tells Valkey what is spent of a budget that it does not know."""

    @property
    def max_context(self) -> int | None:
        """Return the tightest context that the limits allow; None: the model's."""
        return min((scope.max_context for scope in self.scopes if scope.max_context), default=None)


async def metering_of(
    *, caller: Caller, model: ModelEntry, is_batch: bool = False, at: datetime | None = None
) -> Metering:
    """Return the meters of a caller's request to a model."""
    scopes = caller.scopes() if model.scope is None else (*caller.scopes(), model.scope)
    entries = await budgets_of(caller=caller, model=model.name)
    if not entries:
        return Metering(scopes, context=model.max_model_len)
    now = at or datetime.now(UTC)
    windows = [(entry, entry.window_at(now)) for entry in entries]
    prices = None
    if any(entry.is_hard and entry.unit == Unit.MONEY for entry in entries):
        prices = (await _price_book(model.name)).at(model.name, now)
    hard = []
    for entry, window in windows:
        if entry.is_hard:
            place = place_of(entry.id, window)
            hard.append(_meter(entry, place.window, place.ends_at_ms, prices, is_batch=is_batch))
    stamps = {str(entry.id): window.id for entry, window in windows}
    return Metering(scopes, tuple(hard), stamps, model.max_model_len)


def _meter(entry: BudgetEntry, window: str, ends_at_ms: int, prices: Prices | None, *, is_batch: bool) -> BudgetMeter:
    if entry.unit == Unit.TOKENS:
        costs = (1.0, 1.0, 1.0, 1.0)
    elif prices is None:
        costs = (0.0, 0.0, 0.0, 0.0)
    else:
        factor = NANOS_PER_PRICE * (settings.LIGHTCONE_BATCH_PRICE_FACTOR if is_batch else 1)
        costs = (
            *(float(prices.input * factor), float(prices.cached * factor)),
            *(float(prices.output * factor), float(prices.reasoning * factor)),
        )
    title = f"{entry.name}: {amount_text(entry)}"
    return BudgetMeter(entry.id, window, ends_at_ms, entry.amount, *costs, title)


def amount_text(entry: BudgetEntry) -> str:
    """Return the amount of a budget and its window, as `1,000 tokens per day`."""
    if entry.unit == Unit.TOKENS:
        amount = f"{entry.amount:,} tokens"
    else:
        amount = money_text(entry.amount)
    return amount if entry.window == "lifetime" else f"{amount} per {entry.window}"


_cache: TTLCache[PriceBook] = TTLCache(max_entries=CACHE_MODELS, ttl_s=CACHE_TTL_S)


def prices_cache_clear(**_: object) -> None:
    """Empty the cache of prices, as a receiver of `configuration_changed`."""
    _cache.clear()


configuration_changed.connect(prices_cache_clear, dispatch_uid="chat.generation.metering")


async def _price_book(model: str) -> PriceBook:
    """Return the prices of a model over time, using a thread only if they are not cached."""
    book = _cache.get(model)
    if book is None:
        generation = _cache.generation
        book = await database_sync_to_async(price_book)([model])
        _cache.put(model, book, generation=generation)
    return book
