"""Chromium for page tests: Debian's binary, driven by playwright; nothing is downloaded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest
from django.db import connections

from chat.catalog.services import model_register, model_update
from tests.browser.contexts import Contexts, PatientBrowser
from tests.browser.scripted import ScriptedPage, note_problems, until_connected
from tests.browser.walk import SIZES, Walk, walked
from tests.conftest import CHROMIUMS
from tests.people import member

playwright_sync = pytest.importorskip("playwright.sync_api")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """Yield a headless browser; skip if none is installed.

    It ends with its module: playwright keeps an event loop running in this thread, so that no asynchronous test can
    run.
    """
    binary = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if binary is None:
        pytest.skip("Chromium is not installed (Debian package: chromium-headless-shell)")
    with playwright_sync.sync_playwright() as driver, pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "DJANGO_ALLOW_ASYNC_UNSAFE", "1"
        )  # that loop is the driver's: our queries in this thread hold up nobody
        browser = PatientBrowser(driver.chromium.launch(executable_path=binary, args=FLAGS))
        yield browser
        browser.close()
        for connection in connections.all(initialized_only=True):
            del connections[
                connection.alias
            ]  # made under the driver's loop: asynchronous tests would find it, and must not use it


@pytest.fixture
def page(chromium, lightcone) -> Iterator[object]:
    """A signed-in page at desktop width whose console errors fail the test."""
    problems: list[str] = []
    page = signed_in_page(chromium, lightcone, problems)
    yield page
    page.context.close()
    assert problems == []


def signed_in_page(chromium, served, problems: list[str]):
    """Yield the administrator's page, connected. `problems` gets the errors of its console."""
    page = chromium.new_context(base_url=served.base_url, viewport={"width": 1280, "height": 800}).new_page()
    note_problems(page, problems)
    page.goto("/sign-in")
    page.fill("#id_username", served.admin_user)
    page.fill("#id_password", served.admin_password)
    page.click("button[type=submit]")
    until_connected(page, problems)
    return page


def open_panel(page) -> None:
    """Open the panel of parameters, unless the account has left it open."""
    if page.get_attribute("#panel-toggle", "aria-expanded") != "true":
        page.click("#panel-toggle")
    page.wait_for_selector("#field-temperature, #panel .cm-content")


def set_fields(page, fields: str) -> None:
    """Type the fields of the request as JSON into the panel: these and no others."""
    open_panel(page)
    page.click("#panel [role=tab]:has-text('JSON')")
    model = page.get_attribute("#model", "value")
    page.click("#panel .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(json.dumps({"model": model, **json.loads(fields)}))
    page.click("#panel [role=tab]:has-text('Parameters')")


@pytest.fixture
def people(transactional_db) -> None:
    """Create two playground users and a model with its own defaults."""
    for name in ("ada", "bob"):
        member(name)
    model_register(name="plain", path="/models/plain")
    greedy = model_register(name="greedy", path="/models/greedy")
    greedy.sampling_defaults = {"temperature": 0, "top_k": 7}
    model_update(model=greedy)


@pytest.fixture(scope="module")
def contexts(chromium) -> Contexts:
    return Contexts(chromium)


@pytest.fixture
def scripted(contexts, live_server, valkey, people) -> Iterator[ScriptedPage]:
    """Yield a page whose socket the test scripts, not yet signed in. Errors in the page fail the test."""
    with contexts.one(base_url=live_server.url, viewport={"width": 1280, "height": 800}) as context:
        scripted = ScriptedPage(context, live_server.url)
        yield scripted
        scripted.close()
        assert scripted.problems == []


@pytest.fixture(params=SIZES)
def size(request) -> str:
    return str(request.param)


@pytest.fixture
def walk(size, contexts, live_server, valkey, people) -> Iterator[Walk]:
    """Yield a walk through the page, in each size."""
    yield from walked(contexts, live_server.url, size=size)
