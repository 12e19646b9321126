"""What runs cost: tokens times the prices of their model, exact until the last rounding. Called by chat.usage.services, once per run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from django.conf import settings

from chat.catalog.models import ServedModel
from chat.usage.models import RequestLog

NANOS = 10**9
TOKENS_PER_PRICE = 10**6
MAX_NANOS = 10**15
"""A million of the currency for one run is a mistake in a price, and must not keep the column from taking the row."""
SMALLEST_SHOWN = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class Prices:
    """Of a million tokens each."""

    input: Decimal
    cached: Decimal
    output: Decimal


def prices_of(names: Iterable[str]) -> dict[str, Prices]:
    """The prices that hold now, of those models that have any."""
    zero = Decimal(0)
    rows = ServedModel.objects.filter(name__in=[name for name in names if name])
    prices = {}
    for name, sent, cached, output in rows.values_list("name", "input_price", "cached_price", "output_price"):
        if any(price is not None for price in (sent, cached, output)):
            prices[name] = Prices(sent or zero, cached if cached is not None else sent or zero, output or zero)
    return prices


def cost_nanos(log: RequestLog, prices: Prices | None) -> int:
    """The cost of a run in billionths of the currency; requests of batches cost LIGHTCONE_BATCH_PRICE_FACTOR of it."""
    if prices is None:
        return 0
    cached = min(log.cached_tokens, log.prompt_tokens)
    cost = (log.prompt_tokens - cached) * prices.input + cached * prices.cached + log.completion_tokens * prices.output
    factor = settings.LIGHTCONE_BATCH_PRICE_FACTOR if log.batch_id else Decimal(1)
    return min(
        MAX_NANOS, int((cost * factor * NANOS / TOKENS_PER_PRICE).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))
    )


def cost_text(nanos: int) -> str:
    """`12.50 USD`; sums below one with up to six digits behind the point."""
    value = Decimal(nanos) / NANOS
    if not nanos or value >= 1:
        text = f"{value:,.2f}"
    elif value < SMALLEST_SHOWN:
        text = f"<{SMALLEST_SHOWN:f}"
    else:
        whole, _, digits = f"{value:.6f}".partition(".")
        text = f"{whole}.{digits.rstrip('0'):0<2}"
    return f"{text} {settings.LIGHTCONE_CURRENCY}"
