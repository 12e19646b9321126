"""Prices of models, each from an instant on: add one, delete one that has not started, and find the one in force.

A price that has started never changes, so that what was charged can be worked out again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.audit.services import Subject, audit_record
from chat.audit.values import row_values
from chat.catalog.models import ModelPrice, ServedModel

TOKENS_PER_PRICE = 10**6
AMOUNTS = ("input", "cached", "output", "reasoning")
AUDITED = ("starts_at", *AMOUNTS)
LATEST = timedelta(days=3660)
"""How far ahead a price may start."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a million tokens."""

    input: Decimal
    cached: Decimal
    output: Decimal
    reasoning: Decimal
    """Of the tokens of reasoning, which are a part of the output."""
    price_id: int = 0


class PriceBook:
    """The prices of some models over time."""

    def __init__(self, rows: Iterable[ModelPrice]) -> None:
        """Read rows, of each model the earliest first."""
        self._starts: dict[str, list[datetime]] = defaultdict(list)
        self._prices: dict[str, list[Prices]] = defaultdict(list)
        for row in rows:
            name = row.model.name
            self._starts[name].append(row.starts_at)
            self._prices[name].append(prices_of_row(row))

    def at(self, name: str, instant: datetime) -> Prices | None:
        """Return the price of a model that is in force at an instant."""
        index = bisect_right(self._starts.get(name, []), instant)
        return self._prices[name][index - 1] if index else None


def prices_of_row(row: ModelPrice) -> Prices:
    cached = row.input if row.cached is None else row.cached
    return Prices(row.input, cached, row.output, row.output if row.reasoning is None else row.reasoning, row.pk)


def prices_by_id(price_id: int) -> Prices | None:
    """Return the prices of a row, also of a model that is gone; None if there is no such row."""
    row = ModelPrice.objects.filter(pk=price_id).first()
    return prices_of_row(row) if row else None


def price_book(names: Iterable[str]) -> PriceBook:
    """Return the prices of models by name."""
    rows = ModelPrice.objects.filter(model__name__in=[name for name in names if name])
    return PriceBook(rows.select_related("model").order_by("starts_at"))


def prices_now(names: Iterable[str]) -> Mapping[str, Prices]:
    """Return the present prices of those models that have one, by name."""
    names, now = list(names), timezone.now()
    book = price_book(names)
    found = {name: book.at(name, now) for name in names}
    return {name: prices for name, prices in found.items() if prices is not None}


def price_add(
    *,
    model: ServedModel,
    input: Decimal,  # noqa: A002  (the word of the field)
    output: Decimal,
    cached: Decimal | None = None,
    reasoning: Decimal | None = None,
    starts_at: datetime | None = None,
) -> ModelPrice:
    """Add a price that starts at an instant, without one at once. Raises ValidationError."""
    with transaction.atomic():
        row = ModelPrice(model=model, model_name=model.name, input=input, output=output)
        row.cached, row.reasoning = cached, reasoning
        row.starts_at = starts_at or timezone.now()
        if starts_at is not None:
            price_start_check(model=model, starts_at=starts_at)
        row.full_clean()
        row.save()
        audit_record(action="price.create", on=_subject(row), after=row_values(row, AUDITED))
    return row


def price_start_check(*, model: ServedModel, starts_at: datetime) -> None:
    """Raise ValidationError unless a price may start then. Within a transaction, others that add one wait."""
    ServedModel.objects.select_for_update().get(pk=model.pk)
    now = timezone.now()
    if starts_at < now:
        raise ValidationError(
            {"starts_at": _("A price cannot start in the past, as costs are not worked out anew; leave it empty: now.")}
        )
    if starts_at > now + LATEST:
        raise ValidationError({"starts_at": _("A price starts within ten years; choose an earlier instant.")})
    if ModelPrice.objects.filter(model=model, starts_at=starts_at).exists():
        shown = f"{starts_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        message = _("%(model)s has a price that starts at %(start)s already; delete that one first.")
        raise ValidationError({"starts_at": message % {"model": model.name, "start": shown}})


def price_delete(*, price: ModelPrice) -> None:
    """Delete a price that has not started yet. Raises ValidationError for one that has."""
    with transaction.atomic():
        num_deleted = ModelPrice.objects.filter(pk=price.pk, starts_at__gt=timezone.now()).delete()[0]
        if not num_deleted:
            raise ValidationError(
                _("This price has started, and requests were charged by it: it stays. Add another that starts later.")
            )
        audit_record(action="price.delete", on=_subject(price), before=row_values(price, AUDITED))


def prices_copy(*, source: ServedModel, target: ServedModel) -> None:
    """Give a new model the price of another that is in force, from now on, and those that start later."""
    now = timezone.now()
    rows = ModelPrice.objects.filter(model=source).order_by("starts_at")
    present = [row for row in rows if row.starts_at <= now][-1:]
    for row in (*present, *(row for row in rows if row.starts_at > now)):
        amounts = row_values(row, AMOUNTS)
        price_add(model=target, starts_at=row.starts_at if row.starts_at > now else None, **amounts)


def _subject(price: ModelPrice) -> Subject:
    return Subject(price.pk or "", price.model_name)
