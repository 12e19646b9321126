"""Take the pictures of the documentation: pages of a served Lightcone, in Chromium. Look at each of them."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
Picture = tuple[Callable[[Page], None], dict[str, int], str]
"""What leads to what is shown, the size of the page, and its theme."""


def take(folder: Path, pictures: Mapping[str, Picture], url: str, password: str, *names: str) -> None:
    """Sign in as `admin`, and write the named pictures, or all, as NAME.webp."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names or pictures:
            show, size, scheme = pictures[name]
            options: dict[str, Any] = {"viewport": size, "color_scheme": scheme, "has_touch": size is PHONE}
            page = browser.new_context(base_url=url, **options).new_page()
            page.set_default_timeout(20_000)
            page.goto("/sign-in")
            page.fill("#id_username", "admin")
            page.fill("#id_password", password)
            page.click("button[type=submit]")
            page.wait_for_selector("#connection[data-state=ready]", state="attached")
            show(page)
            session = page.context.new_cdp_session(page)
            taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": 82})
            (folder / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))
            page.context.close()
        browser.close()
