"""What is written and not sent stays with its chat: through reloads, and while other chats are shown."""

from __future__ import annotations

from typing import Any

import pytest

from chat.conversations.models import Draft
from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST, SECOND = '.chat-link[title="the first chat"]', '.chat-link[title="the second chat"]'
FORM = ".edit-form textarea"


@pytest.fixture
def talk(scripted: ScriptedPage) -> ScriptedPage:
    """Signed in, with a chat beside the one that is shown."""
    scripted.sign_in()
    scripted.turn("the second chat", "answer 2")
    scripted.page.click("#sidebar-new-chat")
    scripted.turn("the first chat", "answer 1")
    return scripted


def edit(page: Any, text: str) -> None:
    page.click(f"{MESSAGE.format(1)} [aria-label='Edit']")
    page.fill(FORM, text)


def test_the_text_of_an_open_edit_survives_a_reload(talk: ScriptedPage) -> None:
    """The form was closed, and what was written in it was lost."""
    edit(talk.page, "a better question")
    talk.page.reload()
    talk.page.wait_for_selector(FORM)
    assert talk.page.input_value(FORM) == "a better question"
    talk.page.click("text=Save & send")
    talk.answer("a better answer")
    assert talk.texts() == ["a better question", "a better answer"]
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(2))
    assert talk.page.locator(FORM).count() == 0


def test_an_open_edit_waits_in_its_own_chat(talk: ScriptedPage) -> None:
    edit(talk.page, "a better question")
    talk.page.click(SECOND)
    talk.page.wait_for_selector(f"{MESSAGE.format(2)}:has-text('answer 2')")
    assert talk.page.locator(FORM).count() == 0
    talk.page.click(FIRST)
    talk.page.wait_for_selector(FORM)
    assert talk.page.input_value(FORM) == "a better question"


def test_an_edit_that_was_left_does_not_come_back(talk: ScriptedPage) -> None:
    for leave in (lambda: talk.page.keyboard.press("Escape"), lambda: talk.page.click(".edit-form >> text=Cancel")):
        edit(talk.page, "a better question")
        leave()
        talk.page.wait_for_selector(FORM, state="detached")
        talk.page.reload()
        talk.page.wait_for_selector(MESSAGE.format(2))
        assert talk.page.locator(FORM).count() == 0
        assert talk.texts() == ["the first chat", "answer 1"]


def test_a_form_that_is_left_drops_its_own_text_alone(talk: ScriptedPage) -> None:
    """Leaving one form dropped the text that was kept of the other one."""
    edit(talk.page, "a better question")
    talk.page.fill("#composer-text", "a draft")
    talk.page.click(f"{MESSAGE.format(2)} .message-acts > .menu > summary")
    talk.page.click(f"{MESSAGE.format(2)} .menu-act:has-text('Edit')")
    talk.page.wait_for_selector(f"{MESSAGE.format(2)} {FORM}")
    talk.page.click(f"{MESSAGE.format(2)} .edit-form >> text=Cancel")
    talk.page.wait_for_selector(FORM, state="detached")
    assert talk.page.input_value("#composer-text") == "a draft"
    talk.page.click(f"{MESSAGE.format(1)} [aria-label='Edit']")
    assert talk.page.input_value(FORM) == "a better question"


def open_chat(page: Any, link: str, answer: str) -> None:
    page.click(link)
    page.wait_for_selector(f"{MESSAGE.format(2)}:has-text('{answer}')")


def test_each_chat_keeps_its_draft_whichever_is_opened_when(talk: ScriptedPage) -> None:
    """A chat that was opened again kept what was typed in the page alone, and a reload lost it."""
    page, box = talk.page, "#composer-text"
    page.fill(box, "a draft of the first")
    open_chat(page, SECOND, "answer 2")
    assert page.input_value(box) == ""
    page.fill(box, "a draft of the second")
    open_chat(page, FIRST, "answer 1")
    assert page.input_value(box) == "a draft of the first"
    page.fill(box, "a later draft of the first")
    page.click("#sidebar-new-chat")
    assert page.input_value(box) == ""
    page.fill(box, "a draft of a new chat")
    open_chat(page, SECOND, "answer 2")
    assert page.input_value(box) == "a draft of the second"
    page.reload()
    page.wait_for_selector(f"{MESSAGE.format(2)}:has-text('answer 2')")
    assert page.input_value(box) == "a draft of the second"
    open_chat(page, FIRST, "answer 1")
    assert page.input_value(box) == "a later draft of the first"
    page.click("#sidebar-new-chat")
    talk.wait_for(lambda: page.input_value(box) == "a draft of a new chat")


def test_another_device_has_the_drafts_too(talk: ScriptedPage) -> None:
    page = talk.page
    open_chat(page, SECOND, "answer 2")
    open_chat(page, FIRST, "answer 1")
    page.fill("#composer-text", "a draft of the first")
    open_chat(page, SECOND, "answer 2")
    kept = Draft.objects.filter(conversation__title="the first chat", text__contains="a draft of the first")
    talk.wait_for(kept.exists)
    page.evaluate("sessionStorage.clear()")
    page.reload()
    page.wait_for_selector(f"{MESSAGE.format(2)}:has-text('answer 2')")
    assert page.input_value("#composer-text") == ""
    open_chat(page, FIRST, "answer 1")
    assert page.input_value("#composer-text") == "a draft of the first"


def test_the_last_click_wins_although_the_first_chat_arrives_last(talk: ScriptedPage) -> None:
    """The chat that was clicked first replaced the one that was being read, and took what was typed there."""
    page = talk.page
    page.goto("/")
    talk.wait_ready()
    page.wait_for_selector(FIRST)
    first = page.evaluate(f"document.querySelector('{FIRST}').closest('[data-chat]').dataset.chat")
    held: list[Any] = []
    page.route(f"**/conversations/{first}", lambda route: held.append(route))
    page.click(FIRST)
    talk.wait_for(lambda: held)
    open_chat(page, SECOND, "answer 2")
    page.fill("#composer-text", "a draft of the second")
    with page.expect_response(f"**/conversations/{first}"):
        held[0].continue_()
    talk.wait_for(lambda: not talk.in_flight)
    talk.wait_painted()
    assert talk.texts() == ["the second chat", "answer 2"]
    assert not page.url.endswith(first)
    page.unroute(f"**/conversations/{first}")
    open_chat(page, FIRST, "answer 1")
    assert page.input_value("#composer-text") == ""
    page.fill("#composer-text", "a draft of the first")
    page.reload()
    page.wait_for_selector(f"{MESSAGE.format(2)}:has-text('answer 1')")
    assert page.input_value("#composer-text") == "a draft of the first"


WAITING = ".queue"


def test_a_message_that_waits_goes_once_the_answer_has_finished(talk: ScriptedPage) -> None:
    talk.ask("question 2")
    run = talk.next("start")["id"]
    talk.ask("and now?")
    talk.page.wait_for_selector(f"{WAITING} >> text=and now?")
    assert talk.received == []
    talk.say(run, "so")
    talk.end(run)
    assert [message["content"] for message in talk.answer("this")["messages"]][-2:] == ["so", "and now?"]
    assert talk.page.locator(WAITING).count() == 0


@pytest.mark.parametrize("outcome", ["failed", "stopped"])
def test_a_message_that_waits_is_held_back_after_an_answer_that_did_not_finish(
    talk: ScriptedPage, outcome: str
) -> None:
    """It was sent into a chat whose answer had failed, or had just been stopped."""
    talk.ask("question 2")
    run = talk.next("start")["id"]
    talk.ask("and now?")
    talk.say(run, "half")
    if outcome == "failed":
        talk.fail(run, "engine_error")
    else:
        talk.page.fill("#composer-text", "")
        talk.page.click("#stop")
        talk.next("stop")
        talk.end(run, outcome="stopped")
    talk.page.wait_for_selector(f"{WAITING} >> text=did not finish")
    talk.wait_idle()  # a page that comes back before the end is saved asks how the run has ended
    talk.page.reload()
    talk.page.wait_for_selector(f"{WAITING} >> text=and now?")
    talk.wait_ready()
    assert talk.received == []
    talk.page.click(f"{WAITING} >> text=Send now")
    assert talk.answer("this")["messages"][-1]["content"] == "and now?"
    assert talk.page.locator(WAITING).count() == 0


def test_a_message_that_waits_is_edited_in_the_box_and_withdrawn(talk: ScriptedPage) -> None:
    talk.ask("question 2")
    run = talk.next("start")["id"]
    for text in ("one more", "another one"):
        talk.ask(text)
    talk.page.wait_for_selector(f"{WAITING} >> text=2 messages wait")
    talk.page.fill("#composer-text", "a draft")
    talk.page.locator(f"{WAITING} [aria-label='Edit the waiting message']").first.click()
    assert talk.page.input_value("#composer-text") == "one more\n\na draft"
    talk.page.click(f"{WAITING} [aria-label='Withdraw the waiting message']")
    talk.page.wait_for_selector(WAITING, state="detached")
    talk.say(run, "so")
    talk.end(run)
    talk.wait_idle()
    assert talk.received == []
    assert talk.texts()[-2:] == ["question 2", "so"]
    assert talk.page.input_value("#composer-text") == "one more\n\na draft"
