"""Costs are exact, fixed at the end of a run, and lower for batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from chat.models import RequestLog, ServedModel, UsageHour
from chat.usage.prices import cost_text
from chat.usage.services import usage_records_write
from tests.chat.records import record

pytestmark = pytest.mark.django_db


@pytest.fixture
def priced(db: None) -> ServedModel:
    return ServedModel.objects.create(
        name="small",
        path="/m",
        input_price=Decimal("0.15"),
        cached_price=Decimal("0.075"),
        output_price=Decimal("0.60"),
    )


def cost_of(**fields: Any) -> int:
    sent = record(**fields)
    usage_records_write([sent])
    return RequestLog.objects.get(pk=UUID(hex=sent["run_id"])).cost_nanos


def test_tokens_cost_the_prices_of_their_model(priced: ServedModel) -> None:
    # 6 x 0.15 + 4 x 0.075 + 7 x 0.60 per million
    assert cost_of() == 5_400
    assert UsageHour.objects.get().cost_nanos == 5_400


def test_a_batch_costs_its_discounted_share(priced: ServedModel, settings: Any) -> None:
    assert cost_of(batch_id="batch_1") == 2_700
    settings.LIGHTCONE_BATCH_PRICE_FACTOR = Decimal("0.25")
    assert cost_of(batch_id="batch_1") == 1_350


def test_cached_tokens_without_a_price_cost_the_prompt_price(priced: ServedModel) -> None:
    ServedModel.objects.update(cached_price=None)
    assert cost_of() == 5_700


def test_later_prices_do_not_change_recorded_costs(priced: ServedModel) -> None:
    cost_of()
    ServedModel.objects.update(input_price=Decimal(100))
    assert RequestLog.objects.get().cost_nanos == 5_400


def test_an_invalid_price_does_not_stop_the_writer(priced: ServedModel) -> None:
    ServedModel.objects.update(output_price=Decimal("99999999"))
    assert cost_of(completion_tokens=2**31 - 1) == 10**15


def test_models_without_prices_and_refusals_cost_nothing(priced: ServedModel) -> None:
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
