"""Costs are exact, fixed at the end of a run, and lower for batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from chat.models import ModelPrice, RequestLog, UsageSum
from chat.usage.log_detail import cost_sum
from chat.usage.log_export import log_values
from chat.usage.measures import hours_of
from chat.usage.prices import cost_text
from chat.usage.services import usage_records_write
from tests.chat.records import NOON, price_from, record

pytestmark = pytest.mark.django_db


@pytest.fixture
def priced(db: None) -> ModelPrice:
    return price_from(0, input=Decimal("0.15"), cached=Decimal("0.075"), output=Decimal("0.60"))


def cost_of(**fields: Any) -> int:
    sent = record(**fields)
    usage_records_write([sent])
    return RequestLog.objects.get(pk=UUID(hex=sent["run_id"])).cost_nanos


def test_tokens_cost_the_prices_of_their_model(priced: ModelPrice) -> None:
    # 6 x 0.15 + 4 x 0.075 + 7 x 0.60 per million
    assert cost_of() == 5_400
    assert UsageSum.objects.get(length_h=24).cost_nanos == 5_400


def test_a_batch_costs_its_discounted_share(priced: ModelPrice, settings: Any) -> None:
    assert cost_of(batch_id="batch_1") == 2_700
    settings.LIGHTCONE_BATCH_PRICE_FACTOR = Decimal("0.25")
    assert cost_of(batch_id="batch_1") == 1_350


def test_cached_tokens_without_a_price_cost_the_prompt_price(priced: ModelPrice) -> None:
    ModelPrice.objects.update(cached=None)
    assert cost_of() == 5_700


def test_reasoning_costs_its_price_and_else_as_other_output(priced: ModelPrice) -> None:
    assert cost_of(reasoning_tokens=5) == 5_400
    ModelPrice.objects.update(reasoning=Decimal("6"))
    # 6 x 0.15 + 4 x 0.075 + 2 x 0.60 + 5 x 6 per million
    assert cost_of(reasoning_tokens=5) == 32_400
    assert cost_of(reasoning_tokens=99) == 43_200, "no more than all output"


def test_a_run_costs_the_price_in_force_as_it_ended(priced: ModelPrice) -> None:
    """It ends one second after NOON."""
    second = price_from(NOON + 1, input=Decimal(1), output=Decimal(1))
    third = price_from(NOON + 1.001, input=Decimal(9), output=Decimal(9))
    before, then, after = record(ended_at=NOON + 0.999), record(), record(ended_at=NOON + 1.001)
    usage_records_write([before, then, after])
    found = {row.run_id.hex: (row.cost_nanos, row.price_id) for row in RequestLog.objects.all()}
    assert [found[sent["run_id"]] for sent in (before, then, after)] == [
        (5_400, priced.pk),
        (17_000, second.pk),
        (153_000, third.pk),
    ]
    usage_records_write([before, then, after])
    ModelPrice.objects.all().delete()
    assert sum(row.cost_nanos for row in RequestLog.objects.all()) == 175_400


def test_an_invalid_price_does_not_stop_the_writer(priced: ModelPrice) -> None:
    ModelPrice.objects.update(output=Decimal("99999999"))
    assert cost_of(completion_tokens=2**31 - 1) == 10**15


def test_models_without_prices_and_refusals_cost_nothing(priced: ModelPrice) -> None:
    assert cost_of(model="free") == 0
    assert cost_of(status=400, outcome="rejected", prompt_tokens=0, cached_tokens=0, completion_tokens=0) == 0


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0.00 USD"),
        (1, "<0.000001 USD"),
        (5_400, "0.000005 USD"),
        (500_000_000, "0.50 USD"),
        (12_345_678_900_000, "12,345.68 USD"),
    ],
)
def test_costs_are_formatted_briefly(nanos: int, text: str) -> None:
    assert cost_text(nanos) == text


def test_rows_from_before_reasoning_and_limits_were_kept_count_none_of_them(priced: ModelPrice) -> None:
    usage_records_write([record()])
    RequestLog.objects.update(reasoning_tokens=None, limit_hit=None, price_id=None)
    row = RequestLog.objects.get()
    (amounts,) = hours_of([row]).values()
    assert amounts["reasoning_tokens"] == 0
    assert amounts["completion_tokens"] == 7
    found = cost_sum(row)
    assert found is not None
    assert found.is_exact
    values = log_values(row)
    assert (values["reasoning_tokens"], values["limit_hit"]) == (0, "")
