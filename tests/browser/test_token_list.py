"""Long answers by their tokens: the page holds those that are near, and keys lead to all."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.test_insight import token

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ANSWER = MESSAGE.format(2)
CHIPS = f"{ANSWER} button.token"
WHOLE = 2000
MOST = 3000
IS_SEEN = """(({ left, right, top, bottom }) =>
    document.elementFromPoint((left + right) / 2, (top + bottom) / 2) === document.activeElement
)(document.activeElement.getBoundingClientRect())"""
SURPRISES = (17, 3100, 5990)


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return scripted.sign_in()


def say_tokens(scripted: ScriptedPage, run: str, first: int, end: int) -> None:
    """Say tokens, a hundred in each message; every 300th ends a line."""
    for start in range(first, end, 100):
        numbers = range(start, min(start + 100, end))
        texts = [f" w{number}" + ("\n" if number % 300 == 299 else "") for number in numbers]
        shares = [0.02 if number in SURPRISES else 0.95 for number in numbers]
        tokens = [token(text, share) for text, share in zip(texts, shares, strict=True)]
        scripted.say(run, "".join(texts), logprobs=tokens)


def show_tokens(scripted: ScriptedPage, num: int) -> Any:
    """Have an answer of so many tokens said, and show it by them."""
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    say_tokens(scripted, run, 0, num)
    scripted.end(run, num_tokens=num)
    scripted.wait_idle()
    scripted.page.click(f"{ANSWER} [aria-label=Tokens]")
    scripted.page.wait_for_selector(f"{CHIPS}[data-at='0']")
    return scripted.page


def focused(page: Any) -> int:
    return int(page.evaluate("document.activeElement.dataset.at ?? -1"))


def press(scripted: ScriptedPage, key: str) -> int:
    """Press a key; return the token that then has the focus, which must stay in sight while others are drawn.

    The card of facts lay over it when lines were walked down.
    """
    page = scripted.page
    page.keyboard.press(key)
    at = focused(page)
    scripted.wait_painted()
    assert page.evaluate(IS_SEEN)
    assert page.locator(CHIPS).count() < MOST
    return at


def test_up_to_two_thousand_tokens_are_all_in_the_page(scripted: ScriptedPage, page) -> None:
    show_tokens(scripted, WHOLE)
    assert page.locator(CHIPS).count() == WHOLE


def test_keys_lead_to_tokens_that_are_not_drawn(scripted: ScriptedPage, page) -> None:
    """All tokens of an answer were in the page, however many."""
    show_tokens(scripted, 6000)
    assert page.locator(CHIPS).count() < MOST
    page.locator(f"{CHIPS}[data-at='0']").focus()
    assert press(scripted, "End") == 5999
    assert [press(scripted, "n") for _ in range(4)] == [*SURPRISES, SURPRISES[0]]
    assert "token 18 of 6,000" in page.inner_text(f"{ANSWER} .token-card")
    assert press(scripted, "End") == 5999
    assert [press(scripted, key) for key in ("ArrowRight", "ArrowLeft", "ArrowLeft")] == [5999, 5998, 5997]
    assert press(scripted, "Home") == 0
    page.click(f"{ANSWER} .token-strip", position={"x": 300, "y": 16})
    assert 1000 < focused(page) < 5000
    page.click(f"{ANSWER} [data-next-surprise]")
    assert focused(page) in SURPRISES


def test_keys_win_over_a_mouse_that_rests(scripted: ScriptedPage, page) -> None:
    """The card stayed at the token under the mouse, also where tokens had moved beneath it."""
    show_tokens(scripted, 4000)
    page.locator(f"{CHIPS}[data-at='3']").hover()
    assert "token 4 of 4,000" in page.inner_text(f"{ANSWER} .token-card")
    page.locator(f"{CHIPS}[data-at='0']").focus()
    for key, number in (("ArrowRight", 2), ("n", SURPRISES[0] + 1), ("n", SURPRISES[1] + 1)):
        assert press(scripted, key) == number - 1
        assert f"token {number:,} of 4,000" in page.inner_text(f"{ANSWER} .token-card")
    page.mouse.move(0, 0)
    page.locator(f"{CHIPS}[data-at='{SURPRISES[1] - 1}']").hover()
    assert f"token {SURPRISES[1]:,} of 4,000" in page.inner_text(f"{ANSWER} .token-card")


def test_lines_are_walked_through_parts_that_were_not_drawn(scripted: ScriptedPage, page) -> None:
    show_tokens(scripted, 4000)
    page.locator(f"{CHIPS}[data-at='400']").focus()
    down = [press(scripted, "ArrowDown") for _ in range(60)]
    assert down == sorted({*down})
    assert down[-1] > 800  # more than the parts that are drawn around the first token
    up = [press(scripted, "ArrowUp") for _ in range(60)]
    assert up == sorted({*up}, reverse=True)
    assert up[-1] < 430


def test_what_is_scrolled_into_sight_is_drawn_and_the_focus_stays(scripted: ScriptedPage, page) -> None:
    show_tokens(scripted, 6000)
    page.locator(f"{CHIPS}[data-at='0']").focus()
    middle = "document.elementFromPoint(640, 300)?.closest('[data-at]')?.dataset.at"
    for share in (0.3, 0.7, 0.5):
        page.evaluate(
            "(share) => { const area = document.querySelector('#conversation');"
            " area.scrollTop = share * area.scrollHeight; }",
            share,
        )
        scripted.wait_for(lambda: int(page.evaluate(middle) or 0) > 600)
        assert page.locator(CHIPS).count() < MOST
        assert focused(page) == 0
    assert press(scripted, "ArrowRight") == 1


def test_a_click_on_a_token_moves_nothing(scripted: ScriptedPage, page) -> None:
    show_tokens(scripted, 4000)
    page.evaluate("document.querySelector('#conversation').scrollTop = 2000")
    scripted.wait_painted()
    before = page.evaluate("document.querySelector('#conversation').scrollTop")
    low = page.evaluate("document.elementFromPoint(640, 420).closest('[data-at]').dataset.at")
    page.mouse.click(640, 420)
    scripted.wait_painted()
    assert focused(page) == int(low)
    assert page.evaluate("document.querySelector('#conversation').scrollTop") == before


def test_a_running_answer_that_becomes_long_is_drawn_where_it_is_read(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "yes")
    page.click(f"{ANSWER} .menu summary")
    page.click(f"{ANSWER} .menu-act:has-text('Token view')")
    page.click("text=Regenerate with tokens")
    run = scripted.next("start")["id"]
    say_tokens(scripted, run, 0, 1900)
    scripted.wait_for(lambda: page.locator(CHIPS).count() == 1900)
    say_tokens(scripted, run, 1900, 6000)
    last = page.locator(f"{CHIPS}[data-at='5999']")
    last.wait_for()
    scripted.wait_for(lambda: page.locator(CHIPS).count() < MOST)
    scripted.end(run, num_tokens=6000)
    scripted.wait_idle()
    assert last.is_visible()
