"""Every page outside of the playground: no serious finding of axe-core, one theme, no console error."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from chat.access.chat_projects import default_project
from chat.access.keys import key_create
from chat.models import Project
from chat.usage.services import usage_records_write
from tests.browser.axe import axe_findings
from tests.browser.scripted import note_problems
from tests.browser.walk import SIZES, THEMES
from tests.chat.records import NOON, record

pytestmark = [pytest.mark.browser, pytest.mark.slow]
FOR_ALL = {"sign-in": "/sign-in", "not found": "/nowhere", "docs": "/docs", "console sign-in": "/admin/login/"}
FOR_STAFF = {
    "overview": "/admin/",
    "keys": "/admin/chat/apikey/",
    "new key": "/admin/chat/apikey/add/",
    "requests": "/admin/chat/requestlog/",
    "models": "/admin/chat/servedmodel/",
    "usage": "/admin/usage/",
    "budgets": "/admin/chat/budget/",
    "new budget": "/admin/chat/budget/add/",
    "new price": "/admin/chat/modelprice/add/",
    "new invitation": "/admin/chat/invitation/add/",
    "mail": "/admin/mail/",
}


class Opened:
    """A browser's page with its theme, and what went wrong on it."""

    def __init__(self, page: Any, theme: str) -> None:
        self.page = page
        self.theme = theme
        page.add_init_script(
            f"localStorage.setItem('lightcone.theme', localStorage.getItem('lightcone.theme') || '{theme}')"
        )
        self.problems: list[str] = []
        note_problems(page, self.problems)

    def goto(self, path: str) -> Any:
        self.page.goto(path, wait_until="networkidle")
        return self.page


@pytest.fixture(params=SIZES)
def opened(request, contexts, live_server, valkey, transactional_db) -> Iterator[Opened]:
    """Yield an opened page, in each size; nobody is signed in."""
    width, height = SIZES[request.param]
    size = {"width": width, "height": height}
    with contexts.one(base_url=live_server.url, viewport=size, reduced_motion="reduce") as context:
        yield Opened(context.new_page(), THEMES[request.param])


@pytest.fixture
def of_admin(opened, live_server) -> Opened:
    """Return the page with an administrator signed in, and one key in the lists."""
    admin = get_user_model().objects.create_superuser("root")
    key_create(project=default_project(), name="First key")
    client = Client()
    client.force_login(admin)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    opened.page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
    return opened


def expect_good(opened: Opened, path: str) -> None:
    page = opened.goto(path)
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == opened.theme
    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways"
    # The tests' server has no sockets; live pages poll instead.
    expected = ("404 (Not Found)", "/ws/admin/live")
    assert [problem for problem in opened.problems if not any(part in problem for part in expected)] == []


@pytest.mark.parametrize("name", FOR_ALL)
def test_a_page_for_all_is_accessible(opened, name):
    expect_good(opened, FOR_ALL[name])


@pytest.mark.parametrize("name", FOR_STAFF)
def test_a_page_of_the_console_is_accessible(of_admin, name):
    expect_good(of_admin, FOR_STAFF[name])


def test_charts_have_the_colours_of_their_legends(of_admin):
    """They were black: the tokens are colours for both themes, which a canvas does not know."""
    page = of_admin.goto("/admin/usage/")
    named = (
        "(names) => names.map((name) => getComputedStyle(document.querySelector(`.lc-swatch.${name}`)).backgroundColor)"
    )
    wanted = page.evaluate(named, ["lc-good", "lc-left", "lc-poor", "lc-bad"])
    drawn = page.evaluate("Object.values(Chart.instances)[0].data.datasets.map((part) => part.backgroundColor)")
    assert drawn == wanted
    assert len(set(drawn)) == 4


def test_an_operation_of_the_docs_is_accessible_when_open(opened):
    page = opened.goto("/docs")
    page.click("#operations-chat-create_chat_completion .opblock-summary-control")
    page.wait_for_selector("#operations-chat-create_chat_completion textarea")
    assert axe_findings(page) == []


def test_console_and_pages_share_one_theme(of_admin):
    """The console's own control and ours both choose, and each takes up what the other one chose."""
    page = of_admin.goto("/sign-in?next=/docs")
    page.goto("/docs")
    page.click("[data-set-theme=dark]")
    of_admin.goto("/admin/")
    assert page.evaluate("document.documentElement.classList.contains('dark')")
    page.evaluate("Alpine.$data(document.documentElement).switchTheme('light')")
    page.wait_for_function("localStorage.getItem('lightcone.theme') === 'light'")
    of_admin.goto("/docs")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.get_attribute("[data-set-theme=light]", "aria-pressed") == "true"


def test_the_docs_begin_with_chat_and_end_with_health(opened):
    page = opened.goto("/docs")
    page.wait_for_selector(".opblock-tag[data-tag=health]")
    groups = page.eval_on_selector_all(".opblock-tag", "tags => tags.map(tag => tag.dataset.tag)")
    assert (groups[0], groups[-1]) == ("chat", "health")


def test_a_request_is_found_by_its_filters_and_read(of_admin):
    """From the list by chips to the page of a request, its kept texts, and a chat made of them."""
    project = default_project()
    Project.objects.filter(pk=project.pk).update(keeps_api_texts=True)
    plain = {"request": {"messages": [{"role": "user", "content": "hello"}]}, "answers": [{"content": "hi there"}]}
    texts = zlib.compress(json.dumps(plain).encode())
    here = {"org_id": project.org_id, "project_id": project.pk}
    slow = record(client_request_id="slow-1", ended_at=NOON + 60, texts=texts, **here)
    usage_records_write([slow, *(record(client_request_id=f"quick-{index}", **here) for index in range(3))])
    expect_good(of_admin, "/admin/chat/requestlog/?status=200&min_ms=30000&q=slow")
    page = of_admin.page
    assert page.locator("a.lc-chip").count() == 3
    page.click("a.lc-chip:has-text('slow')")
    page.wait_for_url("**/requestlog/?status=200&min_ms=30000")
    run_id = str(UUID(hex=slow["run_id"]))
    expect_good(of_admin, f"/admin/chat/requestlog/{run_id}/change/")
    assert "59.88 s" in page.inner_text("section[aria-labelledby=when]")
    page.click("text=Read what was asked and answered")
    page.wait_for_url(f"**/requestlog/{run_id}/text/")
    assert "hi there" in page.inner_text("#content")
    assert axe_findings(page) == []
    page.click("text=Open in the playground")
    page.wait_for_url("**/c/*")


def test_a_new_budget_asks_for_what_its_scope_means(of_admin) -> None:
    page = of_admin.goto("/admin/chat/budget/add/")
    fields = {"project": "#id_project", "key": "#id_key", "org": "#id_org"}

    def shown() -> set[str]:
        return {name for name, place in fields.items() if page.locator(place).is_visible()}

    page.locator("#id_key").wait_for(state="hidden")
    assert shown() == {"project"}
    page.select_option("#id_scope", "key")
    page.locator("#id_key").wait_for(state="visible")
    assert shown() == {"key"}
    assert of_admin.problems == []
