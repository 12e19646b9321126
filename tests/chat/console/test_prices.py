"""Prices are set on the page of a model; costs are shown beside tokens if there are prices."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from chat.catalog.services import model_register
from chat.models import ServedModel
from chat.usage.services import usage_records_write
from tests.chat.records import record


@pytest.fixture
def model(db: None) -> ServedModel:
    return model_register(name="small", path="/models/small.gguf")


def set_prices(client: Client, model: ServedModel, **prices: str) -> str:
    fields = {
        "name": model.name,
        "path": model.path,
        "owned_by": "lightcone",
        "enabled": "on",
        "is_default": "on",
        "sampling_defaults": "{}",
    }
    return client.post(reverse("admin:chat_servedmodel_change", args=[model.pk]), fields | prices, follow=True).text


def pages(client: Client, run_id: str) -> list[str]:
    urls = [
        reverse("admin:index"),
        reverse("admin:chat_usagehour_changelist"),
        reverse("admin:chat_requestlog_changelist"),
        reverse("admin:chat_requestlog_change", args=[UUID(hex=run_id)]),
    ]
    return [client.get(url).text for url in urls]


def test_prices_are_set_and_costs_shown(admin_client: Client, model: ServedModel) -> None:
    set_prices(admin_client, model, input_price="0.15", output_price="600000")
    model.refresh_from_db()
    assert (model.input_price, model.cached_price, model.output_price) == (Decimal("0.15"), None, Decimal(600_000))
    sent = record(at_s=timezone.now().timestamp())
    usage_records_write([sent])
    assert all("4.20 USD" in text for text in pages(admin_client, sent["run_id"]))


@pytest.mark.parametrize("price", ["-1", "NaN", "1e30", "x"])
def test_an_invalid_price_is_refused(admin_client: Client, model: ServedModel, price: str) -> None:
    set_prices(admin_client, model, input_price=price)
    model.refresh_from_db()
    assert model.input_price is None


def test_runs_of_a_batch_are_found_by_its_id(admin_client: Client, model: ServedModel) -> None:
    mine, other = record(batch_id="batch_1"), record()
    usage_records_write([mine, other])
    text = admin_client.get(reverse("admin:chat_requestlog_changelist"), {"q": "batch_1"}).text
    assert str(UUID(hex=mine["run_id"])) in text
    assert str(UUID(hex=other["run_id"])) not in text
