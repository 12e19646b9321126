"""What screen readers are told of an answer while it is written: whole sentences, at intervals, and its end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.compared import asked, compare
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

# Does each step at its time, by a clock of its own, and returns what was said when.
# "end": an answer ends, with a word on it.
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
        else if (act === 'feed') speaker.feed(value);
        else speaker.finish(), speaker.say(value);
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
    said = said_by(page, (0, "feed", "One. "), (100, "feed", "Two"), (300, "end", "Finished, 3 tokens."))
    assert said == [[0, "One."], [2000, "Two Finished, 3 tokens."]]
    assert said_by(page, (0, "feed", "No end"), (50, "end", "")) == [[50, "No end"]]


def test_the_same_words_are_said_again_for_the_next_answer(page: Any) -> None:
    said = said_by(page, (0, "end", "Finished, 3 tokens."), (5000, "end", "Finished, 3 tokens."))
    assert said == [[0, "Finished, 3 tokens."], [5000, "Finished, 3 tokens."]]


def test_nothing_is_said_once_it_is_switched_off(page: Any) -> None:
    said = said_by(
        page,
        (0, "feed", "One. "),
        (100, "feed", "Two. Thr"),
        (200, "isOn", False),
        (300, "feed", "ee. "),
        (400, "end", "Finished, 3 tokens."),
        (5000, "isOn", True),
        (5100, "feed", "Four. "),
    )
    assert said == [[0, "One."], [5100, "Four."]]


def listen(page: Any) -> None:
    """Keep what the live region says from now on."""
    page.evaluate(
        """() => {
            const region = document.getElementById("announcer");
            window.said = [];
            new MutationObserver(() => region.textContent && window.said.push(region.textContent)).observe(region, {
                childList: true, characterData: true, subtree: true });
        }"""
    )


def wait_said(scripted: ScriptedPage, *texts: str) -> None:
    """Wait until these were said, and nothing else."""
    scripted.wait_for(lambda: " ".join(scripted.page.evaluate("window.said")).endswith(texts[-1]))
    assert " ".join(scripted.page.evaluate("window.said")) == " ".join(texts)


def test_the_page_says_the_end_of_an_answer_in_its_live_region_alone(scripted: ScriptedPage, page: Any) -> None:
    listen(page)
    scripted.turn("hello", "The sea sings")
    wait_said(scripted, "The sea sings Finished, 5 tokens.")
    assert page.get_attribute("#announcer", "aria-live") == "polite"
    assert page.locator("#messages [aria-live]").count() == 0


def test_a_sentence_of_another_chat_is_not_said_before_the_next_answer(scripted: ScriptedPage, page: Any) -> None:
    """The half sentence of a chat that was left began the first one of the next chat."""
    listen(page)
    scripted.ask("hello")
    scripted.say(scripted.next("start")["id"], "The sea")
    page.wait_for_selector("#messages .message-body:has-text('The sea')")
    page.keyboard.press("Control+k")
    page.wait_for_selector(".palette-filter:focus")
    page.keyboard.type("New chat")
    page.keyboard.press("Enter")
    page.wait_for_selector("#messages > li", state="detached")
    scripted.turn("and now?", "A fox runs.")
    wait_said(scripted, "A fox runs. Finished, 5 tokens.")


def test_each_end_of_compared_answers_is_said_once_by_the_name_of_its_pane(scripted: ScriptedPage) -> None:
    """That of the pane with the focus was said twice, those of others in the middle of its sentence."""
    page = compare(scripted)
    listen(page)
    first, second = asked(scripted, "hello")
    scripted.say(first["id"], "The sea")
    scripted.say(second["id"], "Nothing of this is said.")
    scripted.end(second["id"], num_tokens=7)
    scripted.say(first["id"], " sings. And")
    scripted.end(first["id"], num_tokens=1)
    wait_said(scripted, "Pane 2: finished, 7 tokens.", "The sea sings.", "And", "Pane 1: finished, one token.")
