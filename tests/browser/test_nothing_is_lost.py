"""Texts and answers survive clicks, reloads and lost connections, and stay private to their user."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def talk(scripted: ScriptedPage) -> ScriptedPage:
    """Signed in, and in the middle of a chat."""
    scripted.sign_in()
    for number in (1, 2, 3):
        scripted.turn(f"question {number}", f"answer {number}")
    return scripted


WHOLE = ["question 1", "answer 1", "question 2", "answer 2", "question 3", "answer 3"]


def test_edit_then_escape_then_reload_leaves_the_chat_as_it_was(talk: ScriptedPage) -> None:
    """A click on Edit removed the message and all later ones for good."""
    talk.page.click(f"{MESSAGE.format(1)} [aria-label='Edit']")
    talk.page.fill(".edit-form textarea", "something else")
    talk.page.keyboard.press("Escape")
    talk.page.wait_for_selector(f"{MESSAGE.format(1)} [aria-label='Edit']:focus")
    assert talk.texts() == WHOLE
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(6))
    assert talk.texts() == WHOLE
    assert talk.received == []


def test_an_edited_question_is_a_version_beside_the_old_one(talk: ScriptedPage) -> None:
    talk.page.click(f"{MESSAGE.format(3)} [aria-label='Edit']")
    talk.page.fill(".edit-form textarea", "question two")
    talk.page.click("text=Save & send")
    assert [message["content"] for message in talk.answer("answer two")["messages"]] == [
        "question 1",
        "answer 1",
        "question two",
    ]
    assert talk.texts() == ["question 1", "answer 1", "question two", "answer two"]
    talk.page.click("[aria-label='Earlier version']")
    assert talk.texts() == WHOLE
    talk.page.wait_for_selector("[aria-label='Later version']:focus")
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(6))
    assert talk.texts() == WHOLE
    talk.page.click("[aria-label='Later version']")
    assert talk.texts() == ["question 1", "answer 1", "question two", "answer two"]


def test_regenerating_an_earlier_answer_can_be_undone(talk: ScriptedPage) -> None:
    """Regenerating the first of several answers deleted all later messages."""
    talk.page.click(f"{MESSAGE.format(2)} [aria-label='Regenerate']")
    assert [message["content"] for message in talk.answer("another answer")["messages"]] == ["question 1"]
    assert talk.texts() == ["question 1", "another answer"]
    assert "is kept" in talk.page.inner_text("#notice")
    talk.page.click("#notice button:has-text('Undo')")
    assert talk.texts() == WHOLE


def test_replaced_answers_are_kept_after_a_reload(talk: ScriptedPage) -> None:
    talk.page.click(f"{MESSAGE.format(2)} [aria-label='Regenerate']")
    talk.answer("another answer")
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(2))
    assert "2/2" in talk.page.inner_text(f"{MESSAGE.format(2)} .siblings")
    talk.page.click("[aria-label='Earlier version']")
    assert talk.texts() == WHOLE


def test_a_new_chat_keeps_the_one_before(talk: ScriptedPage) -> None:
    """Starting a chat erased the only copy of the one before."""
    talk.page.click("#sidebar-new-chat")
    assert talk.texts() == []
    talk.turn("a second chat", "yes")
    talk.page.click("#sidebar-new-chat")
    talk.page.reload()
    talk.wait_ready()
    talk.page.click(".chat-link:has-text('question 1')")
    talk.page.wait_for_selector(MESSAGE.format(6))
    assert talk.texts() == WHOLE
    talk.page.go_back()
    talk.page.wait_for_selector(MESSAGE.format(1), state="detached")


def test_a_try_again_keeps_the_text_that_the_error_called_kept(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.say(run, "half an answer")
    talk.fail(run, "engine_error")
    talk.page.click(".message-error button:has-text('Try again')")
    talk.answer("a whole answer")
    assert talk.texts()[-1] == "a whole answer"
    talk.page.click(f"{MESSAGE.format(8)} [aria-label='Earlier version']")
    assert talk.texts()[-1] == "half an answer"


def test_a_reload_during_an_answer_resumes_its_run(talk: ScriptedPage) -> None:
    """Question and answer were lost, and the run was ended."""
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.say(run, "It begins")
    talk.page.wait_for_selector("text=It begins")
    talk.page.reload()
    assert talk.next("attach") == {"type": "attach", "id": run}
    talk.page.wait_for_selector(MESSAGE.format(8))
    assert talk.texts()[-2:] == ["question 4", "It begins"]
    talk.say(run, "It ")
    talk.say(run, "begins and goes on")
    talk.end(run)
    talk.wait_idle()
    assert talk.texts() == [*WHOLE, "question 4", "It begins and goes on"]
    assert talk.received == []


def test_a_lost_connection_is_resumed_and_shown_text_stays(talk: ScriptedPage) -> None:
    """The page kept its text and offered only its deletion."""
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.say(run, "Half of")
    talk.page.wait_for_selector("text=Half of")
    talk.is_reachable = False
    talk.socket.close(code=1001)
    talk.page.wait_for_selector(".waiting:visible")
    assert talk.texts()[-1] == "Half of"
    talk.is_reachable = True
    assert talk.next("attach")["id"] == run
    talk.say(run, "Half")
    talk.say(run, " of it")
    talk.end(run)
    talk.wait_idle()
    assert talk.texts()[-1] == "Half of it"


def test_a_run_whose_reader_was_lost_is_read_again_a_few_times(talk: ScriptedPage) -> None:
    """A brief Valkey failure ended the answer on the page, while the run continued without a reader."""
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.say(run, "Half of")
    for _ in range(3):
        talk.fail(run, "worker_lost")
        assert talk.next("attach")["id"] == run
        talk.say(run, "Half of it")
    talk.page.wait_for_selector("text=Half of it")
    talk.fail(run, "worker_lost")
    talk.page.wait_for_selector(".message-error:visible")
    assert talk.texts()[-1] == "Half of it"


def test_a_refusal_is_shown_at_once(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    talk.fail(talk.next("start")["id"], "overloaded")
    talk.page.wait_for_selector(".message-error:visible")
    assert talk.received == []


def test_an_answer_that_cannot_be_picked_up_keeps_its_text(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.say(run, "Half of")
    talk.page.wait_for_selector("text=Half of")
    talk.page.reload()
    talk.next("attach")
    talk.fail(run, "not_resumable")
    talk.page.wait_for_selector(".message-error:visible")
    assert talk.texts()[-1] == "Half of"


def test_a_request_that_the_server_never_got_is_sent_once_more_under_its_id(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    first = talk.next("start")
    talk.socket.close(code=1001)
    assert talk.next("attach")["id"] == first["id"]
    talk.fail(first["id"], "not_resumable")
    assert talk.next("start") == first


def test_a_request_that_cuts_the_connection_is_not_sent_for_ever(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    first = talk.next("start")
    for _ in range(2):
        talk.socket.close(code=1009)
        talk.next("attach")
        talk.fail(first["id"], "not_resumable")
        assert talk.next("start") == first
    talk.socket.close(code=1009)
    talk.next("attach")
    talk.fail(first["id"], "not_resumable")
    talk.page.wait_for_selector(".message-error:visible")
    assert talk.received == []


def test_a_chat_too_long_for_the_server_shows_the_reason(talk: ScriptedPage) -> None:
    """The page reported a lost connection and lost it again at each attempt."""
    talk.ask("x" * 1_100_000)
    talk.page.wait_for_selector(".message-error:has-text('too long to be sent')")
    assert talk.received == []
    talk.problems.clear()  # the browser's own line about a prompt that cannot be counted


def test_a_server_that_accepts_and_closes_at_once_is_left_alone_for_longer_and_longer(talk: ScriptedPage) -> None:
    """A page reconnected four times a second for as long as the failure lasted."""
    sockets: list[Any] = []
    talk.page.route_web_socket("**/ws/playground", lambda socket: sockets.append(socket))
    talk.socket.close(code=1011)
    begun = time.monotonic()
    for number in range(4):
        talk.wait_for(lambda number=number: len(sockets) > number)
        talk.wait_ready()
        sockets[number].close(code=1011)
    assert time.monotonic() - begun > 3  # 0.25 + 0.5 + 1 + 2 s; at four times a second it is 1


def test_what_the_server_does_not_keep_is_said(talk: ScriptedPage, settings) -> None:
    settings.LIGHTCONE_CHAT_QUOTA_BYTES = 1
    talk.ask("question 4")
    talk.page.wait_for_selector("#notice.is-problem:has-text('may take 1 bytes')")
    talk.problems.clear()  # the browser's own line about the refusal
    talk.received.clear()


def test_a_question_asked_without_a_connection_waits_for_it(talk: ScriptedPage) -> None:
    talk.is_reachable = False
    talk.socket.close(code=1001)
    talk.page.wait_for_selector("#connection:not([data-state=ready])")
    talk.ask("question 4")
    talk.page.wait_for_selector(".waiting:visible")
    talk.is_reachable = True
    talk.answer("answer 4")
    assert talk.texts() == [*WHOLE, "question 4", "answer 4"]


def test_a_stop_reaches_the_server_also_after_the_connection_was_lost(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.is_reachable = False
    talk.socket.close(code=1001)
    talk.page.wait_for_selector("#connection:not([data-state=ready])")
    talk.page.click("#stop")
    talk.is_reachable = True
    assert talk.next("attach")["id"] == run
    assert talk.next("stop")["id"] == run


def test_a_run_continues_beside_a_new_chat(talk: ScriptedPage) -> None:
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.page.click("#sidebar-new-chat")
    talk.turn("meanwhile", "yes")
    talk.say(run, "answer 4")
    talk.end(run)
    talk.page.click(".chat-link:has-text('question 1')")
    talk.page.wait_for_selector(MESSAGE.format(8))
    assert talk.texts() == [*WHOLE, "question 4", "answer 4"]


def test_an_answer_whose_end_is_being_saved_is_shown_to_who_comes_back(talk: ScriptedPage) -> None:
    """The chat was let go with the end, and read from the server before that had it: the answer was empty."""
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.page.click("#sidebar-new-chat")
    talk.wait_for(lambda: not talk.in_flight)
    held: list[Any] = []
    talk.page.route("**/conversations/*/turns/*", lambda route: held.append(route))
    talk.say(run, "answer 4")
    talk.end(run)
    talk.wait_for(lambda: held)
    talk.page.click(".chat-link:has-text('question 1')")
    talk.page.wait_for_selector(MESSAGE.format(8))
    assert talk.texts() == [*WHOLE, "question 4", "answer 4"]
    held[0].continue_()


OPEN_CHATS = """async () => {
    const app = await import('/static/chat/playground/app/core/app.js');
    return [...app.openChats.values()].map((open) => open.title.value);
}"""


def test_a_chat_that_is_left_while_it_is_answered_is_let_go_with_its_end(talk: ScriptedPage) -> None:
    """Each chat that was left in the middle of an answer was kept, and watched, for as long as the page was open."""
    talk.ask("question 4")
    run = talk.next("start")["id"]
    talk.page.fill("#composer-text", "a draft")
    talk.page.click("#sidebar-new-chat")
    assert talk.page.evaluate(OPEN_CHATS) == ["question 1", ""]
    talk.say(run, "answer 4")
    talk.end(run)
    talk.wait_for(lambda: talk.page.evaluate(OPEN_CHATS) == [""])
    assert talk.page.input_value("#composer-text") == ""
    talk.wait_for(lambda: not talk.in_flight)
    talk.page.click(".chat-link:has-text('question 1')")
    talk.page.wait_for_selector(MESSAGE.format(8))
    assert talk.texts() == [*WHOLE, "question 4", "answer 4"]
    assert talk.page.input_value("#composer-text") == "a draft"
    assert talk.received == []


def test_draft_and_model_survive_a_reload(talk: ScriptedPage) -> None:
    talk.page.fill("#composer-text", "not sent yet")
    talk.pick_model("greedy")
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(6))
    assert talk.page.input_value("#composer-text") == "not sent yet"
    assert talk.page.get_attribute("#model", "value") == "greedy"


def test_a_reload_shows_the_lines_that_were_being_read(talk: ScriptedPage) -> None:
    """It went to the end of the chat."""
    for number in range(4, 12):
        talk.turn(f"question {number}", "a line of the answer\n\n" * 20)
    where = f"""(() => {{
        const message = document.querySelector('{MESSAGE.format(10)}');
        const area = document.querySelector('#conversation');
        return Math.round(message.getBoundingClientRect().top - area.getBoundingClientRect().top);
    }})()"""
    talk.page.locator(MESSAGE.format(10)).scroll_into_view_if_needed()
    talk.page.evaluate("document.querySelector('#conversation').scrollTop -= 90")
    talk.page.wait_for_selector(".jump")
    talk.wait_painted()
    before = talk.page.evaluate(where)
    talk.page.route("**/playground/api/conversations/*", lambda route: None)
    talk.page.reload(wait_until="domcontentloaded")
    talk.page.wait_for_selector("#composer-text")  # another reload, before the chat is there
    talk.page.unroute("**/playground/api/conversations/*")
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(22))
    talk.wait_for(lambda: abs(talk.page.evaluate(where) - before) < 4)
    assert talk.page.is_visible(".jump")


def test_a_reload_shows_the_part_of_the_request_that_was_open(talk: ScriptedPage) -> None:
    talk.page.click("#panel-toggle")
    talk.page.click("#panel [role=tab]:has-text('Tools')")
    scripted_tab = "#panel [role=tab][aria-selected=true]:has-text('Tools')"
    talk.page.wait_for_selector(scripted_tab)
    talk.wait_for(lambda: not talk.in_flight)
    talk.page.reload()
    talk.page.wait_for_selector("#conversation")
    if talk.page.get_attribute("#panel-toggle", "aria-expanded") != "true":
        talk.page.click("#panel-toggle")
    talk.page.wait_for_selector(scripted_tab)


def set_system(talk: ScriptedPage, text: str) -> None:
    talk.page.evaluate(
        """async (system) => {
            const acts = await import('/static/chat/playground/app/core/acts.js');
            const app = await import('/static/chat/playground/app/core/app.js');
            acts.changeSettings(app.chat.value, { system });
        }""",
        text,
    )


def stored(page) -> str:
    return page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")


def test_the_next_person_in_the_tab_sees_nothing_of_the_one_before(talk: ScriptedPage) -> None:
    """A second user in the same tab saw the first one's chat and system prompt."""
    set_system(talk, "ada is confidential")
    talk.page.fill("#composer-text", "a draft of ada")
    talk.sign_out()
    assert re.search("ada|question|answer", stored(talk.page)) is None
    talk.sign_in("bob")
    assert talk.texts() == []
    assert "confidential" not in talk.page.content()
    assert talk.page.input_value("#composer-text") == ""


def test_a_page_removes_data_of_another_user(talk: ScriptedPage) -> None:
    """After a sign-out elsewhere, as in the console, no page removed the data."""
    set_system(talk, "ada is confidential")
    talk.page.context.clear_cookies()
    talk.sign_in("bob")
    assert talk.texts() == []
    assert re.search("confidential|question|answer", stored(talk.page)) is None
    talk.problems[:] = [problem for problem in talk.problems if "403" not in problem]  # what the page of Ada still sent


def test_signing_out_clears_the_other_tabs_too(talk: ScriptedPage) -> None:
    """Another tab was reloaded before the server had ended the session, and went on with it."""
    other = talk.page.context.new_page()
    other.goto("/")
    other.fill("#composer-text", "a draft of ada")
    other.evaluate("window.heard = []; addEventListener('storage', (event) => heard.push(event.key))")
    asked: list[Any] = []
    talk.page.route("**/sign-out", lambda route: asked.append(route))
    talk.page.click(".account summary")
    talk.page.evaluate(
        "document.querySelector('#sign-out').requestSubmit(); localStorage.setItem('lightcone.theme', 'dark')"
    )
    leaving, talk.page = talk.page, other  # what a page evaluates waits for the end of its request
    talk.wait_for(lambda: asked and "lightcone.theme" in other.evaluate("window.heard ?? []"))
    assert "a draft of ada" not in stored(other)
    asked[0].continue_()
    leaving.wait_for_selector("#id_username")
    other.wait_for_selector("#id_username")
    assert "a draft of ada" not in stored(other)


def act_of(page: Any, message: str, act: str) -> None:
    page.click(f"{message} .message-acts > .menu > summary")
    page.click(f"{message} .menu-act:has-text('{act}')")


def test_an_edited_answer_is_a_version_beside_the_old_one(talk: ScriptedPage) -> None:
    act_of(talk.page, MESSAGE.format(4), "Edit")
    talk.page.fill(".edit-form textarea", "answer two")
    talk.page.click(".edit-form >> text=Save")
    talk.page.wait_for_selector(f"{MESSAGE.format(4)} .siblings:has-text('2/2')")
    assert talk.texts() == [*WHOLE[:3], "answer two"]
    assert talk.received == [], "no model is asked for it"
    talk.wait_idle()
    talk.page.reload()
    talk.page.wait_for_selector(MESSAGE.format(4))
    assert talk.texts() == [*WHOLE[:3], "answer two"]
    assert [message["content"] for message in talk.turn("and?", "yes")["messages"]] == [
        *(*WHOLE[:3], "answer two", "and?")
    ]
    talk.page.click(f"{MESSAGE.format(4)} [aria-label='Earlier version']")
    assert talk.texts() == WHOLE


def test_another_model_and_parameters_are_for_one_answer_alone(talk: ScriptedPage) -> None:
    act_of(talk.page, MESSAGE.format(6), "Regenerate with")
    talk.page.select_option("dialog select", "greedy")
    talk.page.fill("dialog textarea", "no object")
    talk.page.click("dialog button:text-is('Regenerate')")
    talk.page.wait_for_selector("dialog .problem")
    assert talk.received == []
    talk.page.fill("dialog textarea", '{"temperature": 0.5, "seed": 7}')
    talk.page.click("dialog button:text-is('Regenerate')")
    request = talk.answer("another answer")
    assert {name: request[name] for name in request if name != "messages"} == {
        "model": "greedy",
        "temperature": 0.5,
        "seed": 7,
    }
    assert talk.page.inner_text(f"{MESSAGE.format(6)} .message-model") == "greedy"
    assert talk.page.get_attribute("#model", "value") == "plain"
    later = talk.turn("question 4", "answer 4")
    assert (later["model"], later.keys()) == ("plain", {"model", "messages"})
    assert [message["content"] for message in later["messages"]][-2:] == ["another answer", "question 4"]
