"""The columns of limits, which organisations, projects, members, keys and models share. Empty: no limit."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from chat.relay.state.meters import Measure, Period, Rate, Scope, ScopeKind

MAX_LIMIT = 2_000_000_000
RATES: dict[str, tuple[Measure, Period]] = {
    "requests_per_minute": (Measure.REQUESTS, Period.MINUTE),
    "requests_per_day": (Measure.REQUESTS, Period.DAY),
    "tokens_per_minute": (Measure.TOKENS, Period.MINUTE),
    "input_tokens_per_minute": (Measure.INPUT, Period.MINUTE),
    "output_tokens_per_minute": (Measure.OUTPUT, Period.MINUTE),
    "tokens_per_day": (Measure.TOKENS, Period.DAY),
}
"""What each column counts."""
RATE_COLUMNS = (*RATES, "max_concurrency")
LIMIT_COLUMNS = (*RATE_COLUMNS, "max_queue_percent", "max_context")


def _limit(name: str, most: int = MAX_LIMIT) -> models.PositiveIntegerField:
    validators = [MinValueValidator(1), MaxValueValidator(most)]
    return models.PositiveIntegerField(name, null=True, blank=True, validators=validators)


class RateColumns(models.Model):
    """Rates and requests at the same time."""

    requests_per_minute = _limit(_("requests per minute"))
    requests_per_day = _limit(_("requests per day"))
    tokens_per_minute = _limit(_("tokens per minute"))
    input_tokens_per_minute = _limit(_("input tokens per minute"))
    output_tokens_per_minute = _limit(_("output tokens per minute"))
    tokens_per_day = _limit(_("tokens per day"))
    max_concurrency = _limit(_("requests at the same time"))

    class Meta:
        abstract = True


class LimitColumns(RateColumns):
    """Also the share of queues, and the context of a request."""

    max_queue_percent = _limit(_("share of the queue (%)"), 100)
    max_context = _limit(_("context (tokens)"))

    class Meta:
        abstract = True


def rates_of(row: RateColumns) -> tuple[Rate, ...]:
    """Return the rates of a row that has limits."""
    figures = ((place, getattr(row, name)) for name, place in RATES.items())
    return tuple(Rate(measure, period, limit) for (measure, period), limit in figures if limit)


def scope_of(row: RateColumns, kind: ScopeKind, name: str, title: str) -> Scope:
    """Return the scope of a row that has limits."""
    return Scope(
        kind,
        name,
        title,
        rates_of(row),
        row.max_concurrency or 0,
        getattr(row, "max_queue_percent", None) or 0,
        getattr(row, "max_context", None) or 0,
    )
