"""Make the pictures of docs/playground.md: python docs/images/playground/make.py URL PASSWORD [NAME …]

Signs in as `admin` at a served Lightcone that has SmolLM2-135M-Instruct, asks what the pictures show, and takes them
in Chromium. Look at each before it is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page

sys.path.append(str(Path(__file__).parents[1]))
from pictures import DESKTOP, PHONE, take

FOLDER = Path(__file__).parent
LAST = "#messages > li:last-child"


def ask(page: Page, text: str) -> None:
    page.fill("#composer-text", text)
    page.click("#send")
    page.wait_for_timeout(500)
    page.wait_for_selector("#stop, #stop-all", state="detached", timeout=40_000)
    page.wait_for_timeout(800)


def parameters(page: Page, tab: str = "Parameters") -> None:
    if page.get_attribute("#panel-toggle", "aria-expanded") != "true":
        page.click("#panel-toggle")
    page.click(f"role=tab[name=/{tab}/]")


def plain(page: Page) -> None:
    """Begin a new chat with the model's own parameters, and the panel closed."""
    parameters(page)
    if page.locator("#reset-all:enabled").count():
        page.click("#reset-all")
    page.click("#panel [aria-label=Close], #panel button:has-text('Done')")
    page.wait_for_timeout(1500)
    page.goto("/")
    page.wait_for_selector("#connection[data-state=ready]", state="attached")


def chat(page: Page) -> None:
    plain(page)
    ask(page, "Show a Python function that reverses a list.")


def story(page: Page) -> None:
    plain(page)
    ask(page, "Why do leaves turn red in autumn? Two sentences.")


def form(page: Page) -> None:
    plain(page)
    ask(page, "What does len() do in Python? One sentence.")
    parameters(page)
    page.fill("#field-temperature", "0.4")
    page.fill("#field-system", "You are a patient teacher of Python.")
    page.wait_for_timeout(500)


def tool(page: Page) -> None:
    plain(page)
    parameters(page, "Tools")
    if not page.locator("#tool-choice option[value='function:get_weather']").count():
        page.click("#tool-import")
        page.fill("#import-text", 'def get_weather(city: str) -> str:\n    "Tell the weather of a city."')
        page.click("text=Add tools")
    page.select_option("#tool-choice", "function:get_weather")
    ask(page, "What is the weather in Oslo?")
    page.fill(".call-result textarea >> nth=0", '{"temperature": 12, "sky": "rain"}')


def details(page: Page) -> None:
    plain(page)
    ask(page, "Name three planets.")
    page.click(f"{LAST} .message-counters")
    page.wait_for_timeout(500)


def tokens(page: Page) -> None:
    plain(page)
    ask(page, "Why is the sky blue? One sentence.")
    page.hover(LAST)
    page.click(f"{LAST} .menu summary")
    page.click(f"{LAST} .menu-act:has-text('Token view')")
    page.click("text=Regenerate with tokens")
    page.wait_for_timeout(500)
    page.wait_for_selector("#stop", state="detached", timeout=40_000)
    page.wait_for_selector(f"{LAST} .token >> nth=2")
    page.click(f"{LAST} .token >> nth=2")
    page.wait_for_timeout(500)


def compare(page: Page) -> None:
    plain(page)
    page.click("header [aria-label=Compare]")
    for pane, temperature in ((1, "0"), (2, "0.8")):
        page.click(f"#pane-{pane} .pane-settings > summary")
        page.fill(f"#pane-{pane} [name=temperature]", temperature)
        page.fill(f"#pane-{pane} [name=max_tokens]", "90")
        page.click(f"#pane-{pane} .pane-settings > summary")
    ask(page, "Describe a lighthouse in two sentences.")


PICTURES = {
    "chat-light": (chat, DESKTOP, "light"),
    "parameters-dark": (form, DESKTOP, "dark"),
    "tool-dark": (tool, DESKTOP, "dark"),
    "details-light": (details, DESKTOP, "light"),
    "tokens-light": (tokens, DESKTOP, "light"),
    "compare-light": (compare, DESKTOP, "light"),
    "phone-light": (story, PHONE, "light"),
    "phone-dark": (form, PHONE, "dark"),
}


if __name__ == "__main__":
    take(FOLDER, PICTURES, *sys.argv[1:])
