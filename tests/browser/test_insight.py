"""What an answer cost and why it was slow; the context before sending; an answer by its tokens; a request as code."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.stub_routes import code_route, render_route, rendered

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ANSWER = MESSAGE.format(2)
USAGE = {
    "prompt_tokens": 1204,
    "cached_tokens": 1024,
    "completion_tokens": 212,
    "reasoning_tokens": 40,
    "accepted_prediction_tokens": 30,
    "rejected_prediction_tokens": 10,
}
TIMINGS = {"queue_s": 3.1, "prompt_s": 0.4, "first_token_s": 3.5, "total_s": 5.5, "tokens_per_s": 105.5}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def page(scripted: ScriptedPage):
    return scripted.sign_in()


def end(scripted: ScriptedPage, run: str, **more: Any) -> None:
    scripted.tell(
        {
            "type": "completed",
            "id": run,
            "outcome": "finished",
            "choices": [{"finish_reason": "stop", "tokens": 212, "stop": None}],
            "usage": USAGE,
            "timings": TIMINGS,
            "cost": {"amount": "0.000321", "currency": "EUR"},
            "attempts": 1,
            "seed": 42,
            "request_id": "0123abcd",
            "log_url": "/admin/chat/requestlog/1/change/",
        }
        | more
    )
    scripted.page.wait_for_selector("#send:visible")
    scripted.wait_painted()


def reload(scripted: ScriptedPage) -> None:
    """Open the page again once the server has all that was said."""
    is_saved = "!Object.keys(sessionStorage).some((key) => key.includes('outbox'))"
    scripted.wait_for(lambda: scripted.page.evaluate(is_saved))
    scripted.page.reload()
    scripted.wait_ready()
    scripted.page.wait_for_selector(ANSWER)


def token(text: str, share: float, others: tuple[tuple[str, float], ...] = (), spelled: bytes | None = None) -> dict:
    def fact(word: str, p: float, rank: int, raw: bytes | None = None) -> dict[str, Any]:
        spelling = list(word.encode() if raw is None else raw)
        return {"token": word, "id": sum(spelling), "logprob": math.log(p), "bytes": spelling, "rank": rank}

    facts = sorted([(text, share, spelled), *((word, p, None) for word, p in others)], key=lambda each: -each[1])
    top = [fact(word, p, rank, raw) for rank, (word, p, raw) in enumerate(facts, 1)]
    return {**next(each for each in top if each["token"] == text), "top": top}


STORY = [
    token("The", 0.95, (("A", 0.04),)),
    token(" sea", 0.7, ((" sky", 0.2),)),
    token(" sings", 0.05, ((" is", 0.6), ("<|im_end|>", 0.1))),
    token(".\n", 0.97),
    token(HOSTILE, 0.02, (("</code><script>alert(1)</script>", 0.5),)),
]


def said_with_tokens(scripted: ScriptedPage, tokens: list[dict]) -> Any:
    """Have an answer said with its tokens, shown by them."""
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    for each in tokens:
        scripted.say(run, each["token"], logprobs=[each])
    end(scripted, run)
    scripted.page.click(f"{ANSWER} [aria-label=Tokens]")
    return scripted.page.locator(f"{ANSWER} .token-view")


def test_each_answer_tells_its_tokens_times_cost_and_end(scripted: ScriptedPage, page) -> None:
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.tell({"type": "admitted", "id": run, "prompt_tokens": 1204, "model": "plain", "max_tokens": 9, "seed": 42})
    page.wait_for_selector(f"{ANSWER} .message-counters:has-text('~')")
    assert "1,204 in the prompt" in page.inner_text(f"{ANSWER} .message-counters")
    scripted.say(run, "cut sho")
    end(scripted, run, choices=[{"finish_reason": "length", "tokens": 212, "stop": None}])
    line = page.inner_text(f"{ANSWER} .message-counters")
    for fact in ("212 tokens, 40 of them thinking", "1,204 in the prompt, 1,024 cached", "first after 3.50 s"):
        assert fact in line
    assert "106 tokens/s" in line
    assert "€0.000321" in line
    assert line.endswith("cut at the token limit")
    reload(scripted)
    assert page.inner_text(f"{ANSWER} .message-counters") == line


def test_the_figures_of_the_details_are_a_table(scripted: ScriptedPage, page) -> None:
    """They were laid out as the figures below panes, whose name they had: side by side, head beside body."""
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "yes")
    end(scripted, run)
    page.click(f"{ANSWER} .message-counters")
    page.wait_for_selector("dialog table")
    shown = page.evaluate("[...document.querySelectorAll('dialog table')].map((one) => getComputedStyle(one).display)")
    assert set(shown) == {"table"}


def test_details_say_why_an_answer_was_slow(scripted: ScriptedPage, page) -> None:
    bodies = render_route(page, [{"error": {"message": "The model is not loaded.", "code": "m"}}, rendered(7)])
    scripted.ask("hello")
    start = scripted.next("start")
    scripted.tell({"type": "waiting", "id": start["id"], "state": "loading", "phase": "weights", "num_before": 0})
    page.wait_for_selector("text=Loading the model")
    scripted.tell({"type": "admitted", "id": start["id"], "prompt_tokens": 3, "model": "plain", "seed": 42})
    scripted.say(start["id"], "yes")
    end(scripted, start["id"], choices=[{"finish_reason": "stop", "tokens": 1, "stop": "###"}], attempts=2)
    page.click(f"{ANSWER} .message-counters")
    dialog = page.locator("dialog")
    story = dialog.locator(".story").inner_text()
    assert story.startswith("5.50 s in all: ")
    assert "waiting for the model to load" in story
    assert "waiting for other requests" in story
    assert "0.40 s reading the prompt, 2.00 s writing 212 tokens." in story
    text = dialog.inner_text()
    for fact in (
        'the stop string "###"',
        "30 of 40 proposed tokens accepted (75 %)",
        "450 tokens/s",
        "0123abcd",
        "2: ",
    ):
        assert fact in text
    assert dialog.locator("a").get_attribute("href") == "/admin/chat/requestlog/1/change/"

    dialog.locator("summary").click()
    page.wait_for_selector("text=The model is not loaded.")
    dialog.locator("text=Try again").click()
    page.wait_for_selector("dialog pre:has-text('<|user|>hello')")
    assert bodies[0]["request"] == start["request"]

    dialog.locator("text=Repeat with this seed").click()
    again = scripted.next("start")["request"]
    assert again == start["request"] | {"seed": 42}


def test_a_message_that_is_too_long_for_the_model_is_not_sent(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "yes")
    bodies = render_route(page, [rendered(1204, 512), rendered(8000, 512), rendered(9000), rendered(1200)])
    page.fill("#composer-text", "short")
    page.wait_for_selector(".meter-text:has-text('1,204 of 8,192 tokens')")
    assert bodies[0]["request"]["messages"][-1] == {"role": "user", "content": "short"}
    page.fill("#composer-text", "longer")
    page.wait_for_selector(".meter-problem:has-text('Too long by 320 tokens')")
    assert "Lower max_tokens" in page.inner_text(".meter-problem")
    page.fill("#composer-text", "longest")
    page.wait_for_selector(".meter-problem:has-text('Too long by 809 tokens')")
    page.press("#composer-text", "Enter")
    assert page.get_attribute("#send", "aria-disabled") == "true"
    assert page.input_value("#composer-text") == "longest"
    page.fill("#composer-text", "short again")
    page.wait_for_selector(".meter-text:has-text('1,200 of 8,192 tokens')")
    page.press("#composer-text", "Enter")
    assert scripted.next("start")["request"]["messages"][-1]["content"] == "short again"


def test_tokens_are_walked_by_keyboard_and_hostile_ones_do_nothing(scripted: ScriptedPage, page) -> None:
    tokens = [*STORY, token("�", 0.9, spelled=b"\xf0\x9f"), token("\u202eevil", 0.9)]
    view = said_with_tokens(scripted, tokens)
    chips = view.locator("button.token")
    chips.first.wait_for()
    texts = ["The", "·sea", "·sings", ".⏎", HOSTILE.replace(" ", "·"), r"\xF0\x9F", "‹U+202E›evil"]
    scripted.wait_for(lambda: chips.all_inner_texts() == texts)
    chips.first.focus()
    page.keyboard.press("ArrowRight")
    assert "70 %" in view.locator(".token-card").inner_text()
    page.keyboard.press("n")
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "·sings"
    card = view.locator(".token-card").inner_text()
    for fact in ("rank 3", "5 %", "20 73 69 6e 67 73", "60 %"):
        assert fact in card
    page.keyboard.press("n")
    assert page.evaluate(focused) == HOSTILE.replace(" ", "·")
    page.keyboard.press("Home")
    assert page.evaluate(focused) == "The"
    assert page.locator(f"{ANSWER} :is(img, script)").count() == 0


def test_tokens_have_numbers_unless_the_reader_wants_none(scripted: ScriptedPage, page) -> None:
    view = said_with_tokens(scripted, STORY)
    shown = "(chip) => getComputedStyle(chip, '::after').content"
    chip = view.locator("button.token").first
    assert "95 %" in chip.evaluate(shown)
    view.locator("label:has-text('Numbers') input").uncheck()
    assert chip.evaluate(shown) == "none"
    view.locator("label:has-text('Numbers') input").check()
    assert "95 %" in chip.evaluate(shown)


def test_the_strip_shows_entropy_where_alternatives_are_known_else_surprise(scripted: ScriptedPage, page) -> None:
    tokens = [token("a", 0.02, (("b", 0.98),)), token("c", 0.5, (("d", 0.25), ("e", 0.25))), token("f", 0.9)]
    view = said_with_tokens(scripted, tokens)
    bars = "(path) => [...path.getAttribute('d').matchAll(/V([\\d.]+)/g)].map((found) => 24 - Number(found[1]))"
    assert "Entropy" in view.locator(".token-strip title").text_content()
    undecided = view.locator(".strip-bars").evaluate(bars)
    assert undecided[1] > undecided[0] > undecided[2]
    view.locator("button.token").nth(1).focus()
    assert "entropy at least 1.5 bits" in view.locator(".token-card").inner_text()
    page.click(f"{ANSWER} [aria-label=Regenerate]")
    run = scripted.next("start")["id"]
    for share in (0.02, 0.9):
        scripted.say(run, "x", logprobs=[token("x", share) | {"top": []}])
    end(scripted, run)
    page.click(f"{ANSWER} [aria-label=Tokens]")
    page.wait_for_selector(f"{ANSWER} button.token")
    assert "Surprise" in view.locator(".token-strip title").text_content()
    surprising = view.locator(".strip-bars").evaluate(bars)
    assert surprising[0] > surprising[1]


def test_the_tokens_of_a_prompt_are_shown_beside_those_of_its_answer(scripted: ScriptedPage, page) -> None:
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "The", logprobs=[STORY[0]])
    end(scripted, run, prompt_logprobs=[None, token("hel", 0.3, (("good", 0.5),)), token("lo", 0.05)])
    page.click(f"{ANSWER} [aria-label=Tokens]")
    view = page.locator(f"{ANSWER} .token-view")
    view.locator("[role=tab]:has-text('Prompt')").click()
    assert view.locator("button.token").all_inner_texts() == ["hel", "lo"]
    view.locator("button.token").first.focus()
    assert "50 %" in view.locator(".token-card").inner_text()
    assert view.locator(".token-go button, button.token-go").count() == 0  # no answer goes on from a prompt's token
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.textContent") == "lo"
    view.locator("[role=tab]:has-text('Answer')").click()
    assert view.locator("button.token").all_inner_texts() == ["The"]


FREEZE = "(now) => void (Date.now = () => now)"


def test_reasoning_has_its_own_time_and_tokens_also_while_it_runs(scripted: ScriptedPage, page) -> None:
    summary = f"{ANSWER} .thoughts summary"
    page.evaluate(FREEZE, 1_000_000)
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "", reasoning="First this. ")
    page.wait_for_selector(f"{summary}:has-text('Thinking · ~ 3 tokens · 0.0 s')")
    page.evaluate(FREEZE, 1_002_500)
    scripted.say(run, "", reasoning="Then that.")
    page.wait_for_selector(f"{summary}:has-text('Thinking · ~ 6 tokens · 2.5 s')")
    # Told again after a reload, it takes no more time.
    reload(scripted)
    scripted.next("attach")
    scripted.say(run, "", reasoning="First this. Then that.")
    scripted.say(run, "Yes.")
    end(scripted, run)
    assert page.inner_text(summary) == "Reasoning · 40 tokens · 2.5 s"
    reload(scripted)
    assert page.inner_text(summary) == "Reasoning · 40 tokens · 2.5 s"


def test_an_alternative_continues_from_the_text_before_it_beside_the_answer(scripted: ScriptedPage, page) -> None:
    view = said_with_tokens(scripted, STORY)
    view.locator("button.token").nth(2).click()
    page.mouse.move(0, 0)  # what lies under the pointer is shown instead
    assert "ends or controls" in view.locator(".token-card").inner_text()
    view.locator("[aria-label='Continue from this alternative: ·is']").click()
    start = scripted.next("start")
    assert start["request"]["messages"] == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "The sea is"},
    ]
    assert (start["request"]["continue_final_message"], start["request"]["logprobs"]) == (True, True)
    scripted.say(start["id"], "The sea is")
    scripted.say(start["id"], " calm", logprobs=[token(" calm", 0.4, ((" wide", 0.3),))])
    end(scripted, start["id"])
    assert page.inner_text(f"{ANSWER} .siblings") == "2/2"
    # The branch is shown by its tokens too, and goes on from its own text.
    page.click(f"{ANSWER} [aria-label='Continue from this alternative: ·wide']")
    assert scripted.next("start")["request"]["messages"][-1]["content"] == "The sea is wide"


def test_tokens_are_asked_for_where_there_are_none(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "yes")
    page.click(f"{ANSWER} .menu summary")
    page.click(f"{ANSWER} .menu-act:has-text('Token view')")
    page.wait_for_selector("text=Tokens were not asked for.")
    page.click("text=Regenerate with tokens")
    start = scripted.next("start")
    assert (start["request"]["logprobs"], start["request"]["top_logprobs"]) == (True, 5)
    scripted.say(start["id"], "The", logprobs=[STORY[0]])
    page.wait_for_selector(f"{ANSWER} button.token")


def test_tokens_too_large_to_be_kept_leave_a_word_and_the_answer(scripted: ScriptedPage, page) -> None:
    many = [token(f" word{n}", 0.5, tuple((f"other{n}-{k}", 0.01) for k in range(20))) for n in range(400)]
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "".join(each["token"] for each in many), logprobs=many)
    end(scripted, run)
    assert page.locator(f"{ANSWER} [aria-label=Tokens]").count() == 1
    reload(scripted)
    assert "word399" in scripted.texts()[1]
    page.click(f"{ANSWER} .menu summary")
    page.click(f"{ANSWER} .menu-act:has-text('Token view')")
    page.wait_for_selector("text=The probabilities of 400 tokens were too large to be kept")


def test_view_code_has_the_very_request_of_an_answer_and_of_the_draft(scripted: ScriptedPage, page) -> None:
    bodies = code_route(page)
    request = scripted.turn(HOSTILE, "the answer")
    scripted.turn("more", "yes")
    page.click(f"{ANSWER} .menu summary")
    page.click(f"{ANSWER} .menu-act:has-text('View code')")
    page.wait_for_selector("dialog .snippet code span")
    assert [body["request"] for body in bodies] == [request, request]
    assert sorted(body.get("answer", "") for body in bodies) == ["", "the answer"]
    assert page.locator("dialog [role=tab]").all_inner_texts() == ["curl", "Python (openai)", "JSON"]
    assert page.inner_text("dialog .snippet") == json.dumps(request)
    assert page.locator("dialog .snippet img").count() == 0
    page.check("dialog >> text=Stream the answer")
    page.wait_for_selector("dialog .snippet:has-text('stream')")
    page.keyboard.press("Escape")

    bodies.clear()
    page.fill("#composer-text", "the draft")
    page.click("[aria-label='View code']:visible")
    page.wait_for_selector("dialog .snippet")
    messages = bodies[0]["request"]["messages"]
    assert [message["content"] for message in messages] == [HOSTILE, "the answer", "more", "yes", "the draft"]
    page.keyboard.press("Escape")
    sent = scripted.turn("the draft", "done")
    assert sent == bodies[0]["request"]
