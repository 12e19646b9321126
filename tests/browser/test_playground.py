"""The playground in a real browser against a real model."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.slow]

ANSWER = "#messages > li:nth-child({}) .message-body"


def send(page, text: str) -> None:
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")


def finished(page, index: int) -> str:
    """Wait until message `index` shows its counters; its text."""
    page.wait_for_selector(f"#messages > li:nth-child({index}) .message-foot:has-text('tokens')", timeout=60_000)
    return page.inner_text(ANSWER.format(index))


def test_an_answer_streams_and_ends_with_its_counters(page):
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "24")
    send(page, "What is 2 plus 2?")
    assert "4" in finished(page, 2)
    assert "in the prompt" in page.inner_text("#messages > li:nth-child(2) .message-foot")
    assert page.is_visible("#send")
    assert not page.is_visible("#stop")


def test_the_panel_shows_the_entry_of_the_list_of_models(page, lightcone):
    """The panel showed 1 for every value."""
    [model] = json.loads(lightcone.get("/v1/models")[2])["data"]
    defaults = model["default_parameters"]
    assert float(page.get_attribute("#temperature", "placeholder")) == defaults["temperature"]
    assert float(page.get_attribute("#top_p", "placeholder")) == defaults["top_p"]
    assert float(page.input_value("#temperature-range")) == defaults["temperature"]


def test_a_second_turn_sees_the_first(page):
    page.fill("#temperature", "0")
    page.fill("#max_tokens", "16")
    send(page, "My name is Ada. Say hello.")
    finished(page, 2)
    send(page, "What is my name?")
    assert finished(page, 4)
    assert page.locator("#messages > li").count() == 4


def test_stop_keeps_the_text_and_marks_the_answer(page):
    page.fill("#max_tokens", "2000")
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for(timeout=60_000)
    page.click("#stop")
    assert len(finished(page, 2)) > 20
    assert "stopped" in page.inner_text("#messages > li:nth-child(2) .message-foot")


def test_an_error_names_the_field_and_the_chat_stays_usable(page):
    page.fill("#max_tokens", "1000000")
    send(page, "Hello")
    page.wait_for_selector(".message-error:visible")
    assert "max_tokens" in page.inner_text(".message-error")
    page.fill("#max_tokens", "8")
    page.click(".message-error button")
    page.wait_for_selector("#messages > li:nth-child(2) .message-foot:has-text('tokens')", timeout=60_000)
    assert page.locator(".message-error:visible").count() == 0


def test_a_chat_survives_a_reload(page):
    page.fill("#max_tokens", "8")
    send(page, "Hello")
    text = finished(page, 2)
    page.reload()
    page.wait_for_selector("#messages > li:nth-child(2)")
    assert page.inner_text(ANSWER.format(2)).strip() == text.strip()


def test_a_reload_during_an_answer_resumes_it(page, lightcone):
    """Question and answer were lost, and the run was recorded as disconnected."""
    page.fill("#max_tokens", "400")
    page.fill("#further", '{"ignore_eos": true}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for(timeout=60_000)
    before = page.inner_text(ANSWER.format(2))
    page.reload()
    assert page.locator("#messages > li").count() == 2
    text = finished(page, 2)
    assert text.startswith(before[:40])
    assert len(text) > len(before)
    assert "400 tokens" in page.inner_text("#messages > li:nth-child(2) .message-foot")


def test_a_second_tab_of_the_same_chat_shows_the_same_answer(page):
    page.fill("#max_tokens", "200")
    page.fill("#further", '{"ignore_eos": true}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for(timeout=60_000)
    with page.context.expect_page() as opened:
        page.evaluate(
            "window.open('/', '_blank', 'opener')"
        )  # like a tab that is duplicated: with a copy of this one's storage
    assert finished(opened.value, 2) == finished(page, 2)


def test_every_choice_is_shown_with_its_own_tokens(page):
    page.fill("#temperature", "2")  # at the model's own the choices may be alike
    page.fill("#top_p", "1")
    page.fill("#max_tokens", "7")
    page.fill("#further", '{"n": 3, "ignore_eos": true, "seed": 1}')
    send(page, "Hello")
    finished(page, 2)
    texts = set()
    for number in (1, 2, 3):
        page.click(f"button:has-text('Answer {number}')")
        page.wait_for_selector(
            "#messages > li:nth-child(2) .message-foot:has-text('21 tokens in 3 answers, 7 in this one')"
        )
        texts.add(page.inner_text(ANSWER.format(2)))
    assert len(texts) > 1


def test_further_fields_reach_the_server_and_are_checked_on_the_page(page):
    page.fill("#further", "{")
    send(page, "Hello")
    assert page.locator("#messages > li").count() == 0
    page.fill("#further", '{"max_tokens": 3, "ignore_eos": true, "temperature": 0}')
    page.press("#composer-text", "Enter")
    finished(page, 2)
    assert "3 tokens" in page.inner_text("#messages > li:nth-child(2) .message-foot")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows_and_the_parameters_open(page, width):
    page.set_viewport_size({"width": width, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width < 900:
        page.wait_for_selector("#temperature", state="hidden")
        page.click("#settings-toggle")
    page.wait_for_selector("#temperature")


def test_wrong_passwords_are_answered_on_the_page(chromium, lightcone):
    context = chromium.new_context(base_url=lightcone.base_url)
    page = context.new_page()
    page.goto("/")
    page.fill("#id_username", "nobody")
    page.fill("#id_password", "wrong")
    page.click("button[type=submit]")
    assert "correct username and password" in page.inner_text(".alert")
    context.close()
