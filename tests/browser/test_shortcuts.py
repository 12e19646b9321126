"""The short ways below the message box: answers as JSON, and tools."""

from __future__ import annotations

import json

import pytest

from tests.browser.scripted import ScriptedPage
from tests.browser.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PYTHON = "def get_weather(city: str) -> str: ..."
EDITOR = ".dialog .cm-content[aria-label='Schema or example as JSON']"


@pytest.fixture
def page(scripted: ScriptedPage):
    return scripted.sign_in()


def type_over(page, text: str) -> None:
    """Type into the editor as it opens: its text is selected."""
    page.wait_for_selector(EDITOR)
    page.keyboard.insert_text(text)


def test_answers_as_json_by_ones_own_schema_take_five_steps(scripted: ScriptedPage, page) -> None:
    page.click("#shortcut-json")
    type_over(page, json.dumps(SCHEMA))
    page.wait_for_selector(".dialog :text('This is a schema.')")
    page.fill("#json-name", "my schema")
    page.click(".dialog >> text=Save")
    scripted.wait_for(lambda: page.evaluate("document.activeElement.id") == "composer-text")
    page.keyboard.type("Where is it warm?")
    page.keyboard.press("Enter")
    asked = scripted.answer('{"city": "Rome"}')["response_format"]["json_schema"]
    assert (asked["name"], asked["schema"]) == ("my_schema", SCHEMA)
    assert page.inner_text("#shortcut-json") == "JSON: my_schema"
    assert page.locator(".message .verdict").last.inner_text() == "Matches the schema"


def test_an_example_makes_the_schema(scripted: ScriptedPage, page) -> None:
    page.click("#shortcut-json")
    type_over(page, '{"type": "cat", "legs": 4')
    page.wait_for_selector(".dialog .problem:has-text('not JSON')")
    assert page.is_disabled(".dialog >> text=Save")
    page.keyboard.insert_text("}")
    page.wait_for_selector(".dialog :text('This is an example')")
    page.click(".dialog >> text=Save")
    schema = scripted.turn("Hello", "{}")["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"type": {"type": "string"}, "legs": {"type": "integer"}}


def test_json_ends_with_a_click_and_comes_back_with_its_schema(scripted: ScriptedPage, page) -> None:
    scripted.set_fields(response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}})
    page.click("[aria-label='Answers in free text']")
    assert page.inner_text("#shortcut-json") == "JSON"
    assert "response_format" not in scripted.turn("Hello", "Hi")
    page.click("#notice >> text=Undo")
    page.click("#shortcut-json:has-text('place')")
    assert page.input_value("#json-name") == "place"
    assert '"city"' in page.inner_text(EDITOR)
    page.click(".dialog >> text=Save")
    page.click("[aria-label='Answers in free text']")
    page.click("#shortcut-json")
    assert '"city"' in page.inner_text(EDITOR)


def test_a_call_of_a_tool_is_answered_by_hand_in_eight_steps(scripted: ScriptedPage, page) -> None:
    page.click("#shortcut-tools")
    scripted.wait_for(lambda: page.evaluate("document.activeElement.id") == "import-text")
    page.keyboard.insert_text(PYTHON)
    page.check("#import-forced")
    page.click(".dialog >> text=Add tools")
    scripted.wait_for(lambda: page.evaluate("document.activeElement.id") == "composer-text")
    page.keyboard.type("Where is it warm?")
    page.keyboard.press("Enter")
    start = scripted.next("start")
    assert start["request"]["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}
    assert [tool["function"]["name"] for tool in start["request"]["tools"]] == ["get_weather"]
    call = {"index": 0, "id": "one", "name": "get_weather", "arguments": '{"city":"Rome"}'}
    scripted.say(start["id"], "", tool_calls=[call])
    scripted.end(start["id"])
    scripted.wait_idle()
    page.fill("#result-one", "25 degrees")
    page.click("#send-results")
    assert scripted.answer("In Rome.")["messages"][-1]["content"] == "25 degrees"
    assert page.inner_text("#shortcut-tools") == "one tool"


def test_tools_end_with_a_click_and_are_offered_again_with_another(scripted: ScriptedPage, page) -> None:
    page.click("#shortcut-tools")
    page.fill("#import-text", f"{PYTHON}\n{PYTHON.replace('weather', 'tides')}")
    page.check("#import-forced")
    page.click(".dialog >> text=Add tools")
    assert scripted.turn("Hello", "Hi")["tool_choice"] == "required"
    page.click("[aria-label='Offer no tools']")
    request = scripted.turn("Hello", "Hi")
    assert "tools" not in request
    assert "tool_choice" not in request
    page.click("#shortcut-tools")
    page.click("text=Offer the 2 tools that are off")
    request = scripted.turn("Hello", "Hi")
    assert [tool["function"]["name"] for tool in request["tools"]] == ["get_weather", "get_tides"]
    assert "tool_choice" not in request
    page.click("#shortcut-tools:has-text('2 tools')")
    page.wait_for_selector(".panel [aria-label='Remove get_tides']")


def test_the_short_ways_are_in_the_palette_and_have_keys(scripted: ScriptedPage, page) -> None:
    page.keyboard.press("Control+k")
    page.fill(".palette-filter", "json, by")
    page.keyboard.press("Enter")
    page.wait_for_selector(EDITOR)
    page.keyboard.press("Escape")
    page.wait_for_selector(".dialog", state="detached")
    page.focus("#panel-toggle")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("#import-text")


def test_the_short_ways_are_accessible_and_take_one_line(walk: Walk) -> None:
    walk.sign_in()
    page = walk.page
    walk.look("short ways", "#shortcut-tools")
    page.click("#shortcut-json")
    walk.look("answers as JSON", EDITOR)
    page.click(".dialog >> text=Save")
    page.click("#shortcut-tools")
    page.fill("#import-text", PYTHON)
    walk.look("import of tools", "#import-forced")
    page.click(".dialog >> text=Add tools")
    page.fill("#composer-text", "Where is it warm?")
    walk.look("short ways in use", "#shortcut-tools:has-text('one tool')")
    tops = "[...document.querySelectorAll('.shortcut > button')].map((node) => node.getBoundingClientRect().top)"
    assert len(set(page.evaluate(tops))) == 1
    assert page.evaluate(
        "document.querySelector('.shortcuts').scrollWidth <= document.querySelector('.shortcuts').clientWidth"
    )
    page.click("[aria-label='Offer no tools']")
    page.click("#shortcut-tools")
    walk.look("import with tools that are off", "#import-offer")
    assert walk.findings == []
