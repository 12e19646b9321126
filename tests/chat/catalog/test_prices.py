"""Prices start at instants; one that has started stays, and what cannot be is refused with a sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from chat.catalog.further_models import model_derive
from chat.catalog.prices import price_add, price_book, price_delete, prices_now
from chat.catalog.services import model_delete, model_register, model_update
from chat.models import ModelPrice, ServedModel

ONE, TWO = Decimal(1), Decimal(2)


@pytest.fixture
def model(db: None) -> ServedModel:
    return model_register(name="small", path="/m")


def in_days(days: float) -> datetime:
    return timezone.now() + timedelta(days=days)


def test_the_price_in_force_is_the_last_that_has_started(model: ServedModel) -> None:
    start = in_days(0)
    price_add(model=model, input=ONE, output=TWO)
    later = price_add(model=model, input=TWO, output=TWO, cached=ONE, reasoning=Decimal(3), starts_at=in_days(1))
    book = price_book(["small", "", "none"])
    assert book.at("small", start - timedelta(seconds=1)) is None
    assert book.at("none", in_days(1)) is None
    now = book.at("small", later.starts_at - timedelta(microseconds=1))
    assert now is not None
    assert (now.input, now.cached, now.output, now.reasoning) == (ONE, ONE, TWO, TWO)
    then = book.at("small", later.starts_at)
    assert then is not None
    assert (then.cached, then.reasoning, then.price_id) == (ONE, Decimal(3), later.pk)
    assert prices_now(["small", "none"]) == {"small": now}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": Decimal(-1)}, "greater than or equal to 0"),
        ({"output": Decimal("NaN")}, "decimal number"),
        ({"output": Decimal("1e9")}, "digits"),
        ({"cached": Decimal("0.0000001")}, "decimal places"),
        ({"starts_at": datetime(2020, 1, 1, tzinfo=UTC)}, "cannot start in the past"),
        ({"starts_at": datetime(2999, 1, 1, tzinfo=UTC)}, "within ten years"),
    ],
)
def test_a_price_that_cannot_be_is_refused(model: ServedModel, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        price_add(**({"model": model, "input": ONE, "output": TWO} | fields))
    assert not ModelPrice.objects.exists()


def test_two_prices_of_one_start_are_refused(model: ServedModel) -> None:
    start = in_days(1)
    price_add(model=model, input=ONE, output=TWO, starts_at=start)
    with pytest.raises(ValidationError, match="already; delete that one first"):
        price_add(model=model, input=ONE, output=TWO, starts_at=start)
    price_add(model=model_register(name="large", path="/n"), input=ONE, output=TWO, starts_at=start)


def test_a_price_to_come_is_deleted_and_a_started_one_stays(model: ServedModel) -> None:
    started = price_add(model=model, input=ONE, output=TWO)
    to_come = price_add(model=model, input=ONE, output=TWO, starts_at=in_days(1))
    price_delete(price=to_come)
    with pytest.raises(ValidationError, match="has started"):
        price_delete(price=started)
    assert list(ModelPrice.objects.all()) == [started]


def test_prices_follow_a_renamed_model_and_outlive_a_deleted_one(model: ServedModel) -> None:
    price_add(model=model, input=ONE, output=TWO)
    model.name = "tiny"
    model_update(model=model)
    assert list(prices_now(["small", "tiny"])) == ["tiny"]
    model_delete(model=model)
    price = ModelPrice.objects.get()
    assert (price.model, price.model_name) == (None, "small")
    model_register(name="tiny", path="/m")
    assert not prices_now(["tiny"]), "another model of the name is another model"


def test_a_derived_model_has_the_present_and_the_coming_prices(model: ServedModel) -> None:
    ModelPrice.objects.create(model=model, model_name="small", starts_at=in_days(-9), input=TWO, output=TWO)
    price_add(model=model, input=ONE, output=TWO, cached=ONE)
    price_add(model=model, input=TWO, output=TWO, starts_at=in_days(1))
    model_derive(source="small", name="brief", sampling_defaults={}, system_prompt="Be brief.")
    rows = ModelPrice.objects.filter(model__name="brief").order_by("starts_at")
    assert [(row.input, row.cached) for row in rows] == [(ONE, ONE), (TWO, None)]
    model_derive(source="small", name="brief", sampling_defaults={}, system_prompt="Be very brief.")
    assert rows.count() == 2, "once"


def test_the_migration_keeps_the_prices_that_models_had() -> None:
    migration: Any = import_module("chat.migrations.0029_dated_prices")
    made: list[dict[str, Any]] = []
    fields = {"created_at": in_days(-1), "cached_price": None}
    rows = [
        SimpleNamespace(name="priced", input_price=ONE, output_price=None, **fields),
        SimpleNamespace(name="free", input_price=None, output_price=None, **fields),
    ]
    tables = {
        "ServedModel": SimpleNamespace(all=lambda: rows),
        "ModelPrice": SimpleNamespace(create=lambda **values: made.append(values)),
    }

    def get_model(app: str, name: str) -> Any:
        return SimpleNamespace(objects=SimpleNamespace(using=lambda alias: tables[name]))

    editor = SimpleNamespace(connection=SimpleNamespace(alias="default"))
    migration.date_prices(SimpleNamespace(get_model=get_model), editor)
    (price,) = made
    assert (price["model_name"], price["input"], price["cached"], price["output"]) == ("priced", ONE, None, 0)
    assert price["starts_at"] == fields["created_at"]
