"""Steps of tests in which chats are compared side by side on a scripted page."""

from __future__ import annotations

from typing import Any

from tests.browser.scripted import ScriptedPage

COMPARE = "header [aria-label=Compare]"


def compare(scripted: ScriptedPage) -> Any:
    """Sign in and compare two models."""
    page = scripted.sign_in()
    page.click(COMPARE)
    page.wait_for_selector("#pane-2")
    return page


def asked(scripted: ScriptedPage, question: str, num: int = 2) -> list[dict[str, Any]]:
    """Ask all panes and return their requests in the order of the panes."""
    scripted.ask(question)
    return [scripted.next("start") for _ in range(num)]


def answered(scripted: ScriptedPage, starts: list[dict[str, Any]], *texts: str) -> None:
    for number, (start, text) in enumerate(zip(starts, texts, strict=True)):
        scripted.say(start["id"], text)
        scripted.end(start["id"], num_tokens=5 + number)
    scripted.page.wait_for_selector("#send:visible")
    scripted.page.wait_for_selector(".pane-foot .figures")
    scripted.wait_painted()


def pane_texts(page: Any, pane: int) -> list[str]:
    return [text.strip() for text in page.locator(f"#pane-{pane} [data-turn] .message-body").all_text_contents()]


def shows(scripted: ScriptedPage, pane: int, *texts: str) -> None:
    """Wait until a pane shows these messages; the first answer waits for what draws it."""
    scripted.wait_for(lambda: pane_texts(scripted.page, pane) == list(texts))


def act(page: Any, pane: int, name: str) -> None:
    """Choose an act of a pane's menu."""
    page.click(f"#pane-{pane} .pane-head .menu summary")
    page.click(f"#pane-{pane} .pane-head .menu-act:has-text('{name}')")
