"""The playground's first visit is light, and its rooms share the modules that are served with the page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.browser.contexts import PATIENCE_MS

pytestmark = [pytest.mark.browser, pytest.mark.slow]

MAX_BYTES = 120_000
ROOMS = """async () => {
  const rooms = JSON.parse(document.getElementById("later-modules").textContent);
  await Promise.all(Object.values(rooms).map((address) => import(address)));
  const loaded = performance.getEntriesByType("resource").map(({ name }) => new URL(name).pathname);
  return JSON.stringify([Object.keys(rooms), loaded.filter((path) => path.endsWith(".js"))]);
}"""


def test_the_first_visit_is_light(page: Any) -> None:
    context = page.context.browser.new_context(base_url=page.url, viewport={"width": 1280, "height": 800})
    context.add_cookies(page.context.cookies())
    context.set_default_timeout(PATIENCE_MS)
    visit = context.new_page()
    sizes: list[int] = []
    session = context.new_cdp_session(visit)
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    session.send("Network.enable")
    visit.goto("/", wait_until="networkidle")
    visit.wait_for_selector("#connection[data-state=ready]")
    context.close()
    assert sum(sizes) < MAX_BYTES
    assert len(sizes) < 25


def test_each_room_loads_and_no_module_is_there_twice(page: Any) -> None:
    rooms, paths = json.loads(page.evaluate(ROOMS))
    names = [re.sub(r"\.[0-9a-f]{12}\.js$", ".js", path.removeprefix("/static/")) for path in paths]
    assert set(rooms) <= set(names)
    assert len(names) == len(set(names))
    assert "chat/playground/app/core/acts.js" not in names  # it is part of the page's file
