"""A walk through states of the page, which notes in each what axe-core finds, small targets and sideways scroll."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib.auth import get_user_model

from chat.playground.kept import state_change
from tests.browser.axe import axe_findings
from tests.browser.contexts import Contexts
from tests.browser.scripted import ScriptedPage
from tests.browser.stub_routes import code_route, render_route, rendered

CHECKED = {"is_valid": True, "problems": [], "matches": True, "example": {"name": ""}, "max_bytes": 262144}
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES = {"desktop": "light", "phone": "dark"}
"""Each size is looked at in one theme: what is where depends on the size, and its colours on the theme."""
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
    """Goes through states of the page, and notes what is wrong in each: `findings`.

    `measures`: what the server says of the next prompts, the last for ever.
    """

    def __init__(self, scripted: ScriptedPage) -> None:
        self.scripted = scripted
        self.page = scripted.page
        self.findings: list[str] = []
        self.page.route("**/playground/api/check", lambda route: route.fulfill(json=CHECKED))
        code_route(self.page)
        self.measures = [rendered(1200, 300)]
        render_route(self.page, self.measures)

    def look(self, state: str, selector: str = "#composer-text", *presses: str) -> None:
        """Press these, and note what is wrong in the state that they lead to, once the selector is visible."""
        for pressed in presses:
            self.page.click(pressed)
        self.page.wait_for_selector(selector)
        self.scripted.wait_painted()
        found = axe_findings(self.page) + [f"small: {each}" for each in self.page.evaluate(SMALL)]
        if self.page.evaluate(IS_SIDEWAYS):
            found.append("scrolls sideways")
        self.findings += [f"{state}: {finding}" for finding in found]

    def peek(self, state: str, selector: str, *presses: str) -> None:
        """Look at what the presses open, and press Escape, which closes it."""
        self.look(state, selector, *presses)
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector(selector, state="hidden")

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


def walked(contexts: Contexts, url: str, *, size: str) -> Iterator[Walk]:
    width, height = SIZES[size]
    options = {
        "base_url": url,
        "viewport": {"width": width, "height": height},
        "color_scheme": THEMES[size],
        "reduced_motion": "reduce",
        "has_touch": size == "phone",
        "is_mobile": size == "phone",
    }
    with contexts.one(**options) as context:
        walk = Walk(ScriptedPage(context, url))
        yield walk
        walk.page.evaluate("dispatchEvent(new Event('pagehide'))")  # writes what is left
        walk.scripted.close()
        # Pages that say no are looked at too. The tests' SQLite refuses two writers at once; the page writes again.
        expected = ("(Forbidden)", "(Not Found)", "503")
        assert [problem for problem in walk.scripted.problems if not any(part in problem for part in expected)] == []
