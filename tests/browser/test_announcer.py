"""What screen readers are told of an answer while it is written: whole sentences, at intervals, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Does each step at its time, by a clock of its own, and returns what was said when.
TELL = """async (steps) => {
    const { Speaker } = await import('/static/chat/playground/app/core/speaker.js');
    let now = 0;
    const due = [];
    const said = [];
    const speaker = new Speaker((act, ms) => due.push([now + ms, act]));
    speaker.text.subscribe((text) => text && said.push([now, text]));
    for (const [time, act, value] of [...steps, [1e9, 'isOn', true]]) {
        while (due.length && due[0][0] <= time) {
            const [at, run] = due.shift();
            now = at;
            run();
        }
        now = time;
        if (act === 'isOn') speaker.isOn = value;
        else speaker[act](value);
    }
    return said;
}"""


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return scripted.sign_in()


def said_by(page: Any, *steps: tuple[int, str, Any]) -> list[list[Any]]:
    return page.evaluate(TELL, [list(step) for step in steps])


def test_whole_sentences_are_said_at_most_every_two_seconds(page: Any) -> None:
    texts = ["The sea", " sings. It", " never", " ends! And", " pi is 3.5", " or so.\n", "More"]
    steps = [(200 * number, "feed", text) for number, text in enumerate(texts)]
    assert said_by(page, *steps) == [[200, "The sea sings."], [2200, "It never ends! And pi is 3.5 or so."]]


def test_the_end_waits_for_its_turn_and_says_what_is_left(page: Any) -> None:
    """The end was said at once, into the sentence before it."""
    said = said_by(page, (0, "feed", "One. "), (100, "feed", "Two"), (300, "finish", "Finished, 3 tokens."))
    assert said == [[0, "One."], [2000, "Two Finished, 3 tokens."]]
    assert said_by(page, (0, "feed", "No end"), (50, "finish", "")) == [[50, "No end"]]


def test_the_same_words_are_said_again_for_the_next_answer(page: Any) -> None:
    said = said_by(page, (0, "finish", "Finished, 3 tokens."), (5000, "finish", "Finished, 3 tokens."))
    assert said == [[0, "Finished, 3 tokens."], [5000, "Finished, 3 tokens."]]


def test_nothing_is_said_once_it_is_switched_off(page: Any) -> None:
    said = said_by(
        page,
        (0, "feed", "One. "),
        (100, "feed", "Two. Thr"),
        (200, "isOn", False),
        (300, "feed", "ee. "),
        (400, "finish", "Finished, 3 tokens."),
        (5000, "isOn", True),
        (5100, "feed", "Four. "),
    )
    assert said == [[0, "One."], [5100, "Four."]]


def test_the_page_says_the_end_of_an_answer_in_its_live_region_alone(scripted: ScriptedPage, page: Any) -> None:
    page.evaluate(
        """() => {
            const region = document.getElementById("announcer");
            window.said = [];
            new MutationObserver(() => window.said.push(region.textContent)).observe(region, {
                childList: true, characterData: true, subtree: true });
        }"""
    )
    scripted.turn("hello", "The sea sings")
    scripted.wait_for(lambda: "The sea sings Finished, 5 tokens." in page.evaluate("window.said"))
    assert page.get_attribute("#announcer", "aria-live") == "polite"
    assert page.locator("#messages [aria-live]").count() == 0
