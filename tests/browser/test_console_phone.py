"""The console on a phone, in German, whose words are long: compact rows, nothing cut, and targets for fingers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chat.access.models import Org, Project
from chat.usage.services import usage_records_write
from tests.browser.axe import CONTRAST, axe_findings
from tests.browser.scripted import wait_painted
from tests.chat.console.test_roles_matrix import NONE, OWN_PAGES, PAGES, Place, address, name_of, rows_made
from tests.chat.records import record
from tests.people import member

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LONG = "Donaudampfschifffahrtsgesellschaft Verwaltungsabteilung"
BEYOND = """() => [...document.querySelectorAll("body *")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }))
  .filter((node) => !node.closest(".lc-scroll, .simplebar-wrapper"))
  .map((node) => [node, node.getBoundingClientRect()])
  .filter(([, { left, right }]) => left < innerWidth && right > innerWidth + 1)
  .map(([node]) => `${node.tagName}.${node.className}`)"""
CUT = """() => [...document.querySelectorAll("#result_list .data-row > :is(td:not(.action-checkbox), th)")]
  .filter((node) => node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1)
  .map((node) => node.className.split(" ")[0])"""
# Boxes that switch have a label, which takes the press too.
SMALL = """() => [...document.querySelectorAll("button, summary, select, textarea, input, a")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
  .filter((node) => !node.matches("[type=hidden], [type=checkbox], [type=radio], .select2-search__field"))
  .filter((node) => !node.matches("a") || getComputedStyle(node).display !== "inline")
  .map((node) => [node, node.getBoundingClientRect()])
  .filter(([, { width, height, left }]) => width > 1 && height > 1 && height < 39.5 && left >= 0 && left < innerWidth)
  .map(([node, { height }]) => `${Math.round(height)} px: ${node.outerHTML.slice(0, 200)}`)"""
HEIGHTS = """() => [...document.querySelectorAll("#result_list .data-row")].map((row) => row.offsetHeight)"""
COMPACT_PX = 250


@pytest.fixture
def phone(contexts, live_server, valkey, transactional_db) -> Iterator[Any]:
    """Yield a page on a phone whose owner may do all, beside a row of each table."""
    home, away = Org.objects.create(name=LONG), Org.objects.create(name=name_of(Org, Place.OTHER))
    project, other = (Project.objects.create(org=org, name=f"{LONG} ({org.pk})") for org in (home, away))
    rows = rows_made(member("somebody", org=home), project, other)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    options = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "locale": "de-DE"}
    with contexts.one(base_url=live_server.url, reduced_motion="reduce", **options) as context:
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
        page = context.new_page()
        page.rows = rows
        yield page


def found_at(page: Any, place: str) -> list[str]:
    page.goto(place)
    found = [f"beyond the edge: {each}" for each in page.evaluate(BEYOND)]
    found += [f"cut: {each}" for each in page.evaluate(CUT)]
    return found + [f"small: {each}" for each in page.evaluate(SMALL)]


def test_lists_are_compact_rows_and_forms_fit(phone: Any) -> None:
    found = {}
    for model, of in PAGES.items():
        row = next(iter(phone.rows[model].values()))
        places = [address(model, "changelist"), address(model, "change", row.pk)]
        for place in places + ([] if of.add is NONE else [address(model, "add")]):
            if problems := found_at(phone, place):
                found[place] = problems
            if heights := [each for each in phone.evaluate(HEIGHTS) if each > COMPACT_PX]:
                found[f"heights of {place}"] = heights
    assert not found, "\n".join(f"{place}: {problems}" for place, problems in found.items())


def test_own_pages_fit_and_are_accessible(phone: Any) -> None:
    names = ["account", "account_details", "account_change_password", "admin:index"]
    found = {}
    usage_records_write([record(at_s=time.time(), model=LONG)])
    person = phone.rows[User][Place.ORG]
    forms = [address(Project, "add"), address(User, "change", person.pk)]
    for place in [*map(reverse, [*names, *(f"admin:{name}" for name in OWN_PAGES)]), *forms]:
        phone.emulate_media(color_scheme="light")
        wait_painted(phone)
        problems = found_at(phone, place) + axe_findings(phone)
        phone.emulate_media(color_scheme="dark")
        wait_painted(phone)
        if problems := problems + axe_findings(phone, CONTRAST):
            found[place] = problems
    assert not found, "\n".join(f"{place}: {problems}" for place, problems in found.items())


def test_the_whole_row_opens_its_page(phone: Any) -> None:
    phone.goto(address(Project, "changelist"))
    row = phone.locator("#result_list .data-row").first
    row.tap(position={"x": 300, "y": row.bounding_box()["height"] - 6})
    phone.wait_for_url("**/change/**")
