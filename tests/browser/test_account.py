"""Signing in with a passkey and one's own account, in Chromium with its virtual authenticator."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.axe import axe_findings
from tests.chat.audit.secrets_of_tests import PASSWORD
from tests.people import member

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def page(chromium: Any, live_server: Any, valkey: str, settings: Any, transactional_db: None) -> Iterator[Any]:
    """A page of a browser with an authenticator that always confirms; nobody is signed in."""
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    member("ann", "owner", password=PASSWORD)
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    devtools = context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    yield page
    context.close()
    assert page.problems == []


def sign_in(page: Any) -> None:
    page.goto("/sign-in?next=/account")
    page.fill("#id_username", "ann")
    page.fill("#id_password", PASSWORD)
    page.click("button[type=submit]")


def sign_out(page: Any) -> None:
    page.goto("/account")
    page.click(".account-bar button:has-text('Sign out')")
    page.wait_for_url("**/sign-in")


def test_a_passkey_is_added_and_signs_in_alone_and_after_the_password(page: Any) -> None:
    sign_in(page)
    page.click("a[href='/account/passkeys/add']")
    page.fill("#id_password", PASSWORD)
    page.click("button:has-text('Go on')")
    page.fill("#id_name", "My laptop")
    page.click("button:has-text('Add a passkey')")
    page.wait_for_selector(".codes li >> nth=9")
    page.click("text=Back to your account")
    page.wait_for_selector("text=My laptop")

    sign_out(page)
    page.click("button:has-text('Sign in with a passkey')")
    page.wait_for_url(lambda address: "/sign-in" not in address)
    page.goto("/account")
    page.wait_for_selector("text=Signed-in browsers")

    sign_out(page)
    sign_in(page)
    page.wait_for_selector("text=Show that it is you")
    page.click("button:has-text('Use a passkey')")
    page.wait_for_url("**/account")

    page.click("a:has-text('Remove')")
    page.fill("#id_password", PASSWORD)
    page.click("button:has-text('Go on')")
    page.click("button:has-text('Remove')")
    page.wait_for_selector("text=The passkey is removed")
    assert "My laptop" not in page.content()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_pages_of_the_account_fit_and_are_accessible(page: Any, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto("/sign-in")
    found = axe_findings(page)
    sign_in(page)
    page.wait_for_url("**/account")
    found += axe_findings(page)
    for path in ("/account/password", "/account/details"):
        page.goto(path)
        found += axe_findings(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert found == []


def test_at_a_bare_address_the_page_says_what_passkeys_need(page: Any, live_server: Any) -> None:
    page.goto(live_server.url.replace("localhost", "127.0.0.1") + "/sign-in?next=/account")
    page.fill("#id_username", "ann")
    page.fill("#id_password", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_selector("text=Passkeys need HTTPS (or http://localhost): this page was opened without.")
