"""The cost of runs: tokens times the price of their model, exact up to one rounding at the end."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from django.conf import settings
from django.utils import timezone

from chat.catalog.prices import TOKENS_PER_PRICE, Prices, price_book
from chat.console.figures import fraction, number
from chat.usage.models import RequestLog
from engine.api import Usage

NANOS = 10**9
MAX_NANOS = 10**15
"""The most that a run may cost. A million of the currency is a mistake in a price, but must still fit the column."""
SMALLEST_SHOWN = Decimal("0.000001")
COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


def cost_nanos(log: RequestLog, prices: Prices | None) -> int:
    """Return the cost of a run in billionths of the currency. Batches cost LIGHTCONE_BATCH_PRICE_FACTOR of it."""
    if prices is None:
        return 0
    cached = min(log.cached_tokens, log.prompt_tokens)
    reasoning = min(log.reasoning_tokens or 0, log.completion_tokens)
    cost = (log.prompt_tokens - cached) * prices.input + cached * prices.cached
    cost += (log.completion_tokens - reasoning) * prices.output + reasoning * prices.reasoning
    factor = settings.LIGHTCONE_BATCH_PRICE_FACTOR if log.batch_id else Decimal(1)
    return min(
        MAX_NANOS, int((cost * factor * NANOS / TOKENS_PER_PRICE).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))
    )


def run_cost(*, model: str, usage: Usage) -> Decimal | None:
    """Return the cost of a run that ends now, as the request log will have it; None without a price."""
    prices = price_book([model]).at(model, timezone.now())
    if prices is None:
        return None
    tokens = {name: getattr(usage, name) for name in COUNTS}
    return Decimal(cost_nanos(RequestLog(**tokens), prices)) / NANOS


def cost_text(nanos: int) -> str:
    """Format a cost as `12.50 USD`. Sums below one have up to six digits after the point."""
    value = Decimal(nanos) / NANOS
    if not nanos or value >= 1:
        text = number(value, 2)
    elif value < SMALLEST_SHOWN:
        text = f"<{fraction(SMALLEST_SHOWN)}"
    else:
        text = fraction(value)
    return f"{text} {settings.LIGHTCONE_CURRENCY}"
