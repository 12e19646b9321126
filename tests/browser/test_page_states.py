"""Every state of the page: no serious finding of axe-core, targets of 24 px, no sideways scroll, no lost focus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.services import conversation_create
from chat.conversations.sharing import link_create
from chat.conversations.turns import TurnSent, turn_put
from tests.browser.scripted import MESSAGE
from tests.browser.stub_routes import rendered
from tests.browser.test_insight import STORY
from tests.browser.test_tools import WEATHER
from tests.browser.walk import IS_SIDEWAYS, Walk, walked

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ANSWER = MESSAGE.format(2)
MARKDOWN = r"""## Three things

A **list** with `code` and a [link](https://example.com/), and \(a^2 + b^2\).

- [ ] to do
- [x] done

| model | context | tok/s | GB | licence |
| --- | ---: | ---: | ---: | --- |
| SmolLM2-135M-Instruct | 8,030,261,248 | 112.5 | 0.27 | Apache-2.0 |

> Quoted[^1]

```python
def reverse(items: list[int]) -> list[int]:
    # a comment
    return items[::-1] + [1, "two", None]  # and a line that is much longer than the column of a phone is wide
```

$$\int_0^1 x^2\,dx = \tfrac13$$

[^1]: A footnote.
"""
CHATS = {
    "pinned": {"title": "Two haikus", "is_pinned": True},
    "inside": {"title": "Schema of invoices", "folder": "Work"},
    "today": {"title": "Trams in Lisbon and everything else that climbs a hill there", "tags": ["Trips", "by rail"]},
    "archived": {"title": "An old plan", "is_archived": True},
}


def test_a_conversation_is_accessible_in_each_of_its_states(walk: Walk) -> None:
    walk.sign_in()
    page, scripted = walk.page, walk.scripted
    walk.look("empty")
    plans = {"name": f"{'long ' * 30}name.txt", "mimeType": "text/plain", "buffer": b"x\n" * 400}
    page.set_input_files("#composer input[type=file]", plans)
    walk.look("attached", ".files .chip")
    walk.peek("text of a file", "dialog pre", ".file-open")
    run = walk.ask()
    walk.look("waiting", ".pending")
    scripted.tell(
        {"type": "waiting", "id": run, "state": "loading", "phase": "weights", "fraction": 0.4, "num_before": 1}
    )
    walk.look("loading", ".waits-for")
    scripted.say(run, "", reasoning="First this.\nThen that.")
    walk.look("thinking", ".thoughts-text")
    scripted.say(run, MARKDOWN)
    walk.look("growing", ".still-writing")
    walk.end(run)
    walk.look("formatted", f"{ANSWER} .formula")
    walk.look("reasoning", ".thoughts-text", ".thoughts summary")
    walk.peek("menu of an answer", f"{ANSWER} .menu-box", f"{ANSWER} .message-acts .menu summary")
    page.click(f"{ANSWER} [aria-label=Regenerate]")
    run = scripted.next("start")["id"]
    scripted.say(run, "One.")
    scripted.say(run, "Two.", choice=1)
    walk.end(run, num_choices=2)
    walk.look("versions and choices", ".choices")
    walk.peek("edited", ".edit-form", f"{MESSAGE.format(1)} [aria-label=Edit]")
    scripted.fail(walk.ask("And this?"), "model_overloaded", "The model has no free place; try again in a minute.")
    walk.look("failed", ".message-error")
    assert walk.findings == []


def test_what_keeps_an_answer_or_a_message_waiting_is_accessible(walk: Walk) -> None:
    walk.sign_in()
    page, scripted = walk.page, walk.scripted
    run = walk.ask()
    scripted.say(run, "One.")
    scripted.tell({"type": "resuming", "id": run})
    walk.look("resuming", ".waiting")
    scripted.say(run, "Two.")
    page.fill("#composer-text", "And then?")
    page.press("#composer-text", "Control+Enter")
    walk.look("queue", ".queued")
    scripted.is_reachable = False
    scripted.socket.close(code=1001)
    walk.look("lost", "#connection[data-state=lost]")
    scripted.is_reachable = True
    scripted.wait_ready()
    scripted.next("attach")
    scripted.fail(run, "model_overloaded", "The model has no free place; try again in a minute.")
    walk.look("queue after a failure", ".queue .button-small")
    page.click("[aria-label='Withdraw the waiting message']")
    run = walk.ask()
    scripted.say(run, "Three.")
    walk.end(run)
    walk.measures[:] = [rendered(9000)]
    page.fill("#composer-text", "longest")
    walk.look("too long", ".meter-problem")
    assert walk.findings == []


def test_what_tells_of_an_answer_is_accessible(walk: Walk) -> None:
    walk.sign_in(parameters={"tools": [WEATHER]})
    page, scripted = walk.page, walk.scripted
    run = walk.ask("hello")
    for each in STORY:
        scripted.say(run, each["token"], logprobs=[each])
    walk.end(run)
    page.click(f"{ANSWER} [aria-label=Tokens]")
    page.locator("button.token").nth(2).click()
    walk.look("tokens", ".token-card")
    for act in ("Details", "View code", "Regenerate with"):
        opener = (f"{ANSWER} .message-acts .menu summary", f"{ANSWER} .menu-act:has-text('{act}')")
        walk.peek(act, "dialog[open] .dialog-body > *", *opener)
    run = walk.ask("Where is it warm?")
    for index, place in enumerate(("Oslo", "Rome")):
        call = {"index": index, "id": place, "name": "weather", "arguments": f'{{"city": "{place}", "days": "two"}}'}
        scripted.say(run, "", tool_calls=[call])
    walk.end(run)
    walk.look("calls", "#result-Oslo")
    page.locator("[aria-label='More results']").first.click()
    walk.peek("menu of a result", ".call .menu-box")
    walk.peek("models", ".models", "#model")
    walk.look("account", "#sign-out", ".account summary")
    assert walk.findings == []


def keep_chats() -> None:
    user = get_user_model().objects.get(username="ada")
    for chat, fields in CHATS.items():
        conversation_create(user_id=user.pk, public_id=chat, fields=fields)
        answer = {"choices": [{"content": MARKDOWN, "reasoning": "", "calls": []}], "shown": 0}
        turn_put(user_id=user.pk, conversation_id=chat, sent=TurnSent("q", "", "user", "ended", {"content": "Trams?"}))
        turn_put(
            user_id=user.pk, conversation_id=chat, sent=TurnSent("a", "q", "assistant", "ended", {"content": answer})
        )


def test_the_list_of_chats_is_accessible(walk: Walk, size: str) -> None:
    keep_chats()
    walk.sign_in(sidebar=True, folders=["Work"])
    page = walk.page
    walk.look("list", "[data-chat=inside]", *(["#sidebar-toggle"] if size == "phone" else []))
    more = "[data-chat=today] .row-more"
    page.hover("[data-chat=today]")
    walk.look("menu of a row", ".popover", more)
    walk.peek("share", ".share-link", ".popover >> text=Share", "#share-make")
    page.fill("#chat-search", "trams")
    walk.look("found", ".hit-link")
    page.fill("#chat-search", "nowhere")
    walk.look("nothing found", ".sidebar-empty:has-text('Nothing')")
    page.click("[aria-label='Clear the search']")
    page.click("#chat-filters")
    page.check("#filter-tools")
    walk.look("filters", ".sidebar-empty:has-text('No chat fits')")
    walk.look("filters that hold", ".filter-chips", "#chat-filters")
    page.click(".filter-chips .chip")
    page.hover("[data-chat=today]")
    walk.peek("tags", "[aria-label='Remove the tag Trips']", more, ".popover >> text=Tags")
    walk.look("menu of the list", ".view-menu .menu-box", ".view-menu summary")
    walk.look("selection", ".picked-bar", "text=Select several")
    page.click("[aria-label='End the selection']")
    walk.peek("import", "dialog[open]", ".view-menu summary", "text=Import …")
    walk.look("archived", ".other-chats li", ".view-menu summary", ".view-menu >> text=Archived chats")
    page.click("[aria-label='Back to the chats']")
    page.focus("[data-chat=pinned] .chat-link")
    page.keyboard.press("F2")
    walk.look("renamed", ".rename-input")
    page.keyboard.press("Escape")
    page.hover("[data-chat=today]")
    walk.look("folders", ".popover >> text=New folder", more, ".popover >> text=Move to folder")
    walk.peek("new folder", "dialog[open] input", ".popover >> text=New folder")
    page.hover("[data-chat=today]")
    walk.look("deleted", "#notice", more, ".popover >> text=Delete")
    walk.look("deleted ones", ".other-chats li", ".view-menu summary", ".view-menu >> text=Deleted chats")
    assert walk.findings == []


def test_the_panel_is_accessible(walk: Walk) -> None:
    walk.sign_in(parameters={"temperature": 0.5, "tools": [WEATHER]})
    page = walk.page
    page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature")
    page.evaluate("document.querySelectorAll('.params-group').forEach((group) => (group.open = true))")
    walk.look("parameters")
    for tab, selector in (("JSON", ".json-editor .cm-content"), ("Tools", "#tool-choice"), ("Output", "#output-mode")):
        walk.look(tab, selector, f".panel [role=tab]:has-text('{tab}')")
    walk.look("presets", "#preset-name", ".presets summary")
    assert walk.findings == []


def test_the_pages_for_others_are_accessible(walk: Walk) -> None:
    keep_chats()
    user = get_user_model().objects.get(username="ada")
    made = link_create(user_id=user.pk, conversation_id="today", lives_s=None)
    walk.page.goto(f"/shared/{made.token}")
    walk.look("shared", ".message-body .formula")
    assert walk.page.evaluate("getComputedStyle(document.querySelector('.table-frame')).overflowX") == "auto"
    made = link_create(user_id=user.pk, conversation_id="today", lives_s=None, password="seven trams")  # noqa: S106
    walk.page.goto(f"/shared/{made.token}")
    walk.look("asks for a password", "#password")
    walk.page.fill("#password", "another")
    walk.page.press("#password", "Enter")
    walk.look("wrong password", ".alert")
    walk.page.goto("/shared/none")
    walk.look("shared no more", ".shared-gone")
    get_user_model().objects.get(username="bob").memberships.update(may_chat=False)
    walk.scripted.be("bob")
    walk.page.goto("/")
    walk.look("closed", ".error-card")
    assert walk.findings == []


@pytest.fixture
def narrow(contexts, live_server, valkey, people) -> Iterator[Walk]:
    yield from walked(contexts, live_server.url, size="desktop")


IN_SIGHT = """(node) => {
    const { top, bottom, left, right } = node.getBoundingClientRect();
    const seen = document.elementFromPoint((left + right) / 2, (Math.max(top, 0) + Math.min(bottom, innerHeight)) / 2);
    return bottom > 0 && top < innerHeight && node.contains(seen);
}"""


def test_all_can_be_reached_on_a_narrow_page_and_enlarged_four_times(narrow: Walk) -> None:
    narrow.sign_in()
    run = narrow.ask()
    narrow.scripted.say(run, MARKDOWN)
    narrow.end(run)
    page = narrow.page
    for width, height in ((320, 640), (360, 225)):
        page.set_viewport_size({"width": width, "height": height})
        narrow.scripted.wait_painted()
        assert not page.evaluate(IS_SIDEWAYS), width
        for selector in ("#composer-text", "#send", "#messages > li:last-child .message-foot", "#panel-toggle"):
            page.locator(selector).scroll_into_view_if_needed()
            assert page.locator(selector).evaluate(IN_SIGHT), (width, selector)
        page.click("#panel-toggle")
        page.locator("#field-temperature").scroll_into_view_if_needed()
        assert page.locator("#field-temperature").evaluate(IN_SIGHT), width
        page.click(".panel >> text=Done")
        page.click("#sidebar-toggle")
        assert page.locator("#sidebar-close").evaluate(IN_SIGHT), width
        page.click("#sidebar-close")


def press(page: Any, selector: str, key: str = "Enter") -> None:
    page.locator(selector).first.focus()
    page.keyboard.press(key)


def expect_focus(page: Any, selector: str) -> None:
    """The focus comes to such an element, once what held it before has gone."""
    page.wait_for_selector(f"{selector}:focus", state="attached")


def test_the_focus_goes_back_to_what_opened_a_menu_or_a_dialog(walk: Walk, size: str) -> None:
    keep_chats()
    walk.sign_in()
    page = walk.page
    run = walk.ask()
    walk.scripted.say(run, "Yes.")
    walk.end(run)
    more = f"{ANSWER} .message-acts .menu summary"
    edit = f"{MESSAGE.format(1)} [aria-label=Edit]"
    for opener in ("#model", ".account summary", "#panel-toggle", more, edit):
        press(page, opener)
        page.wait_for_selector(".popover, .menu-box:popover-open, .panel, .edit-form")
        if opener == "#panel-toggle" and size == "desktop":
            press(page, ".panel-head [aria-label=Close]")
        else:
            page.keyboard.press("Escape")
        expect_focus(page, opener)
    for act, opened in (("Details", "dialog"), ("View code", "dialog"), ("Edit", ".edit-form")):
        press(page, more)
        page.wait_for_selector(f"{ANSWER} .menu-box")
        press(page, f"{ANSWER} .menu-act:has-text('{act}')")
        page.wait_for_selector(opened)
        page.keyboard.press("Escape")
        page.wait_for_selector(opened, state="hidden")
        expect_focus(page, more)
    press(page, "#sidebar-toggle")
    expect_focus(page, "#sidebar-close")
    row = "[data-chat=today] :is(.chat-link, .row-more)"
    press(page, "[data-chat=today] .row-more")
    page.wait_for_selector(".popover")
    page.keyboard.press("Escape")
    expect_focus(page, row)
    press(page, "[data-chat=today] .row-more")
    page.wait_for_selector(".popover")
    press(page, ".popover .menu-act:has-text('Share')")
    page.wait_for_selector("dialog")
    page.keyboard.press("Escape")
    expect_focus(page, row)
    press(page, ".view-menu summary")
    page.wait_for_selector(".view-menu .menu-box")
    press(page, ".view-menu .menu-act:has-text('Archived')")
    press(page, "[aria-label='Unarchive An old plan']")
    page.wait_for_selector("text=No chat is archived.")
    expect_focus(page, "#sidebar *")
    press(page, "[aria-label='Back to the chats']")
    expect_focus(page, ".view-menu summary")
    press(page, "#sidebar-close")
    expect_focus(page, "#sidebar-toggle")
