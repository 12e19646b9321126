"""Chats whose turns have contents of any shape, as a file for an import that was written by hand may have."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.services import conversation_create
from chat.conversations.turns import TurnSent, turn_put
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHAT = "odd"
ODD_CHOICE = {"content": {"a": 1}, "reasoning": 5, "calls": [1, {"name": 5}], "logprobs": [None], "reasoning_at": 7}
ODD_FACTS = {
    "usage": {"prompt_tokens": "many"},
    "timings": {"total_s": "long"},
    "time": "yesterday",
    "parameters": {"fields": [1]},
    "error": {"message": {"a": 1}},
}
SHOWN: list[tuple[str, Any, str]] = [
    ("user", [None], "null"),
    ("user", {}, "{}"),
    ("user", [1, {"text": 5}, {"text": "typed"}, {"type": "image_url"}], '1\n\n{"text":5}\n\ntyped'),
    ("user", [], ""),
    ("user", {"choices": ["said"]}, "said"),
    ("tool", {"rain": True}, '{"rain":true}'),
    ("assistant", "plain", "plain"),
    ("assistant", ["part"], '"part"'),
    ("assistant", {}, "{}"),
    ("assistant", {"choices": 5}, '{"choices":5}'),
    ("assistant", {"choices": [], "shown": 3}, ""),
    ("assistant", {"choices": ["said"], "shown": "0"}, "said"),
    ("assistant", {"choices": [None]}, ""),
    ("assistant", {"choices": [ODD_CHOICE], "shown": "length", "prompt_logprobs": 1}, '{"a":1}'),
]
"""Who says it, the content, and what the page shows of it."""


def keep(contents: list[tuple[str, Any, str]], **fields: Any) -> None:
    """Keep a chat of these turns, with more fields in each."""
    user = get_user_model().objects.get(username="ada")
    settings = {"system": 5, "parameters": [1], "tools_off": [None, 3]}
    conversation_create(user_id=user.pk, public_id=CHAT, fields={"title": "Odd", "settings": settings})
    parent = ""
    for at, (role, content, _) in enumerate(contents):
        sent = TurnSent(f"t{at}", parent, role, "ended", {"content": content, **fields})
        turn_put(user_id=user.pk, conversation_id=CHAT, sent=sent)
        parent = f"t{at}"


@pytest.mark.parametrize("fields", [{}, ODD_FACTS], ids=["", "facts"])
def test_what_can_be_shown_of_a_turn_is_shown_and_the_rest_as_json(
    scripted: ScriptedPage, fields: dict[str, Any]
) -> None:
    """The page failed at such a chat, and showed none of it."""
    keep(SHOWN, **fields)
    page = scripted.sign_in()
    page.click(f'.chat-row[data-chat="{CHAT}"] .chat-link')
    page.wait_for_selector("[data-turn=t13] .call")
    assert scripted.texts() == [text for *_, text in SHOWN]
    assert page.text_content("[data-turn=t13] .thoughts-text") == "5"
    assert page.locator("[data-turn=t13] .call").count() == 2
    page.click("[data-turn=t13] .message-acts .menu summary")
    page.click("[data-turn=t13] .message-acts .menu >> text=Details")
    page.wait_for_selector("dialog .insight-facts")


def test_a_chat_with_such_turns_goes_on(scripted: ScriptedPage) -> None:
    keep([("user", [None, {"text": "hello"}], ""), ("assistant", [{"text": "hi"}], "")])
    page = scripted.sign_in()
    page.click(f'.chat-row[data-chat="{CHAT}"] .chat-link')
    page.wait_for_selector("[data-turn=t1]")
    request = scripted.turn("And?", "Yes.")
    assert request["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "null"}, {"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "And?"},
    ]
