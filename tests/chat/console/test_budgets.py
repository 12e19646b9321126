"""The page of budgets: a bar for each, who may make which, and forms that make no sense."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from chat.budgets.models import Budget, BudgetSpend
from chat.budgets.services import budget_entry, budget_save
from chat.models import Org, Project, ServedModel
from tests.chat.console.test_limits import fresh_of
from tests.people import member

LIST, ADD = "admin:chat_budget_changelist", "admin:chat_budget_add"


def budget_data(project: Project, /, **fields: Any) -> dict[str, Any]:
    data = {"name": "most", "scope": "project", "project": project.pk, "unit": "tokens", "how_much": "1000"}
    return data | {"time_window": "month", "time_zone": "Europe/Berlin", "week_start": "0"} | fields


def test_the_list_shows_what_is_spent_and_left(admin_client: Client, project: Project) -> None:
    assert admin_client.post(reverse(ADD), budget_data(project, is_hard="on")).status_code == 302
    money = budget_data(project, name="money", unit="money", how_much="2.5", time_window="lifetime")
    assert admin_client.post(reverse(ADD), money).status_code == 302
    tokens, spend = Budget.objects.get(name="most"), Budget.objects.get(name="money")
    assert spend.amount == 2_500_000
    window = budget_entry(tokens).window_at(datetime.now(UTC))
    BudgetSpend.objects.create(budget=tokens, window=window.id, spent=250)
    BudgetSpend.objects.create(budget=spend, window="all", spent=1_000_000_000)
    page = admin_client.get(reverse(LIST)).text
    for text in ("250 of 1,000 (25 %)", "750", "Europe/Berlin", "1.00 USD of 2.50 USD (40 %)", "1.50 USD"):
        assert text in page, text


def test_the_list_takes_as_many_queries_for_many_budgets(
    admin_client: Client, project: Project, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        other = Project.objects.create(org=project.org, name=f"p{number}")
        budget_save(budget=Budget(name=f"b{number}", project=other, amount=5, is_hard=True))
    with django_assert_max_num_queries(12):
        assert admin_client.get(reverse(LIST)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"how_much": "-1"}, "greater than or equal to"),
        ({"how_much": "NaN"}, "Enter a number"),
        ({"how_much": "1.5"}, "Tokens are whole"),
        ({"how_much": "9999999999999"}, "Give at most 9,000,000,000,000"),
        ({"time_zone": "Mars/Olympus"}, "is no time zone"),
        ({"project": "999"}, "Select a valid choice"),
        ({"scope": "key"}, "Choose what the budget is on"),
        ({"time_window": "fortnight"}, "Select a valid choice"),
        ({"time_window": ""}, "This field is required"),
        ({"name": "x" * 121}, "at most 120 characters"),
    ],
)
def test_a_form_that_makes_no_sense_saves_nothing(
    admin_client: Client, project: Project, fields: dict[str, Any], sentence: str
) -> None:
    answer = admin_client.post(reverse(ADD), budget_data(project, **fields))
    assert answer.status_code == 200
    assert sentence in answer.text
    assert not Budget.objects.exists()


def test_a_window_that_contradicts_is_told_beside_its_field(admin_client: Client, project: Project) -> None:
    assert admin_client.post(reverse(ADD), budget_data(project, is_hard="on")).status_code == 302
    again = admin_client.post(reverse(ADD), budget_data(project, is_hard="on", name="again"))
    assert "same window" in " ".join(again.context["adminform"].form.errors["time_window"])


def test_the_second_of_two_people_is_told_and_what_it_counts_by_stays(admin_client: Client, project: Project) -> None:
    budget = Budget(name="most", project=project, amount=10)
    budget_save(budget=budget)
    place = reverse("admin:chat_budget_change", args=[budget.pk])
    shown = fresh_of(admin_client.get(place).text)
    first = {"name": "most", "how_much": "20", "is_hard": "on", "window": "day", "fresh": shown}
    assert admin_client.post(place, first).status_code == 302
    assert "Somebody else" in admin_client.post(place, {"name": "other", "how_much": "30", "fresh": shown}).text
    budget.refresh_from_db()
    assert (budget.amount, budget.is_hard, budget.window) == (20, True, "month")


def test_billing_makes_budgets_of_its_organisation_alone(client: Client, project: Project) -> None:
    ServedModel.objects.create(name="large", path="/m")
    away = Project.objects.create(org=Org.objects.create(name="away"), name="far")
    client.force_login(member("bill", "billing", org=project.org))
    assert client.post(reverse(ADD), budget_data(away)).status_code == 200
    model = budget_data(project, scope="model", model=ServedModel.objects.get().pk)
    assert client.post(reverse(ADD), model).status_code == 200
    assert not Budget.objects.exists()
    assert client.post(reverse(ADD), budget_data(project)).status_code == 302
