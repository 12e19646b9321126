"""Answers are displayed completely: lists, formulas, tables, all choices; and settings are sent as set."""

from __future__ import annotations

import pytest

from tests.browser.conftest import open_panel
from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ANSWER = MESSAGE.format(2)
TABLE = """| model | context | tok/s | GB | licence |
| --- | ---: | ---: | ---: | --- |
| SmolLM2-135M-Instruct | 8,030,261,248 | 112.5 | 0.27 | Apache-2.0 |
| Qwen2.5-Coder-1.5B<br>second line | 32,768 | 31.0 | 1.12 | Apache-2.0 |
"""


@pytest.fixture
def page(scripted: ScriptedPage):
    return scripted.sign_in()


def test_code_and_answers_are_copied_where_the_browser_has_no_clipboard_for_the_page(
    scripted: ScriptedPage, page
) -> None:
    """On plain HTTP in a LAN the button did nothing."""
    page.add_init_script("Object.defineProperty(Navigator.prototype, 'clipboard', {get: () => undefined})")
    page.reload()
    scripted.wait_ready()
    scripted.turn("hello", "Text\n\n```\ncode\n```")
    for button, copied in (
        (f"{ANSWER} .message-foot [aria-label='Copy']", "Text\n\n```\ncode\n```"),
        ("[data-code-act=copy]", "code\n"),
    ):
        page.click(button)
        page.wait_for_selector("button:has-text('Copied'), [aria-label='Copied']")
        page.fill("#composer-text", "")
        page.press("#composer-text", "Control+v")
        assert page.input_value("#composer-text") == copied


def test_task_list_checkboxes_are_shown(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "- [ ] todo\n- [x] done")
    boxes = page.locator(f"{ANSWER} li input[type=checkbox]")
    assert [boxes.nth(number).is_checked() for number in range(2)] == [False, True]
    assert [boxes.nth(number).get_attribute("aria-label") for number in range(2)] == ["To do", "Done"]
    assert boxes.nth(0).is_disabled()


def test_a_numbered_list_begins_with_its_own_number(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "3. three\n4. four")
    assert page.get_attribute(f"{ANSWER} ol", "start") == "3"


@pytest.mark.parametrize(
    ("source", "tex"),
    [
        (r"\(a^2\)", "a^2"),
        (r"\[x_1*y*z_2\]", "x_1*y*z_2"),
        (r"\(e^{-x^2}\,dx\)", r"e^{-x^2}\,dx"),
        (r"$a_1*b*c_2$", "a_1*b*c_2"),
        ("$$\n\\int_0^1 f\\,dx\n$$", "\\int_0^1 f\\,dx"),
    ],
)
def test_formulas_are_typeset(scripted: ScriptedPage, page, source: str, tex: str) -> None:
    r"""`\(a^2\)` was shown as `(a^2)`, and `\,` as a comma."""
    scripted.turn("hello", source)
    assert page.text_content(f"{ANSWER} .formula annotation").strip() == tex


@pytest.mark.parametrize("source", [r"outside \, and half open \(a_1", r"$\nosuchcommand{x}$"])
def test_what_is_no_whole_formula_stays_as_it_was_written(scripted: ScriptedPage, page, source: str) -> None:
    scripted.turn("hello", source)
    assert source in page.inner_text(f"{ANSWER} .message-body")


def test_money_is_no_formula(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "It costs $5, or $6 with *care*.")
    assert page.locator(".formula").count() == 0
    assert page.inner_text(f"{ANSWER} em") == "care"


def test_tables_scroll_on_a_phone_and_break_no_word(scripted: ScriptedPage, page) -> None:
    """Columns were squeezed to one character per line."""
    page.set_viewport_size({"width": 390, "height": 844})
    scripted.turn("hello", TABLE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    frame = page.locator(".table-frame")
    assert frame.evaluate("node => node.scrollWidth > node.clientWidth && node.tabIndex === 0")
    number = page.locator("td", has_text="8,030,261,248")
    assert (
        number.evaluate(
            "node => { const r = document.createRange(); r.selectNodeContents(node); "
            "return r.getClientRects().length; }"
        )
        == 1
    )
    assert number.evaluate("node => getComputedStyle(node).textAlign") == "right"
    assert page.locator("td br").count() == 1


def test_hostile_model_text_does_nothing(scripted: ScriptedPage, page) -> None:
    hostile = '<img src=x onerror="window.hit=1"><script>window.hit=1</script> [x](javascript:window.hit=1) ![i](http://127.0.0.1:9/x.png)'
    scripted.turn("hello", f"{hostile} \\({hostile}\\)\n\n\\[\n{hostile}\n\\]\n\n<input type=submit onclick=hit()>")
    page.reload()
    page.wait_for_selector(f"{ANSWER} .formula")
    assert page.evaluate("window.hit") is None
    assert page.locator("#messages :is(img, script, input, form)").count() == 0
    assert page.locator("#messages a[href^='javascript']").count() == 0


def test_with_less_motion_a_running_answer_has_words_in_the_place_of_its_caret(scripted: ScriptedPage, page) -> None:
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "one")
    page.wait_for_selector(f"{ANSWER} .caret:visible")
    assert not page.is_visible(f"{ANSWER} .still-writing")
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_selector(f"{ANSWER} .still-writing:visible")
    assert not page.is_visible(f"{ANSWER} .caret")
    assert page.evaluate("document.getAnimations().length") == 0
    scripted.end(run)
    page.wait_for_selector(".still-writing", state="detached")


def test_reasoning_is_collapsed_and_calls_are_shown_as_plain_text(scripted: ScriptedPage, page) -> None:
    hostile = "<img src=x onerror=window.hit=1>"
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "", reasoning=hostile)
    page.wait_for_selector(".thoughts-text:visible")
    scripted.say(run, "", tool_calls=[{"index": 0, "id": "c", "name": "look", "arguments": '{"where":"' + hostile}])
    page.wait_for_selector(".thoughts-text", state="hidden")
    scripted.say(run, "", tool_calls=[{"index": 0, "id": None, "name": None, "arguments": '"}'}])
    scripted.end(run)
    scripted.wait_idle()
    page.click(".thoughts summary")
    assert page.inner_text(".thoughts-text") == hostile
    assert page.inner_text(".call-name") == "look"
    assert page.inner_text(".call pre") == '{\n  "where": "' + hostile + '"\n}'
    assert page.evaluate("window.hit") is None


def test_every_choice_is_shown_kept_and_counted(scripted: ScriptedPage, page) -> None:
    """Only the first of three generated answers was shown."""
    scripted.set_fields(n=3)
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    for number in (1, 0, 2):
        scripted.say(run, f"answer {number}", choice=number)
    scripted.end(run, num_choices=3, num_tokens=180)
    page.click("button:has-text('Answer 3')")
    page.wait_for_selector(f"{ANSWER} .block:has-text('answer 2')")
    page.wait_for_selector(f"{ANSWER} .message-foot:has-text('180 tokens in 3 answers, 60 in this one')")
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector(f"{ANSWER} .block:has-text('answer 2')")
    for number in (1, 2, 3):
        page.click(f"button:has-text('Answer {number}')")
        page.wait_for_selector(f"{ANSWER} .block:has-text('answer {number - 1}')")
    assert [message["content"] for message in scripted.turn("and now?", "so")["messages"]] == [
        "hello",
        "answer 2",
        "and now?",
    ]


def test_a_reload_ends_at_the_newest_message_and_the_way_back_is_shown(scripted: ScriptedPage, page) -> None:
    """A long chat was shown from its middle, without a way down."""
    for number in range(6):
        scripted.turn(f"question {number}", "A paragraph of some length.\n\n" * 60)
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector(MESSAGE.format(12))
    assert len(scripted.texts()) == 12
    at_end = (
        "() => { const c = document.getElementById('conversation'); "
        "return c.scrollHeight - c.scrollTop - c.clientHeight < 40; }"
    )
    scripted.wait_for(lambda: page.evaluate(at_end))
    assert not page.is_visible(".jump")
    page.hover("#conversation")
    for _ in range(8):  # a wheel moves by notches, and the page may still lay out what a notch brings into sight
        page.mouse.wheel(0, -600)
    page.wait_for_selector(".jump")
    page.click(".jump")
    scripted.wait_for(lambda: page.evaluate(at_end))
    page.wait_for_selector(".jump", state="detached")


def test_escape_and_a_click_elsewhere_close_the_menus(scripted: ScriptedPage, page) -> None:
    for close in (lambda: page.keyboard.press("Escape"), lambda: page.click("#conversation")):
        page.click(".account summary")
        page.wait_for_selector("#sign-out button:visible")
        close()
        page.wait_for_selector("#sign-out button", state="hidden")


NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea, summary')]
    .filter((node) => node.checkVisibility({visibilityProperty: true}))
    .filter((node) => !node.closest('form[method=post] input[type=hidden]'))
    .filter((node) => !node.getAttribute('aria-label') && !node.labels?.[0]?.textContent.trim())
    .filter((node) => !node.innerText?.trim())
    .map((node) => node.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("width", [1440, 390])
def test_everything_that_can_be_used_has_a_name(scripted: ScriptedPage, page, width: int) -> None:
    """On a phone the brand's link had no accessible name."""
    page.set_viewport_size({"width": width, "height": 844})
    scripted.turn("hello", f"- [x] done\n\n{TABLE}\n```\ncode\n```")
    page.click(f"{ANSWER} [aria-label='Regenerate']")
    scripted.answer("again")
    assert page.evaluate(NAMELESS) == []


def test_what_a_run_waits_for_is_shown_until_it_begins(scripted: ScriptedPage, page) -> None:
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    shown = page.locator(".waits-for:visible")
    loading = {"state": "loading", "phase": "loading weights", "fraction": 0.4, "num_before": 2}
    scripted.tell({"type": "waiting", "id": run, **loading})
    shown.filter(has_text="Loading the model: loading weights, 40 %. 2 requests are before yours.").wait_for()
    scripted.tell({"type": "waiting", "id": run, "state": "ready", "phase": "", "fraction": 1, "num_before": 1})
    shown.filter(has_text="One request is before yours.").wait_for()
    scripted.say(run, "hi")
    page.get_by_text("hi", exact=True).wait_for()
    assert shown.count() == 0
    scripted.end(run)
    scripted.wait_idle()


def test_the_raw_text_of_an_answer_is_one_act_away_and_back(scripted: ScriptedPage, page) -> None:
    source = "**bold**\n\n<b>no tag</b>"
    scripted.turn("hello", source)
    for act, selector in (("Show raw text", ".message-raw"), ("Show formatted", ".message-body strong")):
        page.click(f"{ANSWER} .message-acts > .menu > summary")
        page.click(f"{ANSWER} .menu-act:has-text('{act}')")
        page.wait_for_selector(f"{ANSWER} {selector}")
        assert page.locator(f"{ANSWER} .message-raw").count() == (selector == ".message-raw")
        if selector == ".message-raw":
            assert page.text_content(f"{ANSWER} .message-raw") == source


def test_long_lines_of_code_are_wrapped_on_demand(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", f"```\n{'word ' * 200}\n```")
    code = page.locator(f"{ANSWER} .code-frame pre")
    is_cut = "node => node.scrollWidth > node.clientWidth"
    assert code.evaluate(is_cut)
    for is_wrapped in (True, False):
        page.click("[data-code-act=wrap]")
        assert page.get_attribute("[data-code-act=wrap]", "aria-pressed") == str(is_wrapped).lower()
        assert code.evaluate(is_cut) is not is_wrapped


def test_a_diagram_in_mermaid_is_shown_as_its_text(scripted: ScriptedPage, page) -> None:
    scripted.turn("hello", "```mermaid\ngraph TD;\n  A-->B;\n```")
    assert page.inner_text(f"{ANSWER} .code-head span") == "mermaid"
    assert page.text_content(f"{ANSWER} .code-frame code") == "graph TD;\n  A-->B;\n"
    assert page.locator(f"{ANSWER} .code-frame svg").count() == 0


def test_the_system_prompt_is_the_first_message_with_its_tokens(scripted: ScriptedPage, page) -> None:
    """They are counted where the model is loaded, and nothing is loaded to count."""
    asked: list[dict[str, str]] = []

    def count(route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json={"num_tokens": 1234})

    page.route("**/playground/api/count", count)
    page.evaluate(
        """async () => {
            const acts = await import('/static/chat/playground/app/core/acts.js');
            const app = await import('/static/chat/playground/app/core/app.js');
            acts.changeSettings(app.chat.value, { system: 'Be brief.' });
        }"""
    )
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "hi")
    page.wait_for_selector(f"{ANSWER} .block:has-text('hi')")
    assert page.inner_text(".system-prompt summary") == "System prompt"
    assert asked == []
    scripted.end(run)
    page.wait_for_selector(".system-prompt summary:has-text('1,234 tokens')")
    assert asked == [{"model": "plain", "text": "Be brief."}]


def test_the_tokens_of_a_system_prompt_are_counted_once_for_all_that_show_them(scripted: ScriptedPage, page) -> None:
    """Each place that shows it asked the server, with each chat that was opened: a line of the request log each."""
    asked: list[dict[str, str]] = []

    def count(route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json={"num_tokens": 1234})

    page.route("**/playground/api/count", count)
    open_panel(page)
    page.fill("#field-system", "Be brief.")
    scripted.turn("hello", "hi")
    page.wait_for_selector(".system-prompt summary:has-text('1,234 tokens')")
    page.wait_for_selector("#field-system-tokens")
    page.click("#sidebar-new-chat")
    page.wait_for_selector(".system-prompt", state="detached")
    page.click(".chat-row .chat-link")
    page.wait_for_selector(".system-prompt summary:has-text('1,234 tokens')")
    assert asked == [{"model": "plain", "text": "Be brief."}]
