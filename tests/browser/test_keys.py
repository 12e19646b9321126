"""Everything is done by keys: acts, the palette, and keys that the reader has chosen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import open_panel
from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.test_insight import STORY, said_with_tokens

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return scripted.sign_in()


def focused(page: Any) -> str:
    """Return the id of the element with the focus, or the number of the message."""
    script = """() => {
      const focused = document.activeElement;
      return focused.id || `message ${[...document.querySelectorAll("[data-turn]")].indexOf(focused) + 1}`;
    }"""
    return page.evaluate(script)


def kept(page: Any, keys: str) -> None:
    """Press keys that change what is kept, and wait until the server has it."""
    with page.expect_response(lambda response: response.url.endswith("/playground/api/state")):
        page.keyboard.press(keys)


def choose_keys(page: Any, act: str, *keys: str) -> None:
    page.click(f"[data-act-keys={act}]")
    for key in keys:
        page.keyboard.press(key)


def test_messages_are_walked_and_acted_on_by_keys(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "one")
    page.keyboard.press("Alt+ArrowUp")
    assert focused(page) == "message 2"
    page.keyboard.press("r")
    scripted.answer("two")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("ArrowLeft")
    scripted.wait_for(lambda: scripted.texts() == ["hello", "one"])
    scripted.wait_for(lambda: focused(page) == "message 2")
    page.keyboard.press("ArrowRight")
    scripted.wait_for(lambda: scripted.texts() == ["hello", "two"])
    scripted.wait_for(lambda: focused(page) == "message 2")
    page.keyboard.press("c")
    start = scripted.next("start")
    assert start["request"]["messages"][-1] == {"role": "assistant", "content": "two"}
    scripted.say(start["id"], "two and more")
    scripted.end(start["id"])
    scripted.wait_for(lambda: scripted.texts() == ["hello", "two and more"])
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    assert focused(page) == "message 1"
    page.keyboard.press("e")
    page.wait_for_selector(MESSAGE.format(1) + " .edit-form textarea:focus")
    page.keyboard.press("Escape")
    page.wait_for_selector(MESSAGE.format(1) + " button:focus")
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("Alt+ArrowDown")
    assert focused(page) == "composer-text"


def test_letters_write_in_fields_and_do_nothing_else_there(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "one")
    page.focus("#composer-text")
    page.keyboard.type("g n e r c y")
    assert page.input_value("#composer-text") == "g n e r c y"
    scripted.wait_for(lambda: scripted.texts() == ["hello", "one"])
    page.focus(MESSAGE.format(2))
    page.keyboard.press("Control+Enter")
    assert scripted.next("start")["request"]["messages"][-1]["content"] == "g n e r c y"


def test_two_letters_go_to_places(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "one")
    page.focus("#conversation")
    for keys, place in (("gm", "message 2"), ("gn", "composer-text")):
        page.keyboard.type(keys)
        scripted.wait_for(lambda place=place: focused(page) == place)
    assert scripted.texts() == []
    page.focus("#conversation")
    page.keyboard.type("gv")
    page.wait_for_selector("dialog[open]")
    page.keyboard.type("gn")
    assert page.is_visible("dialog[open]")


def test_panes_are_reached_by_their_numbers(scripted: ScriptedPage, page) -> None:
    page.click("header [aria-label=Compare]")
    page.wait_for_selector("#pane-2")
    page.focus("#pane-1")
    page.keyboard.type("g2")
    assert focused(page) == "pane-2"


def test_the_palette_finds_acts_models_and_chats_and_runs_them(scripted: ScriptedPage, page) -> None:
    scripted.turn("the tides of the moon", "one")
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("newch")
    assert page.inner_text(".palette-item[aria-selected=true]").split("\n")[0] == "New chat"
    page.keyboard.press("Enter")
    scripted.wait_for(lambda: scripted.texts() == [])
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("tides")
    page.keyboard.press("Enter")
    scripted.wait_for(lambda: scripted.texts() == ["the tides of the moon", "one"])
    model = page.get_attribute("#model", "value")
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("use ")
    with page.expect_response(lambda response: response.url.endswith("/playground/api/state")):
        page.keyboard.press("Enter")
    assert page.get_attribute("#model", "value") != model


def test_keys_are_chosen_kept_and_conflicts_said(scripted: ScriptedPage, page) -> None:
    page.keyboard.press("Control+/")
    page.wait_for_selector(".keys")
    choose_keys(page, "new-chat", "g", "s")
    assert "Go to the list of chats" in page.inner_text(".keys .problem")
    choose_keys(page, "new-chat", "Control+t")
    assert "belongs to the browser" in page.inner_text(".keys .problem")
    assert "g n" in page.inner_text("[data-act-keys=new-chat]")
    page.click("[data-act-keys=new-chat]")
    page.keyboard.press("g")
    kept(page, "x")
    assert "g x" in page.inner_text("[data-act-keys=new-chat]")
    page.reload()
    scripted.wait_ready()
    scripted.turn("hello", "one")
    page.focus("#conversation")
    page.keyboard.type("gn")
    page.keyboard.type("gx")
    scripted.wait_for(lambda: scripted.texts() == [])
    page.keyboard.press("Control+/")
    page.click("[data-act-keys=new-chat]")
    kept(page, "Delete")
    assert "none" in page.inner_text("[data-act-keys=new-chat]")


def test_enter_begins_a_line_where_the_reader_wants_it(scripted: ScriptedPage, page) -> None:
    page.keyboard.press("Control+/")
    page.wait_for_selector("#keys-enterSends")  # seen: a dialog that opens takes the focus
    page.focus("#keys-enterSends")
    kept(page, "Space")
    page.keyboard.press("Escape")
    page.fill("#composer-text", "one")
    page.press("#composer-text", "Enter")
    page.keyboard.type("two")
    page.press("#composer-text", "Control+Enter")
    assert scripted.next("start")["request"]["messages"][-1]["content"] == "one\ntwo"


def test_single_letters_can_be_switched_off(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "one")
    page.keyboard.press("Control+/")
    page.wait_for_selector("#keys-letters")  # seen: a dialog that opens takes the focus
    page.focus("#keys-letters")
    kept(page, "Space")
    page.keyboard.press("Escape")
    page.focus(MESSAGE.format(2))
    page.keyboard.type("r")
    page.keyboard.type("gn")
    assert scripted.received == []
    assert scripted.texts() == ["hello", "one"]


def test_keys_of_chats_in_the_list_and_of_tokens_are_chosen_too(scripted: ScriptedPage, page) -> None:
    """They had fixed keys, which no list named."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    view = said_with_tokens(scripted, STORY)
    page.keyboard.press("Control+/")
    choose_keys(page, "rename-chat")
    kept(page, "Insert")
    choose_keys(page, "delete-chat")
    kept(page, "Delete")
    choose_keys(page, "next-surprise")
    kept(page, "j")
    page.keyboard.press("Escape")
    page.focus(".chat-row[data-chat] .chat-link")
    page.keyboard.press("Delete")
    page.keyboard.press("F2")
    page.keyboard.press("Insert")
    page.wait_for_selector(".rename-input:focus")
    assert not any(url.endswith("/playground/api/delete") for url in asked)
    page.keyboard.press("Escape")
    view.locator("button.token").first.focus()
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.textContent") == "The"
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "·sings"
    assert view.locator("[data-next-surprise] kbd").inner_text() == "j"


def test_the_first_stops_of_tab_lead_to_messages_message_box_and_list(scripted: ScriptedPage, page) -> None:
    """A link to a place of the page changed its address, at which a temporary chat gave way to a new one."""
    page.click(".sidebar-temporary")
    scripted.turn("hello", "one")
    page.click("#sidebar-close")
    page.evaluate("document.querySelector('#sidebar-toggle').focus()")
    links = page.locator(".skip-link")
    for number in range(3):
        page.keyboard.press("Shift+Tab")
        assert page.evaluate("document.activeElement.textContent") == links.nth(2 - number).inner_text()
        assert page.evaluate("document.activeElement.getBoundingClientRect().top") > 0
    page.keyboard.press("Enter")
    assert focused(page) == "message 2"
    links.nth(1).focus()
    page.keyboard.press("Enter")
    assert focused(page) == "composer-text"
    links.nth(2).focus()
    page.keyboard.press("Enter")
    scripted.wait_for(lambda: page.evaluate("document.activeElement.closest('#sidebar') !== null"))
    assert scripted.texts() == ["hello", "one"]


def test_a_message_is_sent_from_an_editor_too(scripted: ScriptedPage, page) -> None:
    """The editor began a line with these keys, and the page never heard of them."""
    page.fill("#composer-text", "hello")
    open_panel(page)
    page.click("#panel [role=tab]:has-text('JSON')")
    page.click("#panel .cm-content")
    text = page.inner_text("#panel .cm-content")
    page.keyboard.press("Control+Enter")
    assert scripted.next("start")["request"]["messages"][-1]["content"] == "hello"
    assert page.inner_text("#panel .cm-content") == text
