"""While an answer is streamed, its page sends none of it to the server, however long it is."""

from __future__ import annotations

from typing import Any

import pytest

from chat.conversations.models import Turn
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

NUM_TOKENS = 400


def tells(request: Any) -> bool:
    """Whether a request saves a turn or has text of the answer."""
    return "/turns" in request.url or "word" in (request.post_data or "")


def test_a_page_saves_no_token_of_an_answer_before_its_end(scripted: ScriptedPage) -> None:
    page: Any = scripted.sign_in()
    scripted.ask("question")
    run = scripted.next("start")["id"]
    answers = Turn.objects.filter(role="assistant")
    scripted.wait_for(lambda: answers.count() == 1 and not scripted.in_flight)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data) if tells(request) else None)
    begun = answers.get()
    for number in range(NUM_TOKENS):
        scripted.say(run, f"word{number} ")
    page.wait_for_selector(f"text=word{NUM_TOKENS - 1}")
    assert sent == []
    assert answers.get().body == begun.body
    scripted.end(run, num_tokens=NUM_TOKENS)
    scripted.wait_idle()
    scripted.wait_for(lambda: answers.get().state == "ended")
    assert f"word{NUM_TOKENS - 1}" in answers.get().body
    assert len(sent) == 1
