"""The model picker: what is known of each model, and loading one from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROW = '.model-row:has([data-model="{}"])'
PRICE = {"prompt": "0.5", "cached": "0.1", "completion": "2", "currency": "EUR", "per_tokens": 1_000_000}
LIST = "**/playground/api/models"


def model(name: str, state: str, **facts: Any) -> dict[str, Any]:
    plain = {"is_default": False, "phase": "", "fraction": 0, "reason": "", "context": 8192, "modalities": ["text"]}
    return (
        {"id": name, "state": state, "capabilities": ["chat"], "price": None, "defaults": {}, "aliases": []}
        | plain
        | facts
    )


class Served:
    """The models that the page is told of, and those that it has asked to load."""

    def __init__(self, scripted: ScriptedPage) -> None:
        self.models: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.num_reads = 0
        self.page = scripted.page
        self.page.route(LIST, self._list)
        self.page.route(f"{LIST}/load", self._load)
        scripted.sign_in()

    def _list(self, route: Any) -> None:
        self.num_reads += 1
        route.fulfill(json={"data": self.models})

    def _load(self, route: Any) -> None:
        self.asked.append(json.loads(route.request.post_data)["model"])
        route.fulfill(json={"model": self.asked[-1], "state": "unloaded", "phase": "", "fraction": 0})

    def open(self, *models: dict[str, Any]) -> Any:
        """Open the list of these models."""
        self.models = list(models)
        self.page.click("#model")
        self.page.wait_for_selector(ROW.format(models[-1]["id"]))
        return self.page


@pytest.fixture
def served(scripted: ScriptedPage) -> Served:
    return Served(scripted)


def test_each_model_says_what_it_is(served: Served) -> None:
    page = served.open(
        model("plain", "ready", is_default=True, price=PRICE, capabilities=["chat", "tools", "reasoning"]),
        model("greedy", "failed", reason="The file is too short.", deprecated_at="2026-01-01"),
    )
    plain, failed = page.inner_text(ROW.format("plain")), page.inner_text(ROW.format("greedy"))
    for fact in ("plain", "default", "8,192 tokens", "€0.50 in, €2.00 out per million", "tools", "reasoning"):
        assert fact in plain
    assert "Load now" not in plain
    for fact in ("deprecated", "The file is too short.", "Load now"):
        assert fact in failed


def test_a_currency_that_has_no_code_is_named_as_it_is(served: Served) -> None:
    """The list of models was not drawn at all: browsers format currencies of ISO 4217 alone."""
    page = served.open(model("plain", "ready", price=PRICE | {"currency": "credits"}))
    assert "0.5 credits in, 2 credits out per million" in page.inner_text(ROW.format("plain"))


def test_an_unloaded_model_is_loaded_from_the_list_and_its_progress_is_shown(served: Served) -> None:
    page = served.open(model("plain", "ready"), model("greedy", "unloaded"))
    page.click(f"{ROW.format('greedy')} >> text=Load now")
    page.wait_for_selector(f"{ROW.format('greedy')} progress")
    assert served.asked == ["greedy"]
    served.models[1] = model("greedy", "loading", phase="weights", fraction=0.4)
    page.wait_for_selector(f"{ROW.format('greedy')}:has-text('weights, 40 %')")
    served.models[1] = model("greedy", "ready")
    page.wait_for_selector(f"{ROW.format('greedy')} [data-state=ready]")


def test_choosing_an_unloaded_model_says_so_and_offers_to_load_it(served: Served) -> None:
    page = served.open(model("plain", "ready"), model("greedy", "unloaded"))
    page.click('[data-model="greedy"]')
    page.wait_for_selector(".model-line:has-text('Not loaded: it is loaded with your message.')")
    assert page.get_attribute("#model", "value") == "greedy"
    page.click(".model-line >> text=Load now")
    page.wait_for_selector(".model-line progress")
    served.models[1] = model("greedy", "ready")
    page.wait_for_selector(".model-line", state="detached")


def test_the_list_works_by_keys_and_gives_the_focus_back(served: Served) -> None:
    page = served.open(model("plain", "ready"), model("greedy", "ready"))
    page.wait_for_selector("[data-model=plain]:focus")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".models", state="detached")
    assert page.get_attribute("#model", "value") == "greedy"
    page.wait_for_selector("#model:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-model=greedy]:focus")
    page.keyboard.press("Escape")
    page.wait_for_selector(".models", state="detached")
    page.wait_for_selector("#model:focus")


def test_many_models_are_filtered_by_name(served: Served) -> None:
    page = served.open(*(model(f"model-{number}", "ready") for number in range(12)))
    page.fill(".models-filter", "-11")
    assert page.locator(".model-row").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_selector("#model[value=model-11]")


def test_a_closed_list_asks_for_nothing_while_all_models_stand_still(served: Served) -> None:
    page = served.open(model("plain", "ready"), model("greedy", "unloaded"))
    page.clock.install()
    page.keyboard.press("Escape")
    page.wait_for_selector(".models", state="detached")
    page.clock.run_for(4000)
    num_reads = served.num_reads
    page.clock.run_for(20_000)
    assert served.num_reads == num_reads


def test_without_a_model_the_list_says_what_to_do(served: Served) -> None:
    served.models = []
    served.page.click("#model")
    served.page.wait_for_selector(".models-none:has-text('An administrator can pull or register one in the console.')")
