"""What the page saves reaches the server once, in order, as its own person, and undoes nothing of others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model

from chat.conversations.models import Conversation, Draft, SearchFacet, SearchText, ShareLink, Turn
from chat.playground.kept import state_change, state_get
from tests.browser.scripted import MESSAGE, ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_page_changes_only_what_its_reader_changes(scripted: ScriptedPage) -> None:
    """An open page sent all that it knew of the account, and so undid what another device had kept meanwhile."""
    page = scripted.sign_in()
    user = get_user_model().objects.get(username="ada")
    elsewhere = {"replies": {"weather": "rain"}, "votes": [{"best": "plain"}]}
    state_change(user_id=user.pk, changes=elsewhere)
    page.click("#sidebar-close")
    scripted.wait_for(lambda: "sidebar" in state_get(user_id=user.pk))
    assert state_get(user_id=user.pk) == elsewhere | {"sidebar": False}


def test_a_change_that_did_not_reach_the_server_goes_with_the_next(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    user = get_user_model().objects.get(username="ada")
    lost = []
    page.route("**/playground/api/state", lambda route: (lost.append(route), route.abort()))
    page.click("#sidebar-close")
    scripted.wait_for(lambda: lost)
    page.unroute("**/playground/api/state")
    page.click("#panel-toggle")
    scripted.wait_for(lambda: state_get(user_id=user.pk) == {"sidebar": False, "panel": True})
    scripted.problems[:] = [problem for problem in scripted.problems if "ERR_FAILED" not in problem]


def saved(page: Any) -> list[str]:
    """Return, as it grows, what the server accepts of the page's turns: a question, or the state of an answer."""
    accepted: list[str] = []

    def note(response: Any) -> None:
        if "/turns" in response.url and response.ok:
            body = response.request.post_data_json
            accepted.append(body["turns"][0]["content"] if "turns" in body else body["state"])

    page.on("response", note)
    return accepted


@pytest.mark.parametrize(
    ("status", "code"), [(429, "rate_limit_exceeded"), (500, "server_error"), (503, "overloaded"), (0, "unreachable")]
)
def test_what_the_server_cannot_take_now_is_sent_again_in_order(scripted: ScriptedPage, status: int, code: str) -> None:
    page = scripted.sign_in()
    accepted = saved(page)
    failed: list[Any] = []

    def fail(route: Any) -> None:
        failed.append(route)
        if len(failed) > 3:
            route.continue_()
        elif status == 0:
            route.abort()
        else:
            route.fulfill(status=status, json={"error": {"message": "Not now.", "code": code, "param": None}})

    page.route("**/turns*", fail)
    page.route("**/turns/*", fail)
    scripted.ask("question 1")
    run = scripted.next("start")["id"]
    scripted.say(run, "answer 1")
    scripted.end(run)
    scripted.wait_for(lambda: accepted == ["question 1", "ended"])
    assert [route.request.method for route in failed] == ["POST", "POST", "POST", "POST", "PUT"]
    scripted.wait_for(lambda: "outbox" not in kept_in_tab(page))
    assert page.locator("#notice.is-problem").count() == 0
    page.reload()
    page.wait_for_selector(MESSAGE.format(2))
    assert scripted.texts() == ["question 1", "answer 1"]
    scripted.problems.clear()  # the browser's own lines about the failures


def test_a_server_in_trouble_is_tried_less_and_less_often(scripted: ScriptedPage) -> None:
    """Each open page with something to save asked twice a second for as long as the trouble lasted."""
    page = scripted.sign_in()
    tried: list[float] = []
    error = {"error": {"message": "Not now.", "code": "overloaded", "param": None}}

    def fail(route: Any) -> None:
        tried.append(time.monotonic())
        if len(tried) > 3:
            route.continue_()
        else:
            route.fulfill(status=503, json=error)

    page.route("**/turns", fail)
    scripted.ask("question 1")
    run = scripted.next("start")["id"]
    scripted.wait_for(lambda: len(tried) == 4)
    assert tried[3] - tried[0] > 3  # 0.5 + 1 + 2 s
    scripted.end(run)
    scripted.wait_idle()
    scripted.problems.clear()  # the browser's own lines about the failures


@pytest.mark.parametrize(
    "page_of_proxy",
    [{"status": 404, "body": "404 page not found"}, {"status": 200, "body": "<h1>Sign in to the network</h1>"}],
)
def test_a_write_that_only_a_proxy_has_answered_is_sent_again(
    scripted: ScriptedPage, page_of_proxy: dict[str, Any]
) -> None:
    """What a proxy said that had lost its server was taken for a refusal, and the text was dropped."""
    page = scripted.sign_in()
    answered: list[str] = []

    def answer(route: Any) -> None:
        answered.append(route.request.url)
        if len(answered) > 1:
            route.continue_()
        else:
            route.fulfill(content_type="text/html", **page_of_proxy)

    page.route("**/turns", answer)
    scripted.turn("question 1", "answer 1")
    scripted.wait_for(Turn.objects.filter(role="user", body__contains="question 1").exists)
    assert page.locator("#notice").count() == 0
    scripted.problems.clear()  # the browser's own lines about the failures


def kept_in_tab(page: Any) -> str:
    return str(page.evaluate("JSON.stringify({...sessionStorage})"))


def test_what_was_written_signed_out_is_saved_after_signing_in_again(scripted: ScriptedPage) -> None:
    """A refusal for want of a session counted as the server's last word, and the texts were dropped."""
    page = scripted.sign_in()
    page.context.clear_cookies(name=settings.SESSION_COOKIE_NAME)
    scripted.ask("question 1")
    page.wait_for_selector("#id_username")
    assert "question 1" in kept_in_tab(page)
    scripted.sign_in("ada")
    questions = Turn.objects.filter(conversation__user__username="ada", role="user")
    scripted.wait_for(lambda: ["question 1" in turn.body for turn in questions.all()] == [True])
    page.click(".chat-link")
    page.wait_for_selector(MESSAGE.format(2))
    assert scripted.texts()[0] == "question 1"
    scripted.wait_for(lambda: "outbox" not in kept_in_tab(page))


def test_a_page_that_is_still_open_writes_nothing_into_the_account_of_the_next_person(scripted: ScriptedPage) -> None:
    """A page of Ada that was open when Bob signed in elsewhere in the browser saved her texts as his."""
    page = scripted.sign_in("ada")
    scripted.turn("question 1", "answer 1")
    scripted.be("bob")
    scripted.ask("ada is confidential")
    page.wait_for_selector("text=No chats yet")
    scripted.wait_ready()
    assert scripted.texts() == []
    assert "confidential" not in kept_in_tab(page)
    bob = get_user_model().objects.get(username="bob")
    assert not Conversation.objects.filter(user=bob).exists()
    assert not Draft.objects.filter(user=bob).exists()
    assert "confidential" not in str(state_get(user_id=bob.pk))
    scripted.problems[:] = [problem for problem in scripted.problems if "404" not in problem]  # her chat is not his


def test_a_run_that_is_lost_is_not_saved_by_a_page_that_showed_nothing_of_it(scripted: ScriptedPage) -> None:
    """Another device may have shown more of it, and the server ends the turn of a run that it knows."""
    page = scripted.sign_in()
    accepted = saved(page)
    scripted.ask("question 1")
    run = scripted.next("start")["id"]
    page.reload()
    assert scripted.next("attach")["id"] == run
    scripted.fail(run, "not_resumable")
    page.wait_for_selector(".message-error:has-text('left no trace')")
    assert scripted.received == []
    scripted.turn("question 2", "answer 2")
    assert accepted == ["question 1", "question 2", "ended"]
    assert Turn.objects.get(role="assistant", state="begun").run_public_id.endswith(run)


def test_what_is_too_large_to_keep_holds_back_nothing_else(scripted: ScriptedPage) -> None:
    """Names of the page's state were saved together, and none of them with one that the server refused."""
    page = scripted.sign_in()
    page.evaluate(
        """async () => {
        const app = await import('/static/chat/playground/app/core/app.js');
        app.writeState('huge', 'x'.repeat(70_000));
        app.writeState('small', 7);
    }"""
    )
    page.wait_for_selector("text=This could not be saved")
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(lambda: state_get(user_id=user.pk).get("small") == 7)
    assert "huge" not in state_get(user_id=user.pk)
    page.evaluate("import('/static/chat/playground/app/core/app.js').then((app) => app.writeState('other', 8))")
    scripted.wait_for(lambda: state_get(user_id=user.pk).get("other") == 8)
    scripted.problems[:] = [problem for problem in scripted.problems if "413" not in problem]


def test_a_temporary_chat_leaves_nothing_on_the_server(scripted: ScriptedPage) -> None:
    """The system prompt that was set in it was kept for the next chat."""
    page = scripted.sign_in()
    page.click(".sidebar-temporary")
    page.wait_for_selector("text=A temporary chat")
    page.evaluate(
        """async () => {
            const acts = await import('/static/chat/playground/app/core/acts.js');
            const app = await import('/static/chat/playground/app/core/app.js');
            acts.changeSettings(app.chat.value, { system: 'zebra' });
        }"""
    )
    assert scripted.turn("a zebra", "zebra stripes")["messages"][0] == {"role": "system", "content": "zebra"}
    page.click(f"{MESSAGE.format(1)} [aria-label='Edit']")
    page.fill(".edit-form textarea", "two zebras")
    page.click("text=Save & send")
    scripted.answer("more zebra stripes")
    page.fill("#composer-text", "a third zebra")
    page.click("#panel-toggle")  # is kept for the account, so that what was changed before it is, too
    user = get_user_model().objects.get(username="ada")
    scripted.wait_for(lambda: "panel" in state_get(user_id=user.pk))
    page.evaluate("dispatchEvent(new Event('pagehide'))")
    scripted.wait_for(lambda: not scripted.in_flight)
    for table in (Conversation, Turn, Draft, SearchText, SearchFacet, ShareLink):
        assert not table.objects.exists()
    assert "zebra" not in str(state_get(user_id=user.pk))
    assert "zebra" not in kept_in_tab(page)
    assert page.url.endswith("/")
    page.reload()
    scripted.wait_ready()
    assert scripted.texts() == []
    assert page.input_value("#composer-text") == ""
