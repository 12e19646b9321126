"""Results of tools that are more than a text: errors, delays and content parts, as the reader gives them and the
request has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat.conversations.models import Turn
from tests.browser.scripted import ScriptedPage
from tests.browser.test_tools import WEATHER, call, with_state

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CITIES = ("Oslo", "Rome", "Lima", "Cork")
PARTS = [{"type": "text", "text": "25 degrees"}, {"type": "text", "text": "and [dry]"}]


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    """The page with one call for each city, named by it."""
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, *((city, json.dumps({"city": city})) for city in CITIES))
    scripted.page.wait_for_selector("#send-results")
    return scripted.page


def card(page: Any, city: str) -> Any:
    return page.locator(".call", has=page.locator(f"#result-{city}"))


def still_running(page: Any, city: str) -> None:
    card(page, city).locator(".call-acts .menu > summary").click()
    card(page, city).locator(".menu-act:has-text('Still running')").click()


def send(scripted: ScriptedPage) -> list[tuple[str, Any]]:
    """Send the results; return them as the request has them, each with the id of its call."""
    scripted.page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    assert [made["id"] for made in messages[1]["tool_calls"]] == list(CITIES)
    assert [message["role"] for message in messages] == ["user", "assistant", *["tool"] * len(CITIES)]
    return [(message["tool_call_id"], message["content"]) for message in messages[2:]]


def test_results_of_each_kind_given_in_any_order_are_sent_in_that_of_the_calls(scripted: ScriptedPage, page) -> None:
    still_running(page, "Lima")
    page.fill("#result-Rome", json.dumps(PARTS))
    card(page, "Cork").get_by_role("button", name="Skip", exact=True).click()
    assert "One call has no result yet" in page.inner_text(".calls-foot")
    card(page, "Oslo").get_by_role("button", name="Error", exact=True).click()
    kinds = [card(page, city).locator(".call-kind").inner_text() for city in CITIES]
    assert kinds == ["JSON", "content parts", "JSON", "JSON"]
    oslo, rome, lima, cork = send(scripted)
    assert (oslo[0], json.loads(oslo[1])) == ("Oslo", {"error": "The tool failed: "})
    assert rome == ("Rome", PARTS)
    assert lima[0] == "Lima"
    assert json.loads(lima[1]) == {
        "status": "pending",
        "message": "The tool is still running; its result comes later.",
    }
    assert (cork[0], list(json.loads(cork[1]))) == ("Cork", ["skipped"])


def test_a_note_of_an_error_or_a_delay_is_a_beginning_that_can_be_changed(scripted: ScriptedPage, page) -> None:
    card(page, "Oslo").get_by_role("button", name="Error", exact=True).click()
    written = page.input_value("#result-Oslo")
    page.fill("#result-Oslo", written.replace("failed: ", "failed: no such city"))
    still_running(page, "Rome")
    page.fill("#result-Rome", page.input_value("#result-Rome").replace("later", "in an hour"))
    still_running(page, "Lima")  # the next kind takes the place of the one before
    card(page, "Lima").get_by_role("button", name="Error", exact=True).click()
    page.fill("#result-Cork", "rain")
    sent = dict(send(scripted))
    assert json.loads(sent["Oslo"]) == {"error": "The tool failed: no such city"}
    assert json.loads(sent["Rome"])["message"] == "The tool is still running; its result comes in an hour."
    assert json.loads(sent["Lima"]) == {"error": "The tool failed: "}
    assert sent["Cork"] == "rain"


def test_only_a_list_of_text_parts_is_sent_as_parts(scripted: ScriptedPage, page) -> None:
    texts = {
        "Oslo": json.dumps([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]),
        "Rome": '[{"type": "text", "text": 25}]',
        "Lima": "[]",
        "Cork": ' [{"type": "text", "text": "',
    }
    for city, text in texts.items():
        page.fill(f"#result-{city}", text)
    assert page.locator(".call-kind").all_inner_texts() == ["JSON", "JSON", "JSON", "text"]
    assert dict(send(scripted)) == texts


def test_content_parts_are_kept_shown_and_sent_again(scripted: ScriptedPage, page) -> None:
    for city in CITIES:
        page.fill(f"#result-{city}", json.dumps(PARTS) if city == "Rome" else "rain")
    before = send(scripted)
    kept = [json.loads(turn.body) for turn in Turn.objects.filter(role="tool")]
    assert [turn["content"] for turn in kept if turn["tool_call_id"] == "Rome"] == [PARTS]
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector("[data-turn] .message-tool-name")
    shown = scripted.texts()
    assert "25 degrees" in shown[3]
    assert "and [dry]" in shown[3]
    again = scripted.turn("And tomorrow?", "Lima.")["messages"]
    assert [(message["tool_call_id"], message["content"]) for message in again[2:6]] == before
