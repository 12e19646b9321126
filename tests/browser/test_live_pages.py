"""Workers and models, live, of a served Lightcone: a load watched from another page, polling, an answer cancelled."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import axe_findings
from tests.browser.scripted import note_problems
from tests.served import ServedLightcone

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.live]
MODEL = "SmolLM2-135M-Instruct"
WITHOUT_SOCKETS = """
window.WebSocket = class {
  constructor() { setTimeout(() => this.onclose({ code: 1006 })); }
  close() {}
};
"""
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLightcone]:
    """A Lightcone of its own, as its model is unloaded and its worker drained."""
    one = ServedLightcone(tmp_path_factory.mktemp("live"))
    with one.running():
        yield one


@pytest.fixture
def open_page(chromium: Any, served: ServedLightcone) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page of the console, signed in. Errors in its console fail the test."""
    problems: list[str] = []
    contexts = []

    def open_one(path: str, *, is_blocked: bool = False, **options: Any) -> Any:
        context = chromium.new_context(
            base_url=served.base_url, **{"viewport": {"width": 1280, "height": 800}, **options}
        )
        contexts.append(context)
        page = context.new_page()
        if is_blocked:
            page.add_init_script(WITHOUT_SOCKETS)
        note_problems(page, problems)
        page.goto(f"/admin/login/?next={path}")
        page.fill("#id_username", served.admin_user)
        page.fill("#id_password", served.admin_password)
        page.click("button[type=submit]")
        page.wait_for_url(f"**{path}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def state_of(page: Any, state: str) -> Any:
    return page.locator(".lc-live-model .lc-live-head", has_text=MODEL).locator(f".lc-state-{state}")


def act(page: Any, name: str) -> None:
    """Do an act that a live page leads to, and confirm it."""
    page.locator(".lc-live-acts, .lc-live-head").get_by_role("link", name=name, exact=True).first.click()
    page.locator("form button.lc-button", has_text=name).click()


def ask_long(served: ServedLightcone, ended: list[dict[str, Any]]) -> threading.Thread:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Count from one to a thousand in words."}],
        "max_tokens": 1500,
        "ignore_eos": True,
    }

    def ask() -> None:
        status, _, text = served.ask("POST", "/v1/chat/completions", json.dumps(body), timeout_s=180.0)
        ended.append({"status": status, "body": text})

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def test_a_model_is_loaded_and_unloaded_while_another_page_watches(open_page: Callable[..., Any]) -> None:
    watching, acting = open_page("/admin/workers/"), open_page("/admin/workers/")
    watching.locator(".lc-live-bar[data-state=live]").wait_for()
    state_of(watching, "ready").wait_for()
    watching.locator("[data-chart=tokens] canvas").wait_for()
    act(acting, "Unload")
    state_of(watching, "unloaded").wait_for()
    state_of(acting, "unloaded").wait_for()
    act(acting, "Load")
    state_of(watching, "ready").wait_for()


def test_figures_change_and_one_request_is_cancelled(open_page: Callable[..., Any], served: ServedLightcone) -> None:
    page = open_page("/admin/workers/")
    state_of(page, "ready").wait_for()
    ended: list[dict[str, Any]] = []
    thread = ask_long(served, ended)
    page.locator("[data-key=runs] tbody tr").wait_for()
    generated = page.locator(".lc-live-facts div", has=page.get_by_text("Generated tokens", exact=True)).locator("dd")
    assert wait_until(lambda: generated.inner_text() not in ("0/s", ""))
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_text("1 live request will be stopped").wait_for()
    page.locator("form button.lc-button", has_text="Cancel").click()
    thread.join(30)
    assert ended, "the request goes on"
    page.get_by_text("None at this moment.").wait_for()


def wait_until(is_true: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_page_without_a_socket_polls(open_page: Callable[..., Any]) -> None:
    page = open_page("/admin/workers/", is_blocked=True)
    page.locator(".lc-live-bar[data-state=polling]").wait_for()
    state_of(page, "ready").wait_for()
    with page.expect_response(lambda answer: "/admin/live/snapshot" in answer.url) as found:
        pass
    assert found.value.json()["snapshot"]["hosts"]
    page.get_by_role("button", name="Pause").click()
    page.locator(".lc-live-bar[data-state=paused]").wait_for()


def test_a_worker_is_drained_and_resumed(open_page: Callable[..., Any], served: ServedLightcone) -> None:
    page = open_page("/admin/workers/")
    state_of(page, "ready").wait_for()
    act(page, "Drain")
    state_of(page, "draining").wait_for()
    assert served.post("/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 1})[0] == 503
    act(page, "Resume")
    state_of(page, "ready").wait_for()
    assert served.post("/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 1})[0] == 200


def test_a_model_is_warmed_up_and_its_fit_is_told(open_page: Callable[..., Any]) -> None:
    page = open_page("/admin/workers/")
    state_of(page, "ready").wait_for()
    act(page, "Warm up")
    page.get_by_text("generated 5 tokens in").wait_for()
    page.locator("#live-panel .lc-state-ready").wait_for()
    page.get_by_role("link", name="Does it fit?").click(timeout=120_000)
    page.get_by_text("It fits the memory").wait_for()
    page.get_by_role("rowheader", name="Weights").wait_for()


@pytest.mark.parametrize(("viewport", "scheme"), [({"width": 1280, "height": 800}, "light"), (PHONE, "dark")])
@pytest.mark.parametrize("path", ["/admin/workers/", "/admin/models/try/?name=", "/admin/chat/servedmodel/"])
def test_live_pages_are_accessible_and_fit_a_phone(
    open_page: Callable[..., Any], tmp_path: Path, scheme: str, viewport: dict[str, int], path: str
) -> None:
    page = open_page(path, color_scheme=scheme, viewport=viewport)
    if "try" not in path:
        page.locator(".lc-live-bar[data-state=live]").wait_for()
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / "page.png", full_page=True)
