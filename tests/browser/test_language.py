"""A reader whose browser asks for German gets the whole chat in German, and nothing is cut because it is longer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.browser.scripted import ScriptedPage
from tests.browser.walk import SIZES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CUT = """() => [document.documentElement, ...document.querySelectorAll(".topbar, .panel-body, .tabs, .composer")]
  .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => `${node.tagName}.${node.className}`)"""


@pytest.fixture(params=SIZES)
def german(request, contexts, live_server, valkey, people) -> Iterator[ScriptedPage]:
    """Yield the chat in a browser that asks for German, in each size."""
    width, height = SIZES[request.param]
    size = {"width": width, "height": height}
    with contexts.one(base_url=live_server.url, viewport=size, locale="de-DE", reduced_motion="reduce") as context:
        scripted = ScriptedPage(context, live_server.url)
        scripted.sign_in()
        yield scripted
        scripted.close()
        assert scripted.problems == []


def test_a_german_browser_shows_a_chat_in_german(german: ScriptedPage) -> None:
    page = german.page
    assert page.get_attribute("html", "lang") == "de"
    assert page.text_content(".welcome h2") == "Woran arbeiten wir?"
    german.turn("Hallo", "Guten Tag")
    assert page.locator(".message-author").all_text_contents() == ["Sie", "Assistent"]
    assert "5 Token" in page.text_content(".message-counters")
    assert page.evaluate(CUT) == []


def test_the_form_of_parameters_is_german_and_fits(german: ScriptedPage) -> None:
    page = german.page
    page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature")
    assert page.text_content("label[for='field-temperature']").startswith("Temperatur")
    assert "zufälliger" in page.text_content("#field-temperature-help")
    page.fill("#field-temperature", "9")
    assert "muss eine Zahl von 0 bis 2 sein" in page.text_content("#field-temperature-problem")
    for tab in ("Parameter", "JSON", "Werkzeuge", "Ausgabe"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate(CUT) == []


def test_compared_chats_are_german_and_fit(german: ScriptedPage) -> None:
    page = german.page
    page.keyboard.press("Control+k")
    page.get_by_role("option", name="Modelle nebeneinander vergleichen").click()
    page.wait_for_selector("#pane-2", state="attached")
    assert "Was Sie senden, geht auch an diese Spalte." in page.text_content("#pane-2")
    assert page.evaluate(CUT) == []


@pytest.mark.parametrize(("locale", "chosen"), [("en-US", "de"), ("en-GB", "")])
def test_times_are_written_in_the_language_of_the_page_as_where_the_reader_lives(
    contexts, live_server, valkey, people, locale: str, chosen: str
) -> None:
    """A browser in English wrote `11:47 AM` on a page whose reader had chosen German, and so did a British one."""
    with contexts.one(base_url=live_server.url, locale=locale, timezone_id="UTC") as context:
        if chosen:
            context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": chosen, "url": live_server.url}])
        scripted = ScriptedPage(context, live_server.url)
        scripted.sign_in()
        scripted.turn("Hallo", "Guten Tag")
        assert re.fullmatch(r"\d\d:\d\d", scripted.page.inner_text(".message-user time"))
        scripted.close()
        assert scripted.problems == []
