"""Tools by hand: calls are shown, checked and answered; tools and the form of answers are set without JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
HOSTILE = '{"city": "<img src=x onerror=window.hit=1><script>window.hit=1</script>"}'


@pytest.fixture
def page(scripted: ScriptedPage) -> Iterator[Any]:
    """Yield the signed-in page; at the end, what it still has to write is written before the database goes."""
    pending: set[Any] = set()
    page = scripted.page
    page.on("request", lambda request: pending.add(request))
    page.on("requestfinished", lambda request: pending.discard(request))
    page.on("requestfailed", lambda request: pending.discard(request))
    yield scripted.sign_in()
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    scripted.wait_for(lambda: not pending)


def with_state(scripted: ScriptedPage, parameters: dict[str, Any], **more: Any) -> None:
    """Keep `parameters` for the next chat, and open the page anew."""
    page = scripted.page
    state = {"next": {"model": "plain", "system": "", "parameters": parameters}, **more}
    sent = """async (state) => {
        const token = /lightcone_csrf=([^;]*)/.exec(document.cookie)[1];
        const headers = {"X-CSRFToken": token, "Content-Type": "application/json"};
        return (await fetch("/playground/api/state", {method: "PUT", headers, body: JSON.stringify(state)})).status;
    }"""
    assert page.evaluate(sent, state) == 200
    page.reload()
    scripted.wait_ready()


def call(scripted: ScriptedPage, *calls: tuple[str, str]) -> dict[str, Any]:
    """Answer the next request with calls of tools, each (id, arguments), and return it."""
    start = scripted.next("start")
    for index, (call_id, text) in enumerate(calls):
        head = {"index": index, "id": call_id, "name": "weather"}
        scripted.say(start["id"], "", tool_calls=[{**head, "arguments": text[:5]}])
        scripted.say(start["id"], "", tool_calls=[{**head, "arguments": text[5:]}])
    scripted.end(start["id"])
    return start["request"]


def test_two_calls_are_answered_in_any_order_and_sent_in_theirs(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'), ("two", '{"city":"Rome"}'))
    page.fill("#result-two", "25 degrees")
    page.press("#send-results", "Enter")  # one is missing: nothing is sent
    assert "One call has no result yet" in page.inner_text(".calls-foot")
    page.fill("#result-one", '{"temp": 3}')
    page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in messages[2:]] == [
        ("tool", "one", '{"temp": 3}'),
        ("tool", "two", "25 degrees"),
    ]
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["one", "two"]
    assert page.locator(".message-tool .message-tool-name").all_text_contents() == ["weather", "weather"]
    assert page.locator(".call-outcome").all_text_contents() == ["answered", "answered"]


def test_unsent_results_survive_a_reload(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'), ("two", '{"city":"Rome"}'))
    page.fill("#result-two", "25 degrees")
    scripted.wait_for(lambda: "/c/" in page.url)
    scripted.wait_for(lambda: page.evaluate("!Object.keys(sessionStorage).some((key) => key.endsWith('outbox'))"))
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector("#result-two")
    assert page.input_value("#result-two") == "25 degrees"
    page.locator(".call", has=page.locator("#result-one")).get_by_role("button", name="Skip", exact=True).click()
    page.click("#send-results")
    messages = scripted.answer("Rome.")["messages"]
    assert "skipped" in messages[2]["content"]
    assert messages[3]["content"] == "25 degrees"


def test_saved_replies_answer_calls_eight_times_in_a_row(scripted: ScriptedPage, page) -> None:
    replies = {"weather": '{"temp": 21, "city": "{{city}}", "days": "{{days}}"}'}
    with_state(scripted, {"tools": [WEATHER]}, replies=replies, auto_reply=True)
    scripted.ask("Where is it warm?")
    for number in range(8):
        call(scripted, (f"call-{number}", '{"city":"Oslo \\"N\\"","days":2}'))
    last = call(scripted, ("call-8", '{"city":"Oslo","days":2}'))["messages"]
    assert json.loads(last[2]["content"]) == {"temp": 21, "city": 'Oslo "N"', "days": 2}
    assert sum(message["role"] == "tool" for message in last) == 8
    page.wait_for_selector("text=Stopped after 8 of 8")
    assert scripted.received == []


def test_a_call_without_what_its_reply_needs_waits_for_the_reader(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]}, replies={"weather": "It rains in {{place.name}}."}, auto_reply=True)
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'))
    page.click("text=Use saved reply")
    assert "needs place.name" in page.inner_text(".call-result")
    assert page.input_value("#result-one") == ""


def test_edited_arguments_make_a_branch(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", '{"city":"Oslo"}'))
    page.click("[aria-label='Edit the arguments']")
    page.fill("[aria-label='Arguments as JSON']", '{"city": "Bergen"}')
    page.click("text=Save as a new version")
    assert page.inner_text(".siblings") == "2/2"
    page.fill("#result-one", "rain")
    page.click("#send-results")
    sent = scripted.answer("Rain.")["messages"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"city": "Bergen"}
    page.click("[aria-label='Earlier version']")
    assert '"Oslo"' in page.inner_text(".call-arguments")


def test_arguments_are_checked_and_never_markup(scripted: ScriptedPage, page) -> None:
    with_state(scripted, {"tools": [WEATHER]})
    scripted.ask("Where is it warm?")
    call(scripted, ("one", HOSTILE), ("two", '{"days":"<b>two</b>"}'), ("three", '{"city": "Os'))
    problems = page.locator(".call-problems").all_inner_texts()
    assert "city is missing" in problems[0]
    assert "days must be integer" in problems[0]
    assert "not JSON" in problems[1]
    page.wait_for_selector("text=onerror=window.hit")
    assert page.evaluate("[window.hit, document.querySelectorAll('.calls img, .calls script, .calls b').length]") == [
        None,
        0,
    ]
