"""A message is counted before it is sent, however fast that is done, and comes back if it is refused as too long."""

from __future__ import annotations

from typing import Any

import pytest

from chat.conversations.models import Conversation
from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.stub_routes import render_route, rendered
from tests.browser.test_pictures import picture

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONG = "very long " * 400
TOO_LONG = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."


@pytest.fixture
def page(scripted: ScriptedPage):
    return scripted.sign_in()


def held_counts(page: Any) -> list[Any]:
    """Leave what the page asks of the server's count unanswered."""
    held: list[Any] = []
    page.route("**/playground/api/render", lambda route: held.append(route))
    return held


def send(page: Any, text: str) -> None:
    """Type and send at once."""
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")


def test_a_message_that_is_sent_at_once_waits_for_its_count(scripted: ScriptedPage, page) -> None:
    """It went to the server, as nothing was counted within 0.4 s of the last key."""
    scripted.turn("hello", "yes")
    counts = held_counts(page)
    send(page, LONG)
    page.wait_for_selector(".meter-text:has-text('Counting …')")
    page.press("#composer-text", "Enter")
    scripted.wait_for(lambda: counts)
    for route in counts:
        route.fulfill(json=rendered(9000))
    page.wait_for_selector(".meter-problem:has-text('Too long by 809 tokens')")
    assert page.input_value("#composer-text") == LONG
    assert page.locator(".message-user").count() == 1
    render_route(page, [rendered(8000)])
    send(page, LONG + "but shorter")
    assert scripted.answer("Yes.")["messages"][-1]["content"] == LONG + "but shorter"
    assert scripted.received == []


def test_a_short_message_is_sent_uncounted(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "yes")
    held_counts(page)
    send(page, "And then?")
    assert scripted.answer("Yes.")["messages"][-1]["content"] == "And then?"


def test_a_message_is_sent_where_the_server_does_not_count(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "yes")
    counts = held_counts(page)
    send(page, LONG)
    scripted.wait_for(lambda: counts)
    for route in counts:
        route.fulfill(json={"error": {"message": "Not loaded.", "code": "model_not_loaded"}}, status=409)
    assert scripted.answer("Yes.")["messages"][-1]["content"] == LONG.strip()


def test_an_image_for_a_model_that_does_not_see_is_not_counted(scripted: ScriptedPage, page) -> None:
    """The server refused each count, which the console of the browser then showed as an error."""
    scripted.turn("hello", "yes")
    counts = held_counts(page)
    page.clock.install()
    page.set_input_files("input[type=file]", [{"name": "cat.png", "mimeType": "image/png", "buffer": picture()}])
    page.wait_for_selector("#misfit:has-text('plain does not take images.')")
    scripted.wait_painted()
    page.clock.fast_forward(5000)
    assert counts == []


def test_what_is_refused_as_too_long_comes_back_into_the_box(scripted: ScriptedPage, page) -> None:
    page.fill("#composer-text", LONG)
    page.wait_for_selector(".meter-text:has-text('Counted once the model is loaded')")
    page.press("#composer-text", "Enter")
    start = scripted.next("start")
    scripted.tell({"type": "waiting", "id": start["id"], "state": "loading", "phase": "weights", "num_before": 0})
    page.wait_for_selector("text=Loading the model")
    scripted.fail(start["id"], "context_length_exceeded", TOO_LONG, "messages")
    page.wait_for_selector(f".meter-problem:has-text({TOO_LONG!r})")
    assert page.input_value("#composer-text") == LONG.strip()
    assert page.locator(".message-user, .message-assistant").count() == 0
    scripted.wait_for(lambda: Conversation.objects.filter(num_turns=0).exists())
    page.fill("#composer-text", "shorter")
    page.wait_for_selector(".meter-problem", state="detached")
    page.press("#composer-text", "Enter")
    assert [message["content"] for message in scripted.answer("Yes.")["messages"]] == ["shorter"]
    scripted.wait_for(lambda: Conversation.objects.filter(num_turns=2).exists())


def test_it_stays_where_it_was_refused_if_another_message_is_written(scripted: ScriptedPage, page) -> None:
    send(page, LONG)
    start = scripted.next("start")
    page.fill("#composer-text", "something else")
    scripted.fail(start["id"], "context_length_exceeded", TOO_LONG, "messages")
    page.wait_for_selector(f"{MESSAGE.format(2)} .message-error:has-text('9000 tokens')")
    assert page.input_value("#composer-text") == "something else"
    assert page.locator(".message-user").count() == 1
