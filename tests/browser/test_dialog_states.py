"""Dialogs, the palette, the keys and comparisons: each as accessible as the page itself (test_page_states.py)."""

from __future__ import annotations

import pytest

from tests.browser.scripted import ScriptedPage
from tests.browser.test_tools import WEATHER
from tests.browser.walk import Walk

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PYTHON = "def get_weather(city: str, at: Point) -> str: ..."


def test_tools_and_the_form_of_answers_are_accessible(walk: Walk) -> None:
    walk.sign_in(parameters={"tools": [WEATHER]})
    page = walk.page
    walk.look("tool", "#tool-name", "#panel-toggle", ".panel [role=tab]:has-text('Tools')", "#tool-add")
    walk.peek("tool as JSON", ".dialog .cm-content[aria-label='Tool as JSON']", ".dialog [role=tab]:has-text('JSON')")
    page.click("#tool-import")
    page.fill("#import-text", PYTHON)
    walk.peek("import of tools", ".dialog .problem")
    page.click(".panel [role=tab]:has-text('Output')")
    for mode in ("choice", "regex", "grammar"):
        page.select_option("#output-mode", mode)
        walk.look(mode, f"#output-{mode}")
    page.fill("#output-sample", "yes")
    walk.look("a sample", ".verdict")
    page.select_option("#output-mode", "schema")
    walk.look("schema", ".dialog .cm-content[aria-label='Schema as JSON']", "#schema-edit")
    walk.look("schema from JSON", "#schema-sample", ".dialog [role=tab]:has-text('From JSON')")
    assert walk.findings == []


def test_the_palette_and_the_keys_are_accessible(walk: Walk) -> None:
    walk.sign_in()
    page = walk.page
    page.keyboard.press("Control+k")
    walk.look("palette", ".palette-item")
    page.keyboard.type("nothing is called this")
    walk.peek("nothing found", ".palette-none:has-text('Nothing')")
    page.keyboard.press("Control+/")
    walk.look("keys", ".keys")
    walk.look("keys that are chosen", "[data-act-keys=new-chat][aria-pressed=true]", "[data-act-keys=new-chat]")
    page.keyboard.press("Control+t")
    walk.look("keys that are refused", ".keys .problem:has-text('browser')")
    assert walk.findings == []


def answer_both(scripted: ScriptedPage) -> None:
    runs = [scripted.next("start")["id"] for _ in range(2)]
    for run, text in zip(runs, ("A **red** fox", "A *blue* fox"), strict=True):
        scripted.say(run, text)
    for run in runs:
        scripted.end(run)
    scripted.wait_idle()


def test_a_comparison_is_accessible(walk: Walk, size: str) -> None:
    walk.sign_in()
    page, scripted = walk.page, walk.scripted
    opener = [".account summary", ".account >> text=Compare"] if size == "phone" else ["header [aria-label=Compare]"]
    walk.look("empty panes", "#pane-1", *opener)
    page.fill("#composer-text", "A fox?")
    page.press("#composer-text", "Control+Enter")
    answer_both(scripted)
    walk.look("answered panes", "#pane-1 [data-vote]")
    pane_settings = "#pane-1 .pane-settings > summary"
    walk.look("settings of a pane", "#pane-1 [name=parameters]", pane_settings, "#pane-1 .pane-more > summary")
    page.click(pane_settings)
    walk.peek("acts of a pane", "#pane-1 .pane-head .menu-box", "#pane-1 .pane-head .menu summary")
    walk.peek("differences", ".differences del", "#differences")
    walk.look("names hidden", ".compare.is-blind", "#blind")
    page.locator("[data-vote]:visible").first.click()
    walk.look("vote", "#vote-note")
    page.keyboard.press("Enter")
    page.wait_for_selector("#vote-note", state="hidden")
    walk.look("votes", ".votes-table", "#votes")
    assert walk.findings == []
