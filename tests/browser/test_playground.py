"""The playground in a real browser against a real model."""

from __future__ import annotations

import json
import re

import pytest

from tests.browser.conftest import open_panel, set_fields

pytestmark = [pytest.mark.browser, pytest.mark.live, pytest.mark.slow]

ANSWER = "#messages > li:nth-child({}) .message-body"


def send(page, text: str) -> None:
    page.fill("#composer-text", text)
    page.press("#composer-text", "Enter")


def finished(page, index: int) -> str:
    """Wait until message `index` shows its counters, and all of its text; that text."""
    page.wait_for_selector(f"#messages > li:nth-child({index}) .message-foot:has-text('tokens')")
    page.wait_for_selector(f"#messages > li:nth-child({index}) [aria-busy]", state="detached")
    return page.inner_text(ANSWER.format(index))


def test_an_answer_streams_and_ends_with_its_counters(page):
    set_fields(page, '{"temperature": 0, "max_tokens": 24}')
    send(page, "What is 2 plus 2?")
    assert "4" in finished(page, 2)
    assert "in the prompt" in page.inner_text("#messages > li:nth-child(2) .message-foot")
    assert page.is_visible("#send")
    assert not page.is_visible("#stop")


def test_the_panel_shows_the_entry_of_the_list_of_models(page, lightcone):
    """The panel showed 1 for every value."""
    [model] = json.loads(lightcone.get("/v1/models")[2])["data"]
    defaults = model["default_parameters"]
    set_fields(page, "{}")
    assert float(page.get_attribute("#field-temperature", "placeholder")) == defaults["temperature"]
    assert float(page.get_attribute("#field-top_p", "placeholder")) == defaults["top_p"]
    assert float(page.input_value("#field-temperature-range")) == defaults["temperature"]


def test_a_second_turn_sees_the_first(page):
    set_fields(page, '{"temperature": 0, "max_tokens": 16}')
    send(page, "My name is Ada. Say hello.")
    finished(page, 2)
    send(page, "What is my name?")
    assert finished(page, 4)
    assert page.locator("#messages > li").count() == 4


def test_stop_keeps_the_text_and_marks_the_answer(page):
    set_fields(page, '{"max_tokens": 2000}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for()
    page.click("#stop")
    assert len(finished(page, 2)) > 20
    assert "stopped" in page.inner_text("#messages > li:nth-child(2) .message-foot")


def test_an_error_names_the_field_and_the_chat_stays_usable(page):
    set_fields(page, '{"max_tokens": 8, "logit_bias": {"999999999": 1}}')
    send(page, "Hello")
    page.wait_for_selector(".message-error:visible")
    assert "logit_bias" in page.inner_text(".message-error")
    set_fields(page, '{"max_tokens": 8}')
    page.click(".message-error button:has-text('Try again')")
    page.wait_for_selector("#messages > li:nth-child(2) .message-foot:has-text('tokens')")
    assert page.locator(".message-error:visible").count() == 0


def test_a_chat_survives_a_reload(page):
    set_fields(page, '{"max_tokens": 8}')
    send(page, "Hello")
    text = finished(page, 2)
    page.reload()
    assert finished(page, 2).strip() == text.strip()


def test_a_reload_during_an_answer_resumes_it(page, lightcone):
    """Question and answer were lost, and the run was recorded as disconnected."""
    set_fields(page, '{"max_tokens": 400, "ignore_eos": true}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for()
    before = page.inner_text(ANSWER.format(2))
    page.reload()
    text = finished(page, 2)
    assert text.startswith(before[:40])
    assert len(text) > len(before)
    assert "400 tokens" in page.inner_text("#messages > li:nth-child(2) .message-foot")


def test_a_second_tab_of_the_same_chat_shows_the_same_answer(page):
    set_fields(page, '{"ignore_eos": true, "max_tokens": 200}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for()
    other = page.context.new_page()
    other.goto(page.url)
    assert finished(other, 2) == finished(page, 2)


def test_a_stop_in_another_tab_is_shown_here(page):
    set_fields(page, '{"ignore_eos": true, "max_tokens": 4000}')
    send(page, "Write a very long story about the sea.")
    page.locator(ANSWER.format(2), has_text=re.compile(r".{40}")).wait_for()
    other = page.context.new_page()
    other.goto(page.url)
    other.click("#stop")
    assert finished(page, 2) == finished(other, 2)
    assert "stopped" in page.inner_text("#messages > li:nth-child(2) .message-foot")


def test_every_choice_is_shown_with_its_own_tokens(page):
    set_fields(page, '{"temperature": 2, "top_p": 1, "max_tokens": 7, "n": 3, "ignore_eos": true, "seed": 1}')
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


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows_and_the_parameters_open(page, width):
    page.set_viewport_size({"width": width, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width < 900:
        page.wait_for_selector("#field-temperature", state="detached")
    open_panel(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_wrong_passwords_are_answered_on_the_page(chromium, lightcone):
    context = chromium.new_context(base_url=lightcone.base_url)
    page = context.new_page()
    page.goto("/")
    page.fill("#id_username", "nobody")
    page.fill("#id_password", "wrong")
    page.click("button[type=submit]")
    assert "correct username and password" in page.inner_text(".alert")
    context.close()
