"""The socket of a live page ends in each way that it can: silence, a broken network, a session that has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from tests.browser.scripted import note_problems

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SILENCE_MS = 6_000
RETRY_MS = 32_000
SIGNED_OUT = 4401


class Sockets:
    """The sockets that a page has opened. Each begins with a panel that names its number."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, socket: Any) -> None:
        self.all.append(socket)
        snapshot = {"at": 1.0, "hosts": [], "live": {}}
        socket.send(json.dumps({"snapshot": snapshot, "html": f"<p>Socket {len(self.all)}</p>"}))


@pytest.fixture
def page(chromium: Any, live_server: Any, valkey: str, transactional_db: None) -> Iterator[Any]:
    """Yield the page of a superuser, whose clock the test moves. Errors in its console fail the test."""
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("root"))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    context = chromium.new_context(base_url=live_server.url)
    context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
    page = context.new_page()
    page.clock.install()
    problems: list[str] = []
    note_problems(page, problems)
    yield page
    context.close()
    assert problems == []


def test_a_live_page_connects_anew_until_its_session_ends(page: Any) -> None:
    sockets = Sockets()
    page.route_web_socket("**/ws/admin/live?*", sockets)
    page.goto("/admin/workers/")
    page.get_by_text("Socket 1").wait_for()
    page.locator(".lc-live-bar[data-state=live]").wait_for()

    page.clock.fast_forward(SILENCE_MS)
    page.get_by_text("Socket 2").wait_for()

    sockets.all[-1].close(code=1011, reason="")
    page.locator(".lc-live-bar:is([data-state=polling], [data-state=away])").wait_for()
    assert len(sockets.all) == 2, "it polls for a while"
    page.clock.fast_forward(RETRY_MS)
    page.get_by_text("Socket 3").wait_for()
    page.locator(".lc-live-bar[data-state=live]").wait_for()

    sockets.all[-1].close(code=SIGNED_OUT, reason="")
    page.locator(".lc-live-bar[data-state=ended]").wait_for()
    page.clock.fast_forward(RETRY_MS)
    assert page.locator(".lc-live-bar").get_attribute("data-state") == "ended"
    assert len(sockets.all) == 3
