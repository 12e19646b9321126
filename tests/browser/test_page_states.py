"""Every state of the page: no serious finding of axe-core, targets of 24 px, no sideways scroll, no lost focus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from chat.conversations.services import conversation_create
from chat.conversations.sharing import link_create
from chat.conversations.turns import TurnSent, turn_put
from chat.playground.kept import state_change
from tests.browser.axe import axe_findings
from tests.browser.scripted import MESSAGE, ScriptedPage
from tests.browser.test_insight import STORY, code_route, render_route, rendered
from tests.browser.test_tools import WEATHER

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHECKED = {"is_valid": True, "problems": [], "matches": None, "example": {"name": ""}}
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
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
# A target is what takes the press: of a box within a label, the label.
SMALL = """() => [...document.querySelectorAll('button, summary, select, textarea, input, a.button, a.menu-act')]
    .filter((node) => node.checkVisibility({visibilityProperty: true}) && !node.closest('[inert], .visually-hidden'))
    .map((node) => [node, (node.matches('input') && node.closest('label')) || node])
    .filter(([node]) => !node.matches(':disabled[type=checkbox], .token, .skip-link'))
    .map(([node, target]) => [node, target.getBoundingClientRect()])
    .filter(([node, {width, height}]) => width && height && (width < 23.9 || height < 23.9))
    .map(([node, {width, height}]) => `${Math.round(width)}x${Math.round(height)} ${node.outerHTML.slice(0, 120)}`)"""
IS_SIDEWAYS = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"


class Walk:
    """Goes through states of the page, and notes what is wrong in each: `findings`."""

    def __init__(self, scripted: ScriptedPage) -> None:
        self.scripted = scripted
        self.page = scripted.page
        self.findings: list[str] = []
        self.page.set_default_timeout(15_000)
        self.page.route("**/playground/api/check", lambda route: route.fulfill(json=CHECKED))
        code_route(self.page)
        render_route(self.page, [rendered(1200, 300)])

    def look(self, state: str, selector: str = "#composer-text") -> None:
        """Note what is wrong in this state, which is there once the selector is visible."""
        self.page.wait_for_selector(selector)
        self.scripted.wait_painted()
        found = axe_findings(self.page) + [f"small: {each}" for each in self.page.evaluate(SMALL)]
        if self.page.evaluate(IS_SIDEWAYS):
            found.append("scrolls sideways")
        self.findings += [f"{state}: {finding}" for finding in found]

    def sign_in(self, *, parameters: dict[str, Any] | None = None, **state: Any) -> None:
        """Sign in to a page without its side columns, or with what the state says."""
        chosen = {"model": "plain", "system": "Be brief.", "parameters": parameters or {}}
        user = get_user_model().objects.get(username="ada")
        state_change(user_id=user.pk, changes={"next": chosen, "sidebar": False, "panel": False} | state)
        self.scripted.sign_in()

    def ask(self, text: str = "What is it?") -> str:
        """Ask as on every device, and return the name of the run."""
        self.page.fill("#composer-text", text)
        self.page.press("#composer-text", "Control+Enter")
        return str(self.scripted.next("start")["id"])

    def end(self, run: str, **more: Any) -> None:
        self.scripted.end(run, **more)
        self.scripted.wait_idle()

    def leave(self, selector: str) -> None:
        """Press Escape, which closes what is open."""
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector(selector, state="hidden")

    def menu_of(self, message: str, act: str) -> None:
        self.page.click(f"{message} .message-acts .menu summary")
        self.page.click(f"{message} .menu-act:has-text('{act}')")


@pytest.fixture(params=SIZES)
def size(request) -> str:
    return str(request.param)


@pytest.fixture(params=["light", "dark"])
def theme(request) -> str:
    return str(request.param)


@pytest.fixture
def walk(size, theme, chromium, live_server, valkey, people) -> Iterator[Walk]:
    yield from walked(chromium, live_server.url, size=size, theme=theme)


def walked(chromium: Any, url: str, *, size: str, theme: str) -> Iterator[Walk]:
    width, height = SIZES[size]
    context = chromium.new_context(
        base_url=url,
        viewport={"width": width, "height": height},
        color_scheme=theme,
        reduced_motion="reduce",
        has_touch=size == "phone",
        is_mobile=size == "phone",
    )
    walk = Walk(ScriptedPage(context, url))
    yield walk
    walk.page.evaluate("dispatchEvent(new Event('pagehide'))")  # writes what is left
    walk.scripted.close()
    # Pages that say no are looked at too. The tests' SQLite refuses two writers at once; the page writes again.
    expected = ("(Forbidden)", "(Not Found)", "503")
    assert [problem for problem in walk.scripted.problems if not any(part in problem for part in expected)] == []


def test_a_conversation_is_accessible_in_each_of_its_states(walk: Walk) -> None:
    walk.sign_in()
    page, scripted = walk.page, walk.scripted
    walk.look("empty")
    plans = {"name": f"{'long ' * 30}name.txt", "mimeType": "text/plain", "buffer": b"x\n" * 400}
    page.set_input_files("#composer input[type=file]", plans)
    walk.look("attached", ".files .chip")
    page.click(".file-open")
    walk.look("text of a file", "dialog pre")
    walk.leave("dialog")
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
    page.click(".thoughts summary")
    walk.look("reasoning", ".thoughts-text")
    page.click(f"{ANSWER} .message-acts .menu summary")
    walk.look("menu of an answer", f"{ANSWER} .menu-box")
    walk.leave(f"{ANSWER} .menu-box")
    page.click(f"{ANSWER} [aria-label=Regenerate]")
    run = scripted.next("start")["id"]
    scripted.say(run, "One.")
    scripted.say(run, "Two.", choice=1)
    walk.end(run, num_choices=2)
    walk.look("versions and choices", ".choices")
    page.click(f"{MESSAGE.format(1)} [aria-label=Edit]")
    walk.look("edited", ".edit-form")
    walk.leave(".edit-form")
    scripted.fail(walk.ask("And this?"), "model_overloaded", "The model has no free place; try again in a minute.")
    walk.look("failed", ".message-error")
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
        walk.menu_of(ANSWER, act)
        walk.look(act, "dialog[open] .dialog-body > *")
        walk.leave("dialog")
    run = walk.ask("Where is it warm?")
    for index, place in enumerate(("Oslo", "Rome")):
        call = {"index": index, "id": place, "name": "weather", "arguments": f'{{"city": "{place}", "days": "two"}}'}
        scripted.say(run, "", tool_calls=[call])
    walk.end(run)
    walk.look("calls", "#result-Oslo")
    page.locator("[aria-label='More results']").first.click()
    walk.look("menu of a result", ".call .menu-box")
    walk.leave(".call .menu-box")
    page.click("#model")
    walk.look("models", ".models")
    walk.leave(".models")
    page.click(".account summary")
    walk.look("account", "#sign-out")
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
    if size == "phone":
        page.click("#sidebar-toggle")
    walk.look("list", "[data-chat=inside]")
    more = "[data-chat=today] .row-more"
    page.hover("[data-chat=today]")
    page.click(more)
    walk.look("menu of a row", ".popover")
    page.click(".popover >> text=Share")
    page.click("#share-make")
    walk.look("share", ".share-link")
    walk.leave("dialog")
    page.fill("#chat-search", "trams")
    walk.look("found", ".hit-link")
    page.fill("#chat-search", "nowhere")
    walk.look("nothing found", ".sidebar-empty:has-text('Nothing')")
    page.click("[aria-label='Clear the search']")
    page.click("#chat-filters")
    page.check("#filter-tools")
    walk.look("filters", ".sidebar-empty:has-text('No chat fits')")
    page.click("#chat-filters")
    walk.look("filters that hold", ".filter-chips")
    page.click(".filter-chips .chip")
    page.hover("[data-chat=today]")
    page.click(more)
    page.click(".popover >> text=Tags")
    walk.look("tags", "[aria-label='Remove the tag Trips']")
    walk.leave("dialog")
    page.click(".view-menu summary")
    walk.look("menu of the list", ".view-menu .menu-box")
    page.click("text=Select several")
    walk.look("selection", ".picked-bar")
    page.click("[aria-label='End the selection']")
    page.click(".view-menu summary")
    page.click("text=Import …")
    walk.look("import", "dialog[open]")
    walk.leave("dialog")
    page.click(".view-menu summary")
    page.click(".view-menu >> text=Archived chats")
    walk.look("archived", ".other-chats li")
    assert walk.findings == []


def test_the_panel_is_accessible(walk: Walk) -> None:
    walk.sign_in(parameters={"temperature": 0.5, "tools": [WEATHER]})
    page = walk.page
    page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature")
    page.evaluate("document.querySelectorAll('.params-group').forEach((group) => (group.open = true))")
    walk.look("parameters")
    for tab, selector in (("JSON", ".json-editor .cm-content"), ("Tools", "#tool-choice"), ("Output", "#output-mode")):
        page.click(f".panel [role=tab]:has-text('{tab}')")
        walk.look(tab, selector)
    page.click(".presets summary")
    walk.look("presets", "#preset-name")
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
    get_user_model().objects.get(username="bob").user_permissions.clear()
    walk.scripted.be("bob")
    walk.page.goto("/")
    walk.look("closed", ".error-card")
    assert walk.findings == []


@pytest.fixture
def narrow(chromium, live_server, valkey, people) -> Iterator[Walk]:
    yield from walked(chromium, live_server.url, size="desktop", theme="light")


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


@pytest.mark.parametrize("theme", ["light"])
def test_the_focus_goes_back_to_what_opened_a_menu_or_a_dialog(walk: Walk, theme: str, size: str) -> None:
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
    expect_focus(page, "#chat-search")
    press(page, "#sidebar-close")
    expect_focus(page, "#sidebar-toggle")
