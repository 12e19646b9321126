"""The page of prices; costs are shown beside tokens if there are prices."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.catalog.prices import price_add
from chat.catalog.services import model_register
from chat.models import ModelPrice, ServedModel
from chat.usage.services import usage_records_write
from tests.chat.records import record

LIST, ADD = "admin:chat_modelprice_changelist", "admin:chat_modelprice_add"


@pytest.fixture
def model(db: None) -> ServedModel:
    return model_register(name="small", path="/models/small.gguf")


def price_data(model: ServedModel, /, **fields: str) -> dict[str, Any]:
    return {"model": model.pk, "zone": "UTC", "input": "0.15", "output": "600000", **fields}


def pages(client: Client, run_id: str) -> list[str]:
    urls = [
        reverse("admin:index"),
        reverse("admin:chat_requestlog_changelist"),
        reverse("admin:chat_requestlog_change", args=[UUID(hex=run_id)]),
    ]
    return [client.get(url).text for url in urls]


def test_prices_are_set_and_costs_shown(admin_client: Client, model: ServedModel) -> None:
    answer = admin_client.post(reverse(ADD), price_data(model), follow=True)
    assert "small has this price from" in answer.text
    price = ModelPrice.objects.get()
    assert (price.input, price.cached, price.output) == (Decimal("0.15"), None, Decimal(600_000))
    assert "600,000.00" in answer.text
    sent = record(at_s=timezone.now().timestamp())
    usage_records_write([sent])
    assert all("4.20 USD" in text for text in pages(admin_client, sent["run_id"]))


def test_a_start_is_a_time_of_its_zone(admin_client: Client, model: ServedModel) -> None:
    year = timezone.now().year + 1
    admin_client.post(reverse(ADD), price_data(model, starts_at=f"{year}-07-01T00:00", zone="Europe/Berlin"))
    assert ModelPrice.objects.get().starts_at == datetime(year, 6, 30, 22, tzinfo=UTC)


def test_the_form_offers_the_zone_of_the_browser(admin_client: Client, model: ServedModel) -> None:
    admin_client.cookies["lightcone_zone"] = "Asia/Tokyo"
    assert 'value="Asia/Tokyo"' in admin_client.get(reverse(ADD)).text
    admin_client.cookies["lightcone_zone"] = "../etc"
    assert 'value="UTC"' in admin_client.get(reverse(ADD)).text


def set_forward(year: int) -> str:
    """Return a time that Berlin's clocks skip: 2:30 of the last Sunday of March."""
    last = datetime(year, 3, 31, tzinfo=UTC)
    return f"{last - timedelta(days=(last.weekday() + 1) % 7):%Y-%m-%d}T02:30"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": "-1"}, "greater than or equal to 0"),
        ({"input": "NaN"}, "Enter a number"),
        ({"output": "1e30"}, "digits"),
        ({"output": "x"}, "Enter a number"),
        ({"output": ""}, "required"),
        ({"cached": "-0.1"}, "greater than or equal to 0"),
        ({"zone": "Berlin"}, "is no time zone; write one such as Europe/Berlin"),
        ({"zone": "Z" * 99}, "at most 64 characters"),
        ({"starts_at": "2020-01-01T00:00"}, "cannot start in the past"),
        ({"starts_at": "2027-13-01T00:00"}, "no day and time"),
        ({"starts_at": "2027-12-01T00:00+01:00"}, "no day and time"),
        ({"starts_at": "3000-01-01T00:00"}, "within ten years"),
        ({"starts_at": set_forward(timezone.now().year + 1), "zone": "Europe/Berlin"}, "clocks are set forward"),
        ({"model": "99999"}, "valid choice"),
    ],
)
def test_a_bad_price_is_refused_with_a_sentence(
    admin_client: Client, model: ServedModel, fields: dict[str, str], words: str
) -> None:
    answer = admin_client.post(reverse(ADD), price_data(model, **fields))
    assert answer.status_code == 200
    assert words in answer.text
    assert not ModelPrice.objects.exists()


def test_a_second_price_of_the_same_start_is_refused(admin_client: Client, model: ServedModel) -> None:
    data = price_data(model, starts_at=f"{timezone.now().year + 1}-01-01T00:00")
    admin_client.post(reverse(ADD), data)
    assert "already; delete that one first" in admin_client.post(reverse(ADD), data).text
    assert ModelPrice.objects.count() == 1


def test_a_started_price_is_neither_changed_nor_deleted(admin_client: Client, model: ServedModel) -> None:
    price = price_add(model=model, input=Decimal(1), output=Decimal(2))
    page = reverse("admin:chat_modelprice_change", args=[price.pk])
    assert admin_client.post(page, price_data(model, input="9")).status_code == 403
    answer = admin_client.post(reverse("admin:chat_modelprice_delete", args=[price.pk]), follow=True)
    assert "This price has started" in answer.text
    price.refresh_from_db()
    assert price.input == 1


def test_a_price_to_come_is_deleted(admin_client: Client, model: ServedModel) -> None:
    price = price_add(model=model, input=Decimal(1), output=Decimal(2), starts_at=timezone.now() + timedelta(days=1))
    page = reverse("admin:chat_modelprice_delete", args=[price.pk])
    assert "small, " in admin_client.get(page).text
    admin_client.post(page)
    assert not ModelPrice.objects.exists()


def test_runs_of_a_batch_are_found_by_its_id(admin_client: Client, model: ServedModel) -> None:
    mine, other = record(batch_id="batch_1"), record()
    usage_records_write([mine, other])
    text = admin_client.get(reverse("admin:chat_requestlog_changelist"), {"q": "batch_1"}).text
    assert str(UUID(hex=mine["run_id"])) in text
    assert str(UUID(hex=other["run_id"])) not in text
