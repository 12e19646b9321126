"""A chat's title, suggested by its model when somebody asks for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chat.conversations.models import Conversation, Turn
from tests.browser.scripted import ScriptedPage
from tests.browser.test_history import HAIKU, ROW, TITLES, act, keep, stored
from tests.browser.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BUTTON = ".rename button"


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    """The page of somebody with a chat, whose title is about to be changed."""
    keep("ada", HAIKU, TITLES[HAIKU], num_questions=2)
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format(HAIKU))
    act(page, HAIKU, "Rename")
    page.wait_for_selector(".rename-input:focus")
    return page


def test_a_title_is_suggested_and_can_still_be_changed(scripted: ScriptedPage, page) -> None:
    num_turns = stored(HAIKU).num_turns
    page.click(f"{BUTTON}:has-text('Suggest a title')")
    start = scripted.next("start")
    request = start["request"]
    [message] = request["messages"]
    for part in ("The café question 0", "Answer 0.", "in its language"):
        assert part in message["content"]
    assert "question 1" not in message["content"]
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("plain", 32, 0)
    page.wait_for_selector(".rename :text('Asking plain …')")
    page.wait_for_selector(f"{BUTTON}:has-text('Stop')")
    scripted.say(start["id"], '\n**"Coffee in  the old town"**\n\nIt fits well.')
    scripted.end(start["id"])
    scripted.wait_for(lambda: page.input_value(".rename-input") == "Coffee in the old town")
    assert stored(HAIKU).title == TITLES[HAIKU]
    page.keyboard.press("End")
    page.keyboard.type(" of Graz")
    page.keyboard.press("Enter")
    scripted.wait_for(lambda: stored(HAIKU).title == "Coffee in the old town of Graz")
    assert [chat.num_turns for chat in Conversation.objects.all()] == [num_turns]  # nothing of it is stored
    assert page.url.endswith("/")


def test_a_long_suggestion_is_cut_at_the_limit_of_titles(scripted: ScriptedPage, page) -> None:
    page.click(BUTTON)
    start = scripted.next("start")
    scripted.say(start["id"], "word " * 60)
    scripted.end(start["id"])
    scripted.wait_for(lambda: len(page.input_value(".rename-input")) > 190)
    page.keyboard.press("Enter")
    scripted.wait_for(lambda: stored(HAIKU).title == ("word " * 40).strip())


def test_no_character_is_cut_in_two(scripted: ScriptedPage) -> None:
    """The server takes no half of one, and the suggestion never ended."""
    keep("ada", HAIKU, TITLES[HAIKU], num_questions=1)
    question = "a" + "🙂" * 1600
    for turn in Turn.objects.filter(conversation__public_id=HAIKU, role="user"):
        turn.body = json.dumps({**json.loads(turn.body), "content": question})
        turn.save()
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format(HAIKU))
    act(page, HAIKU, "Rename")
    page.click(f"{BUTTON}:has-text('Suggest a title')")
    [message] = scripted.next("start")["request"]["messages"]
    message["content"].encode()  # raises for half a character
    assert "🙂" * 100 in message["content"]


def test_a_suggestion_is_stopped_and_the_title_stays(scripted: ScriptedPage, page) -> None:
    page.click(BUTTON)
    start = scripted.next("start")
    loading = {"state": "loading", "phase": "weights", "fraction": 0.5, "num_before": 0}
    scripted.tell({"type": "waiting", "id": start["id"], **loading})
    page.wait_for_selector(".rename :text('Loading the model: weights, 50 %')")
    page.click(f"{BUTTON}:has-text('Stop')")
    assert scripted.next("stop")["id"] == start["id"]
    scripted.say(start["id"], "Cof")
    scripted.end(start["id"], outcome="cancelled")
    page.wait_for_selector(f"{BUTTON}:has-text('Suggest a title')")
    assert page.input_value(".rename-input") == TITLES[HAIKU]


def test_a_title_that_is_left_stops_what_was_asked(scripted: ScriptedPage, page) -> None:
    page.click(BUTTON)
    start = scripted.next("start")
    page.keyboard.press("Escape")
    assert scripted.next("stop")["id"] == start["id"]
    page.wait_for_selector(f'{ROW.format(HAIKU)} .chat-link[title="{TITLES[HAIKU]}"]')


@pytest.mark.parametrize("is_refused", [True, False])
def test_why_there_is_no_suggestion_is_said_in_place(scripted: ScriptedPage, page, is_refused: bool) -> None:
    page.click(BUTTON)
    start = scripted.next("start")
    if is_refused:
        scripted.fail(start["id"], "model_not_found", "The model is gone.")
    else:
        scripted.say(start["id"], "", reasoning="A title, hm.")
        scripted.end(start["id"])
    expected = "The model is gone." if is_refused else "The model suggests no title."
    assert page.inner_text(".rename [role=alert]") == expected
    assert page.input_value(".rename-input") == TITLES[HAIKU]


def test_the_form_of_a_title_is_accessible(walk: Walk) -> None:
    keep("ada", HAIKU, TITLES[HAIKU])
    walk.sign_in(sidebar=True)
    page = walk.page
    if not page.is_visible(".sidebar"):
        page.click("#sidebar-toggle")
    page.focus(f"{ROW.format(HAIKU)} .chat-link")
    page.keyboard.press("F2")
    walk.look("title", BUTTON)
    page.click(BUTTON)
    run = walk.scripted.next("start")["id"]
    walk.look("title that is asked for", ".rename :text('Asking plain')")
    walk.scripted.fail(run, "overloaded", "Too many requests.")
    walk.look("no title", ".rename [role=alert]")
    assert walk.findings == []
