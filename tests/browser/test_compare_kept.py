"""A reload of the page loses nothing of what is compared; it is kept in the tab, for its person alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.compared import COMPARE, act, answered, asked, compare, shows
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

OWN_BOX = "#pane-2 textarea[placeholder='Send a message']"
ADD_TURNS = """async (contents) => {
    const { panes } = await import('/static/chat/playground/app/compare/panes.js');
    const { chat } = panes.value[0];
    for (const [at, content] of contents.entries()) {
        const role = typeof content === 'string' ? 'user' : 'assistant';
        chat.add({ id: `t${at}`, parent: at ? `t${at - 1}` : '', role, state: 'ended', content });
    }
    chat.head.value = `t${contents.length - 1}`;
}"""


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return compare(scripted)


def test_a_reload_shows_panes_answers_settings_and_drafts_again(scripted: ScriptedPage, page) -> None:
    """What was not made a chat of its own was lost."""
    page.click("#add-pane")
    page.click("#pane-1 .pane-settings > summary")
    page.fill("#pane-1 [name=temperature]", "0.25")
    answered(scripted, asked(scripted, "hello", num=3), "one", "two", "three")
    page.click("#pane-1 [aria-label='Regenerate']")
    again = scripted.next("start")
    answered(scripted, [again], "one more")
    models = [page.input_value(f"#pane-{pane} .pane-head select") for pane in (1, 2, 3)]
    act(page, 2, "Detach")
    page.fill("#composer-text", "to all")
    page.fill(OWN_BOX, "to one")
    page.reload()
    scripted.wait_ready()
    for pane, answer in ((1, "one more"), (2, "two"), (3, "three")):
        shows(scripted, pane, "hello", answer)
    assert [page.input_value(f"#pane-{pane} .pane-head select") for pane in (1, 2, 3)] == models
    assert page.input_value("#composer-text") == "to all"
    assert page.input_value(OWN_BOX) == "to one"
    page.press("#composer-text", "Enter")
    first, third = scripted.next("start")["request"], scripted.next("start")["request"]
    assert [message["content"] for message in first["messages"]] == ["hello", "one more", "to all"]
    assert first["temperature"] == 0.25
    assert [message["content"] for message in third["messages"]] == ["hello", "three", "to all"]
    page.click("#pane-1 [aria-label='Earlier version']")
    shows(scripted, 1, "hello", "one")


def test_a_reload_in_the_middle_of_answers_takes_up_their_runs(scripted: ScriptedPage, page) -> None:
    page.click("#add-pane")
    first, second, third = asked(scripted, "hello", num=3)
    scripted.ask("and now?")
    scripted.say(first["id"], "It begins")
    scripted.say(second["id"], "Half of")
    scripted.say(third["id"], "three")
    scripted.end(third["id"])
    following = scripted.next("start")
    shows(scripted, 2, "hello", "Half of")
    page.reload()
    attached = {scripted.next("attach")["id"] for _ in range(3)}
    assert attached == {first["id"], second["id"], following["id"]}
    shows(scripted, 1, "hello", "It begins")
    shows(scripted, 2, "hello", "Half of")
    shows(scripted, 3, "hello", "three", "and now?", "")
    scripted.say(first["id"], "It begins and goes on")
    scripted.end(first["id"])
    request = scripted.next("start")["request"]  # what has waited goes to this pane now
    assert [message["content"] for message in request["messages"]] == ["hello", "It begins and goes on", "and now?"]
    scripted.fail(second["id"], "not_resumable")
    page.wait_for_selector("#pane-2 .message-error:has-text('left no trace')")
    shows(scripted, 2, "hello", "Half of")
    assert scripted.received == []


def test_a_reload_goes_back_to_the_chat_behind_the_panes(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    scripted.turn("before", "yes")
    page.click(COMPARE)
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.reload()
    scripted.wait_ready()
    shows(scripted, 1, "hello", "one")
    page.click("#end-comparing")
    scripted.wait_for(lambda: scripted.texts() == ["before", "yes"])
    page.reload()
    scripted.wait_ready()
    scripted.wait_for(lambda: scripted.texts() == ["before", "yes"])
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("compared chats")
    page.keyboard.press("Enter")
    shows(scripted, 2, "hello", "two")


def test_an_address_of_a_chat_shows_that_chat_and_no_comparison(scripted: ScriptedPage) -> None:
    """Whoever followed a link in a tab with a comparison saw the comparison."""
    page = scripted.sign_in()
    scripted.turn("before", "yes")
    page.wait_for_url("**/c/*")
    address = page.url
    page.click("#sidebar-new-chat")
    page.click(COMPARE)
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.goto(address)
    scripted.wait_ready()
    scripted.wait_for(lambda: scripted.texts() == ["before", "yes"])
    assert page.locator(".pane").count() == 0
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("compared chats")
    page.keyboard.press("Enter")
    shows(scripted, 2, "hello", "two")


def test_a_pane_that_has_become_a_chat_is_not_there_twice_after_a_reload(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "one", "two")
    act(page, 1, "Make it a chat")
    page.wait_for_url("**/c/*")
    scripted.wait_idle()
    page.click("#notice button:has-text('Go back')")
    shows(scripted, 1, "hello", "two")
    page.reload()
    scripted.wait_ready()
    shows(scripted, 1, "hello", "two")
    assert page.locator(".pane").count() == 1


def test_what_the_tab_cannot_keep_is_said_at_once(scripted: ScriptedPage, page) -> None:
    page.evaluate(ADD_TURNS, ["x" * 1_000_000])
    page.wait_for_selector("#notice.is-problem:has-text('cannot keep all')")


def test_log_probabilities_are_left_out_before_texts(scripted: ScriptedPage, page) -> None:
    token = {"token": "x" * 300_000, "id": 1, "logprob": -1, "bytes": None, "rank": 1, "top": []}
    answers = [
        {"content": f"answer {number}", "reasoning": "", "calls": [], "logprobs": [token]} for number in range(4)
    ]
    page.evaluate(ADD_TURNS, ["hello", *[{"choices": [answer], "shown": 0} for answer in answers]])
    page.reload()
    scripted.wait_ready()
    shows(scripted, 1, "hello", "answer 0", "answer 1", "answer 2", "answer 3")
    assert page.locator("#notice").count() == 0


def test_nothing_of_a_comparison_stays_in_the_tab_after_signing_out(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello of ada"), "one", "two")
    scripted.sign_out()
    assert "hello of ada" not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
    scripted.sign_in("bob")
    assert page.locator(".pane").count() == 0


def test_a_browser_that_keeps_nothing_is_told_of_only_with_a_comparison(scripted: ScriptedPage) -> None:
    """Each page of such a browser began with the news that its comparison, which was none, cannot be kept."""
    page = scripted.page
    page.add_init_script("Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException(); } })")
    scripted.sign_in()
    scripted.turn("hello", "yes")
    page.evaluate("dispatchEvent(new Event('pagehide'))")  # keeps at once
    scripted.wait_painted()
    assert page.locator("#notice").count() == 0
    page.click(COMPARE)
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.wait_for_selector("#notice.is-problem:has-text('cannot keep all')")
