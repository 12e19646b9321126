"""Expressions and grammars in the panel: what is wrong is said as it is typed, and texts are tried before answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.test_tools import with_state

pytestmark = [pytest.mark.browser, pytest.mark.slow]

EDITOR = ".output-editor"
UNDEFINED = "'root' of the grammar uses 'size', which is not defined"
SIZE = 'root ::= [0-9]+ ("px" | "em")'
LARK = 'start: "é" unit+\nunit: "px" | "em"'
PATTERNS = [
    ("regex", "[0-9]+(px|em", "at position 6", "[0-9]+(px|em)", "12em", "12"),
    ("grammar", "root ::= size", UNDEFINED, SIZE, "12em", "12pt"),
    ("grammar", "start: [0-9", "'0-9' in line 1 is not understood", LARK, "épxem", "épx\tem"),
]
MISMATCHES = {
    "12": "It does not match: more must follow.",
    "12pt": 'It does not match from character 4 on: "t"',
    "épx\tem": r'It does not match from character 4 on: "\tem"',
}


def verdict(scripted: ScriptedPage, expected: str) -> None:
    """Wait for what the box says of the sample."""
    shown = scripted.page.locator(f"{EDITOR} .verdict")
    scripted.wait_for(lambda: shown.all_inner_texts() == [expected])


@pytest.mark.parametrize(("kind", "broken", "problem", "whole", "right", "wrong"), PATTERNS)
def test_a_pattern_is_checked_as_it_is_typed_and_tried_on_a_text(
    scripted: ScriptedPage, kind: str, broken: str, problem: str, whole: str, right: str, wrong: str
) -> None:
    with_state(scripted, {}, tab="Output")
    page: Any = scripted.page
    page.select_option("#output-mode", kind)
    page.fill(f"#output-{kind}", broken)
    page.fill("#output-sample", right)
    page.wait_for_selector(f'{EDITOR} .problem:has-text("{problem}")')
    assert page.locator(f"{EDITOR} .verdict").count() == 0  # nothing matches what is no pattern
    page.fill(f"#output-{kind}", whole)
    verdict(scripted, "It matches.")
    assert page.locator(f"{EDITOR} .problem").count() == 0
    page.fill("#output-sample", wrong)
    verdict(scripted, MISMATCHES[wrong])
    assert page.locator(f"{EDITOR} .verdict.is-wrong").count() == 1
    page.fill("#output-sample", "")
    page.wait_for_selector(f"{EDITOR} .verdict", state="detached")
    page.fill(f"#output-{kind}", "")
    page.wait_for_selector(f"{EDITOR} .problem:has-text('This must not be empty.')")


@pytest.mark.parametrize(("kind", "whole", "right", "wrong"), [(row[0], *row[3:]) for row in PATTERNS])
def test_a_pattern_is_sent_as_it_is_typed_and_answers_are_held_to_it(
    scripted: ScriptedPage, kind: str, whole: str, right: str, wrong: str
) -> None:
    with_state(scripted, {}, tab="Output")
    page: Any = scripted.page
    page.select_option("#output-mode", kind)
    page.fill(f"#output-{kind}", whole)
    assert scripted.turn("How wide?", right)["structured_outputs"] == {kind: whole}
    page.wait_for_selector(f"{MESSAGE.format(2)} .verdict:not(.is-wrong):has-text('Matches what was asked for')")
    scripted.turn("How high?", wrong)
    page.wait_for_selector(f"{MESSAGE.format(4)} .verdict.is-wrong")
    assert page.inner_text(f"{MESSAGE.format(4)} .verdict") == MISMATCHES[wrong]
    page.select_option("#output-mode", "off")
    assert "structured_outputs" not in scripted.turn("And now?", wrong)
    assert page.locator(f"{MESSAGE.format(6)} .verdict").count() == 0
    page.select_option("#output-mode", kind)  # what was typed is still known
    assert page.input_value(f"#output-{kind}") == whole
