"""Tags of chats, and the filters of the search."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from chat.conversations.models import Conversation
from chat.conversations.services import conversation_change
from chat.conversations.turns import TurnSent, turn_put
from tests.browser.scripted import ScriptedPage
from tests.browser.test_history import HAIKU, INVOICES, LISBON, MENU_ACT, OLD, ROW, TITLES, act, keep, stored

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AGES = {HAIKU: 0, INVOICES: 2, LISBON: 4, OLD: 400}


def answer_with(chat: str, model: str, **body: Any) -> None:
    user = get_user_model().objects.get(username="ada")
    content = {"choices": [{"content": "By tram.", "reasoning": "", "calls": []}], "shown": 0}
    sent = TurnSent("m", "q0", "assistant", "ended", {"content": content, "model": model, **body})
    turn_put(user_id=user.pk, conversation_id=chat, sent=sent)


def tag(chat: str, *tags: str) -> None:
    user = get_user_model().objects.get(username="ada")
    conversation_change(user_id=user.pk, public_id=chat, version=1, fields={"tags": tags})


@pytest.fixture
def history(scripted: ScriptedPage) -> Any:
    """The page of somebody with four chats of two models, some with tags."""
    for chat, title in TITLES.items():
        keep("ada", chat, title)
    for chat in (HAIKU, LISBON):
        answer_with(chat, "greedy")
    answer_with(INVOICES, "plain", parameters={"fields": {"tools": [{}]}})
    tag(LISBON, "Trips", "by rail")
    tag(INVOICES, "Work")
    for chat, days in AGES.items():
        Conversation.objects.filter(public_id=chat).update(updated_at=timezone.now() - timedelta(days=days))
    page = scripted.sign_in()
    page.wait_for_selector(ROW.format(HAIKU))
    return page


def expect_found(page: Any, *chats: str) -> None:
    """These chats are found, the latest first."""
    for number, chat in enumerate(chats, 1):
        page.wait_for_selector(f".hit:nth-child({number}):has-text('{TITLES[chat]}')")
    page.wait_for_selector(f".hit:nth-child({len(chats) + 1})", state="detached")


def test_filters_find_chats_without_words(history: Any) -> None:
    history.click("#chat-filters")
    history.select_option("#filter-model", "greedy")
    expect_found(history, HAIKU, LISBON)
    history.select_option("#filter-tag", "Trips")
    expect_found(history, LISBON)
    history.click(".filters >> text=Clear")
    history.wait_for_selector(ROW.format(OLD))
    history.check("#filter-tools")
    expect_found(history, INVOICES)
    history.click(".hit-link")
    history.wait_for_selector("[data-turn=q0]")


def test_filters_narrow_what_words_find_and_go_one_by_one(history: Any) -> None:
    history.fill("#chat-search", "tram")
    history.wait_for_selector(".hit:nth-child(4)")
    history.click("#chat-filters")
    history.select_option("#filter-model", "plain")
    expect_found(history, INVOICES)
    history.click("#chat-filters")
    history.click("[aria-label='Remove the filter plain']")
    history.wait_for_selector(".hit:nth-child(4)")
    history.fill("#chat-search", "")
    history.wait_for_selector(ROW.format(OLD))


def test_days_bound_the_last_change_and_the_last_day_is_within(history: Any) -> None:
    local = "new Date(Date.now() - {} * 86400000).toLocaleDateString('sv')"
    history.click("#chat-filters")
    history.fill("#filter-first", history.evaluate(local.format(AGES[LISBON])))
    expect_found(history, HAIKU, INVOICES, LISBON)
    history.fill("#filter-last", history.evaluate(local.format(AGES[INVOICES])))
    expect_found(history, INVOICES, LISBON)
    history.fill("#filter-first", history.evaluate(local.format(1)))
    history.wait_for_selector("text=The last day is before the first one.")
    history.wait_for_selector("text=No chat fits these filters.")  # without asking the server, which refuses such days
    history.fill("#filter-last", "9999-12-31")
    expect_found(history, HAIKU)
    history.fill("#filter-first", "0002-01-01")  # as while a year is typed
    expect_found(history, HAIKU, INVOICES, LISBON, OLD)


def test_what_fits_no_filter_says_so(history: Any) -> None:
    history.click("#chat-filters")
    history.select_option("#filter-tag", "Work")
    history.select_option("#filter-model", "greedy")
    history.wait_for_selector("text=No chat fits these filters.")
    history.fill("#chat-search", "trams")
    history.wait_for_selector("text=in the chats that fit the filters")


def test_the_filters_open_and_close_by_keyboard(history: Any) -> None:
    history.focus("#chat-search")
    history.keyboard.press("Tab")
    history.keyboard.press("Enter")
    history.wait_for_selector("#filter-model option:text-is('greedy')", state="attached")
    history.keyboard.press("Tab")
    history.keyboard.press("g")
    expect_found(history, HAIKU, LISBON)
    history.keyboard.press("Escape")
    history.wait_for_selector("#filter-model", state="detached")
    history.wait_for_selector("#chat-filters:focus")
    history.keyboard.press("Tab")
    history.keyboard.press("Enter")
    history.wait_for_selector(ROW.format(OLD))
    history.wait_for_selector("#chat-filters:focus")


def test_tags_are_set_in_the_menu_of_a_row_and_shown(history: Any) -> None:
    act(history, HAIKU, "Tags")
    history.fill("#tag-name", "  verse ")
    history.keyboard.press("Enter")
    history.fill("#tag-name", "VERSE")
    history.keyboard.press("Enter")
    history.click("[aria-label='Tags of other chats'] >> text=Work")
    history.fill("#tag-name", "short")
    history.click("dialog >> text=Save")
    history.wait_for_selector(f"{ROW.format(HAIKU)} .chat-tags:has-text('verse +2')")
    assert stored(HAIKU).tags == '["verse","Work","short"]'
    act(history, HAIKU)
    assert history.inner_text(f"{MENU_ACT.format('Tags')} .menu-hint") == "verse, Work, short"
    history.click(MENU_ACT.format("Tags"))
    history.click("[aria-label='Remove the tag verse']")
    history.wait_for_selector("#tag-name:focus")
    history.click("dialog >> text=Save")
    history.wait_for_selector(f"{ROW.format(HAIKU)} .chat-tags:has-text('Work +1')")


def test_a_chat_takes_twenty_tags(history: Any) -> None:
    act(history, HAIKU, "Tags")
    for number in range(20):
        history.fill("#tag-name", f"tag {number}")
        history.keyboard.press("Enter")
    history.wait_for_selector("text=A chat has at most 20 tags.")
    assert history.is_disabled("#tag-name")
    history.click("dialog >> text=Save")
    history.wait_for_selector(f"{ROW.format(HAIKU)} .chat-tags")
    assert stored(HAIKU).tags.count("tag ") == 20
