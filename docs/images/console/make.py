"""Make the pictures of docs/console.md: python docs/images/console/make.py URL PASSWORD [NAME …]

Signs in as `admin` at a served Lightcone whose keys have sent requests within the last day, with a price and a budget.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page

sys.path.append(str(Path(__file__).parents[1]))
from pictures import DESKTOP, PHONE, take

FOLDER = Path(__file__).parent


def at(path: str, *, seconds: int = 2) -> Callable[[Page], None]:
    """Return what opens a page, and waits while its charts are drawn."""

    def show(page: Page) -> None:
        page.goto(path)
        page.wait_for_timeout(seconds * 1000)

    return show


def request(page: Page) -> None:
    page.goto("/admin/chat/requestlog/")
    page.locator("#result_list tbody tr").first.get_by_role("link").first.click()
    page.wait_for_timeout(800)


PICTURES = {
    "overview-light": (at("/admin/"), DESKTOP, "light"),
    "workers-dark": (at("/admin/workers/", seconds=40), DESKTOP, "dark"),
    "usage-light": (at("/admin/usage/?group=project"), DESKTOP, "light"),
    "request-light": (request, DESKTOP, "light"),
    "budgets-dark": (at("/admin/chat/budget/"), DESKTOP, "dark"),
    "overview-phone": (at("/admin/"), PHONE, "light"),
    "keys-phone": (at("/admin/chat/apikey/"), PHONE, "dark"),
}


if __name__ == "__main__":
    take(FOLDER, PICTURES, *sys.argv[1:])
