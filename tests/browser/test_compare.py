"""Models are compared side by side: asked the same at once, told apart, voted on, and one goes on as a chat."""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.models import Conversation
from chat.playground.kept import state_get
from tests.browser.axe import axe_findings
from tests.browser.compared import COMPARE, act, answered, asked, compare, shows
from tests.browser.scripted import ScriptedPage
from tests.browser.stub_routes import render_route, rendered

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(scripted: ScriptedPage) -> Any:
    return compare(scripted)


def test_one_question_goes_to_two_models_at_once_and_each_goes_on_by_itself(scripted: ScriptedPage, page) -> None:
    starts = asked(scripted, "hello")
    assert {start["request"]["model"] for start in starts} == {"plain", "greedy"}
    assert starts[0]["request"]["messages"] == starts[1]["request"]["messages"]
    answered(scripted, starts, "one", "two")
    shows(scripted, 1, "hello", "one")
    shows(scripted, 2, "hello", "two")
    first, second = asked(scripted, "and now?")
    assert [message["content"] for message in first["request"]["messages"]] == ["hello", "one", "and now?"]
    assert [message["content"] for message in second["request"]["messages"]] == ["hello", "two", "and now?"]


def test_four_panes_are_asked_at_once_and_no_fifth_is_added(scripted: ScriptedPage, page) -> None:
    for number in (3, 4):
        page.click("#add-pane")
        page.wait_for_selector(f"#pane-{number}")
    assert page.is_disabled("#add-pane")
    answers = ["one", "two", "three", "four"]
    starts = asked(scripted, "hello", num=4)
    assert len({start["id"] for start in starts}) == 4
    answered(scripted, starts, *answers)
    for number, answer in enumerate(answers, start=1):
        shows(scripted, number, "hello", answer)
    assert page.locator(".figures-best").count() == 1
    page.focus("#conversation #pane-1")
    page.keyboard.type("g4")
    scripted.wait_for(lambda: page.evaluate("document.activeElement.id") == "pane-4")
    left, right = page.locator("#conversation").bounding_box(), page.locator("#pane-4").bounding_box()
    assert right["x"] + right["width"] <= left["x"] + left["width"] + 1  # in sight, though they do not all fit
    page.click("#differences")
    page.select_option("[aria-label='Right text']", "3")
    scripted.wait_for(lambda: page.locator(".differences ins").all_text_contents() == ["four"])
    page.keyboard.press("Escape")
    page.click("[aria-label='Close Pane 2']")
    shows(scripted, 2, "hello", "three")
    assert page.is_enabled("#add-pane")
    assert len(asked(scripted, "again", num=3)) == 3
    assert scripted.received == []


def test_one_run_or_all_can_be_stopped(scripted: ScriptedPage, page) -> None:
    page.click("#add-pane")
    starts = asked(scripted, "hello", num=3)
    page.click("[aria-label='Stop Pane 2']")
    assert scripted.next("stop")["id"] == starts[1]["id"]
    scripted.end(starts[1]["id"], outcome="stopped")
    page.wait_for_selector("[aria-label='Stop Pane 2']", state="detached")
    page.press("#composer-text", "Escape")
    assert {scripted.next("stop")["id"], scripted.next("stop")["id"]} == {starts[0]["id"], starts[2]["id"]}
    for at in (0, 2):
        scripted.end(starts[at]["id"], outcome="stopped")
    page.wait_for_selector("#stop-all", state="detached")


def test_a_message_waits_in_each_pane_for_its_own_answer(scripted: ScriptedPage, page) -> None:
    first, second = asked(scripted, "hello")
    scripted.ask("and now?")
    page.wait_for_selector("#pane-2 .pane-foot:has-text('One message waits')")
    assert scripted.received == []
    scripted.say(first["id"], "one")
    scripted.end(first["id"])
    following = scripted.next("start")
    assert [message["content"] for message in following["request"]["messages"]] == ["hello", "one", "and now?"]
    page.click("#pane-2 button:has-text('Withdraw')")
    assert page.input_value("#composer-text") == "and now?"
    scripted.end(second["id"])
    page.wait_for_selector("[aria-label='Stop Pane 2']", state="detached")
    assert scripted.received == []


def test_a_message_that_is_taken_back_comes_with_its_files_before_what_is_written(scripted: ScriptedPage, page) -> None:
    """The files were lost, and the text too where something was written by then."""
    first, second = asked(scripted, "hello")
    file = {"name": "plans.txt", "mimeType": "text/plain", "buffer": b"one"}
    page.set_input_files("#composer input[type=file]", file)
    page.wait_for_selector("#composer .chip")
    scripted.ask("and now?")
    page.wait_for_selector("#pane-2 .pane-foot:has-text('One message waits')")
    page.fill("#composer-text", "later")
    for pane in (1, 2):
        page.click(f"#pane-{pane} button:has-text('Withdraw')")
        page.wait_for_selector(f"#pane-{pane} button:has-text('Withdraw')", state="detached")
        assert page.input_value("#composer-text") == "and now?\n\nlater"
        assert page.inner_text("#composer .files").split() == ["plans.txt", "3", "B"]
    for start in (first, second):
        scripted.end(start["id"])
    page.wait_for_selector("#stop-all", state="detached")
    assert scripted.received == []


def test_settings_belong_to_a_pane_until_they_are_copied_to_all(scripted: ScriptedPage, page) -> None:
    page.click("#pane-1 .pane-settings > summary")
    page.fill("#pane-1 [name=temperature]", "0.25")
    page.fill("#pane-1 [name=max_tokens]", "7")
    page.fill("#pane-1 [name=system]", "Be brief.")
    first, second = asked(scripted, "hello")
    assert (first["request"]["temperature"], first["request"]["max_tokens"]) == (0.25, 7)
    assert first["request"]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert set(second["request"]) == {"model", "messages"}
    answered(scripted, [first, second], "one", "two")
    page.click("#pane-1 .pane-more > summary")
    page.fill("#pane-1 [name=parameters]", "[1]")
    page.press("#pane-1 [name=parameters]", "Tab")
    assert "one JSON object" in page.inner_text("#pane-1 .pane-more .problem")
    page.fill("#pane-1 [name=parameters]", '{"seed": 3}')
    page.click("#pane-1 button:has-text('Copy settings to all')")
    first, second = asked(scripted, "again")
    assert (first["request"]["seed"], second["request"]["seed"]) == (3, 3)
    assert second["request"]["messages"][0]["content"] == "Be brief."
    assert first["request"]["model"] != second["request"]["model"]


def test_a_detached_pane_is_asked_by_itself(scripted: ScriptedPage, page) -> None:
    act(page, 2, "Detach")
    [start] = asked(scripted, "to one", num=1)
    answered(scripted, [start], "yes")
    page.fill("#pane-2 textarea[placeholder='Send a message']", "to the other")
    page.press("#pane-2 textarea[placeholder='Send a message']", "Enter")
    other = scripted.next("start")
    assert [message["content"] for message in other["request"]["messages"]] == ["to the other"]
    assert scripted.received == []


def test_a_message_that_is_too_long_holds_back_its_own_box_alone(scripted: ScriptedPage, page) -> None:
    """All boxes shared what the last of them had measured: one let the message of another pass, or held it back."""

    def render(route: Any) -> None:
        is_long = "long" in route.request.post_data_json["request"]["messages"][-1]["content"]
        route.fulfill(json={"num_tokens": 9000 if is_long else 5, "max_tokens": None, "context": 8192})

    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.route("**/playground/api/render", render)
    act(page, 2, "Detach")
    own, send = "#pane-2 textarea[placeholder='Send a message']", "#pane-2 .composer button[type=submit]"
    page.fill(own, "a long message")
    page.wait_for_selector("#pane-2 .meter-problem")
    page.fill("#composer-text", "short")
    page.wait_for_selector("#composer .meter-text:has-text('5 of 8,192 tokens')")
    assert page.get_attribute(send, "aria-disabled") == "true"
    assert page.get_attribute("#send", "aria-disabled") == "false"
    page.fill(own, "brief")
    page.wait_for_selector(f"{send}[aria-disabled=false]")
    page.fill("#composer-text", "a long message")
    page.wait_for_selector("#composer .meter-problem")
    assert page.get_attribute(send, "aria-disabled") == "false"


def test_the_shared_box_counts_what_the_first_asked_pane_would_send(scripted: ScriptedPage, page) -> None:
    """It counted by the settings that the comparison began with, without what the panes hold."""
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.click("#pane-1 .pane-settings > summary")
    page.fill("#pane-1 [name=max_tokens]", "7")
    page.press("#pane-1 [name=max_tokens]", "Tab")
    counted = render_route(page, [rendered(12), rendered(34)])
    page.fill("#composer-text", "again")
    page.wait_for_selector("#composer .meter-text:has-text('12 of 8,192 tokens')")
    assert [message["content"] for message in counted[-1]["request"]["messages"]] == ["hello", "one", "again"]
    assert counted[-1]["request"]["max_tokens"] == 7
    act(page, 1, "Detach")
    page.wait_for_selector("#composer .meter-text:has-text('34 of 8,192 tokens')")
    assert [message["content"] for message in counted[-1]["request"]["messages"]] == ["hello", "two", "again"]
    assert "max_tokens" not in counted[-1]["request"]


def test_a_cost_is_written_as_in_the_details(scripted: ScriptedPage, page) -> None:
    """The figures of panes had it as the server sends it: 0.000321 EUR."""
    for start in asked(scripted, "hello"):
        scripted.say(start["id"], "yes")
        scripted.end(start["id"], cost={"amount": "0.000321", "currency": "EUR"})
    page.wait_for_selector("#pane-1 .figures")
    assert "€0.000321" in page.inner_text("#pane-1 .figures")


def test_the_best_figures_are_marked_and_differences_shown_as_text(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "a <b>red</b> fox", "a <b>blue</b> fox")
    assert "best" in page.inner_text("#pane-1 .figures div:has-text('Tokens') >> nth=-1")
    assert page.locator("#pane-2 .figures-best").count() == 0
    page.click("#differences")
    page.wait_for_selector(".differences del")
    assert page.locator(".differences :is(del, ins)").all_text_contents() == ["red", "blue"]
    assert page.inner_text(".differences-text >> nth=0") == "a <b>red</b> fox"


def test_differences_of_running_answers_are_told_once_they_stand_still(scripted: ScriptedPage, page) -> None:
    """All words were compared again with each piece of an answer, and each time readers heard of it."""
    starts = asked(scripted, "hello")
    for start, text in zip(starts, ("a red", "a blue"), strict=True):
        scripted.say(start["id"], text)
    shows(scripted, 2, "hello", "a blue")
    page.click("#differences")
    page.wait_for_selector(".differences ins")
    page.evaluate(
        """() => {
            const line = document.querySelector(".differences [role=status]");
            window.heard = [];
            new MutationObserver(() => window.heard.push(line.textContent)).observe(line, {
                childList: true, characterData: true, subtree: true });
        }"""
    )
    for piece in (" fox", " that", " runs"):
        scripted.say(starts[0]["id"], piece)
        scripted.wait_painted()
    scripted.wait_for(lambda: page.locator(".differences del").all_text_contents() == ["red fox that runs"])
    heard = page.evaluate("window.heard")
    assert heard[-1] == "5 words are only in one of the texts."
    assert "Comparing …" not in heard


WITHOUT_CLIPBOARD = "Object.defineProperty(Navigator.prototype, 'clipboard', {get: () => undefined})"


def regenerated(scripted: ScriptedPage, text: str, **more: Any) -> None:
    scripted.page.click("[aria-label='Regenerate'] >> nth=-1")
    run = scripted.next("start")["id"]
    scripted.say(run, text, **more)
    scripted.end(run)
    scripted.wait_idle()


def changed_words(scripted: ScriptedPage) -> list[str]:
    return list(scripted.page.locator(".differences :is(del, ins)").all_text_contents())


def test_two_versions_of_an_answer_are_compared(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    model = page.get_attribute("#model", "value")
    scripted.turn("hello", "a red fox")
    regenerated(scripted, "a blue fox")
    regenerated(scripted, "a blue cat")
    page.click("[aria-label='Compare the versions']")
    scripted.wait_for(lambda: changed_words(scripted) == ["fox", "cat"])
    page.select_option("[aria-label='Left text']", label=f"Version 1 · {model}")
    scripted.wait_for(lambda: changed_words(scripted) == ["red", "fox", "blue", "cat"])
    assert "4 words are only in one" in page.inner_text(".differences [role=status]")
    page.select_option("[aria-label='Right text']", "0")
    page.wait_for_selector(".differences [role=status]:has-text('are the same')")
    assert axe_findings(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("[aria-label='Compare the versions']:focus")


def test_versions_of_a_call_differ_in_its_arguments(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    scripted.turn("hello", "I do not know.")
    for place in ("Oslo", "Rome"):
        call = {"index": 0, "id": "a", "name": "weather", "arguments": f'{{"city": "{place}"}}'}
        regenerated(scripted, "", tool_calls=[call])
    page.click("[aria-label='Compare the versions']")
    scripted.wait_for(lambda: changed_words(scripted) == ["Oslo", "Rome"])


def test_texts_without_a_common_word_are_told_from_each_other_in_a_second(scripted: ScriptedPage) -> None:
    """The page stood still for as long as the words were compared."""
    page = scripted.sign_in()
    for number in (0, 20_000):
        text = " ".join(f"w{number + each}" for each in range(20_000))
        scripted.turn("hello", text) if number == 0 else regenerated(scripted, text)
    page.click("[aria-label='Compare the versions']")
    page.wait_for_selector(".differences [role=status]:has-text('differ too much')")


def test_versions_in_a_pane_without_names_have_none(scripted: ScriptedPage, page) -> None:
    page.click("#blind")
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.click("#pane-1 [aria-label='Regenerate']")
    answered(scripted, [scripted.next("start")], "three")
    page.click("#pane-1 [aria-label='Compare the versions']")
    page.wait_for_selector(".differences del")
    assert page.locator("[aria-label='Left text'] option").all_text_contents() == ["Version 1", "Version 2"]


def test_votes_are_copied_as_csv_that_no_spreadsheet_takes_for_formulas(scripted: ScriptedPage, page) -> None:
    page.add_init_script(WITHOUT_CLIPBOARD)
    page.reload()
    scripted.wait_ready()
    answered(scripted, asked(scripted, '=1+1, "exactly"?'), "two", "three")
    models = [page.input_value(f"#pane-{pane} .pane-head select") for pane in (1, 2)]
    page.click("#pane-1 [data-vote]")
    page.fill("#vote-note", "right, and short")
    with page.expect_response(lambda response: response.url.endswith("/playground/api/state")):
        page.press("#vote-note", "Enter")
    page.click("#votes")
    page.click(".votes button:has-text('Copy as CSV')")
    page.wait_for_selector(".votes button:has-text('Copied')")
    page.keyboard.press("Escape")
    page.focus("#composer-text")
    page.keyboard.press("Control+v")
    titles, [time, *cells] = csv.reader(io.StringIO(page.input_value("#composer-text")))
    assert titles == ["time", "blind", "best", "others", "prompt", "note"]
    assert datetime.fromisoformat(time)
    assert cells == ["no", *models, '\'=1+1, "exactly"?', "right, and short"]


def test_a_blind_vote_hides_the_names_until_it_is_cast(scripted: ScriptedPage, page) -> None:
    page.click("#blind")
    answered(scripted, asked(scripted, "hello"), "one", "two")
    shown = page.inner_text("#app")
    assert "plain" not in shown
    assert "greedy" not in shown
    page.click("#pane-2 [data-vote]")
    page.fill("#vote-note", "shorter")
    page.press("#vote-note", "Enter")
    winner = page.input_value("#pane-2 .pane-head select")
    assert winner in {"plain", "greedy"}
    assert page.locator("[data-vote]").count() == 0
    page.click("#votes")
    assert page.locator(".votes tbody tr >> nth=0").locator("th, td").all_text_contents() == [winner, "1", "1", "100%"]
    assert "shorter" in page.inner_text(".votes-table >> nth=1")
    page.keyboard.press("Escape")
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(lambda: "shorter" in str(state_get(user_id=user.pk).get("votes")))
    page.reload()
    shows(scripted, 2, "hello", "two")
    assert page.locator("[data-vote]").count() == 0
    page.click("#votes")
    assert "shorter" in page.inner_text(".votes-table >> nth=1")


def test_a_pane_becomes_a_stored_chat_with_all_its_turns(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "one", "two")
    assert page.url.endswith("/")
    act(page, 2, "Make it a chat")
    page.wait_for_url("**/c/*")
    scripted.wait_for(lambda: scripted.texts() == ["hello", "two"])
    scripted.wait_for(lambda: page.evaluate("!Object.keys(sessionStorage).some((key) => key.endsWith('.outbox'))"))
    page.reload()
    scripted.wait_ready()
    scripted.wait_for(lambda: scripted.texts() == ["hello", "two"])


LONG_CHAT = """async () => {
    const { panes } = await import('/static/chat/playground/app/compare/panes.js');
    const { chat } = panes.value[1];
    const texts = [...Array.from({ length: 70 }, (_, at) => `turn ${at}`), 'ä'.repeat(300_000), 'ö'.repeat(300_000)];
    for (const [at, content] of texts.entries()) {
        chat.add({ id: `t${at}`, parent: at ? `t${at - 1}` : '', role: 'user', state: 'ended', content });
    }
    chat.add({ id: 't72', parent: 't70', role: 'user', state: 'ended', content: 'a version that is not shown' });
    chat.head.value = 't71';
}"""


def test_a_pane_with_more_than_a_request_may_hold_becomes_a_chat(scripted: ScriptedPage, page) -> None:
    """Beyond 64 turns, or 1 MiB, the server refused the one request that all were sent in."""
    page.evaluate(LONG_CHAT)
    act(page, 2, "Make it a chat")
    page.wait_for_url("**/c/*")
    stored = Conversation.objects.filter(num_turns=73, head="t71", title="turn 0")
    scripted.wait_for(stored.exists)
    scripted.wait_for(lambda: not scripted.in_flight)
    assert page.locator("#notice.is-problem").count() == 0


def test_whoever_leaves_the_panes_can_go_back_to_them(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.click("#end-comparing")
    assert scripted.texts() == []
    page.click("#notice button:has-text('Go back')")
    shows(scripted, 1, "hello", "one")
    act(page, 1, "Swap")
    shows(scripted, 1, "hello", "two")
    page.click("[aria-label='Close Pane 1']")
    shows(scripted, 1, "hello", "one")
    page.click("#notice button:has-text('Undo')")
    shows(scripted, 1, "hello", "two")
    page.click("[aria-label='Close Pane 2']")
    page.click("[aria-label='Close Pane 1']")
    page.wait_for_selector("#composer-text")
    assert page.locator(".pane").count() == 0


def test_whoever_compares_others_can_go_back_to_the_panes_before(scripted: ScriptedPage, page) -> None:
    """A click on Compare dropped the answers of the comparison before."""
    answered(scripted, asked(scripted, "hello"), "one", "two")
    page.click("#end-comparing")
    page.click(COMPARE)
    answered(scripted, asked(scripted, "again"), "three", "four")
    page.click("#notice button:has-text('the one before')")
    shows(scripted, 1, "hello", "one")
    page.click("#notice button:has-text('the one before')")
    shows(scripted, 1, "again", "three")


def test_the_chat_behind_the_panes_keeps_its_draft_although_its_answer_ends_meanwhile(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    page.fill("#composer-text", "a draft")
    page.click(COMPARE)
    page.wait_for_selector("#pane-2")
    scripted.say(run, "one")
    scripted.end(run)
    page.click("#end-comparing")
    scripted.wait_idle()
    scripted.wait_for(lambda: scripted.texts() == ["hello", "one"])
    page.fill("#composer-text", "another draft")
    page.reload()
    scripted.wait_ready()
    scripted.wait_for(lambda: scripted.texts() == ["hello", "one"])
    assert page.input_value("#composer-text") == "another draft"


def test_panes_scroll_in_step_by_turn(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "line\n\n" * 60, "line\n\n" * 200)
    for number in range(2):
        answered(scripted, asked(scripted, f"again {number}"), "line\n\n" * 60, "line\n\n" * 20)
    page.hover("#pane-1 .pane-text")
    page.evaluate("document.querySelector('#pane-1 [data-turn]:nth-child(3)').scrollIntoView()")
    scripted.wait_painted()
    first, second = [
        page.locator(f"#pane-{pane} [data-turn]:nth-child(3)").bounding_box()["y"]
        - page.locator(f"#pane-{pane} .pane-text").bounding_box()["y"]
        for pane in (1, 2)
    ]
    assert abs(first - second) <= 4


def widths(page: Any, num: int = 2) -> list[int]:
    return [round(page.locator(f"#pane-{number + 1}").bounding_box()["width"]) for number in range(num)]


def is_about(found: list[int], *wanted: int) -> bool:
    return all(abs(one - other) <= 1 for one, other in zip(found, wanted, strict=True))


def test_panes_are_made_wider_by_mouse_and_keys_and_stay_so(scripted: ScriptedPage, page) -> None:
    line = page.locator("[role=separator]")
    first, second = widths(page)
    whole = first + second
    assert abs(first - second) <= 1
    assert line.get_attribute("aria-valuenow") == "50"
    line.focus()
    page.keyboard.press("ArrowRight")
    scripted.wait_for(lambda: is_about(widths(page), first + 24, second - 24))
    assert int(line.get_attribute("aria-valuenow")) > 50
    page.keyboard.press("End")
    scripted.wait_for(lambda: is_about(widths(page), whole - 272, 272))
    page.keyboard.press("Home")
    scripted.wait_for(lambda: is_about(widths(page), 272, whole - 272))
    page.keyboard.press("ArrowLeft")
    box = line.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y)
    page.mouse.move(x + 100, y)
    page.mouse.up()
    scripted.wait_for(lambda: is_about(widths(page), 372, whole - 372))
    page.mouse.move(x, y)
    scripted.wait_painted()
    page.reload()
    scripted.wait_ready()
    page.wait_for_selector("#pane-2")
    scripted.wait_for(lambda: is_about(widths(page), 372, whole - 372))
    line.dblclick()
    scripted.wait_for(lambda: is_about(widths(page), first, second))


def test_the_line_between_two_of_three_panes_leaves_the_third_alone(scripted: ScriptedPage, page) -> None:
    page.set_viewport_size({"width": 1600, "height": 800})
    page.click("#add-pane")
    page.wait_for_selector("#pane-3")
    first, second, third = widths(page, 3)
    page.focus("[role=separator] >> nth=1")
    page.keyboard.press("ArrowLeft")
    scripted.wait_for(lambda: is_about(widths(page, 3), first, second - 24, third + 24))
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("[role=separator]:visible").count() == 0


def test_a_line_moves_alone_also_where_a_pane_has_the_least_width(scripted: ScriptedPage, page) -> None:
    """In a window that had become narrower a pane was wider than its share, so that its line moved the others too."""
    page.set_viewport_size({"width": 1800, "height": 800})
    page.click("#add-pane")
    page.wait_for_selector("#pane-3")
    page.focus("[role=separator] >> nth=0")
    page.keyboard.press("Home")
    scripted.wait_for(lambda: is_about(widths(page, 1), 272))
    page.set_viewport_size({"width": 1400, "height": 800})
    scripted.wait_painted()
    first, second, third = widths(page, 3)
    assert first == 272
    page.keyboard.press("ArrowRight")
    scripted.wait_for(lambda: widths(page, 1) != [first])
    assert is_about(widths(page, 3), first + 24, second - 24, third)


def test_panes_are_swiped_on_a_phone(scripted: ScriptedPage, page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.click(".pane-tabs button:has-text('Pane 2')")
    page.wait_for_selector(".pane-tabs button:has-text('Pane 2')[aria-pressed=true]")
    box = page.locator("#pane-2").bounding_box()
    assert (round(box["x"]), round(box["width"])) == (0, 390)


def test_no_state_of_the_comparison_fails_the_accessibility_check(scripted: ScriptedPage, page) -> None:
    answered(scripted, asked(scripted, "hello"), "a **red** fox", "a *blue* fox")
    page.click("#pane-2 .pane-settings > summary")
    page.click("#pane-2 .pane-more > summary")
    act(page, 1, "Detach")
    findings = axe_findings(page)
    page.click("#differences")
    page.wait_for_selector(".differences del")
    findings += axe_findings(page)
    page.keyboard.press("Escape")
    page.click("#pane-2 [data-vote]")
    page.fill("#vote-note", "shorter")
    findings += axe_findings(page)
    with page.expect_response(lambda response: response.url.endswith("/playground/api/state")):
        page.keyboard.press("Enter")
    page.click("#votes")
    page.wait_for_selector(".votes-table")
    findings += axe_findings(page)
    assert findings == []
