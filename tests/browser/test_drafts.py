"""What is written and not sent stays with its chat: through reloads, and while other chats are shown."""

from __future__ import annotations

from typing import Any

import pytest

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
