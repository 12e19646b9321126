"""A browser signs in at the OpenID provider: the content policy lets it go there and come back."""

from __future__ import annotations

from typing import Any

import pytest

from chat.access.mail_addresses import address_vouch
from tests.browser.scripted import note_problems
from tests.chat.access.oidc_provider import oidc_provider
from tests.people import member

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_person_signs_in_at_the_provider_and_comes_back(
    chromium: Any, live_server: Any, valkey: str, transactional_db: None, settings: Any
) -> None:
    ann = member("ann", email="ann@example.com")
    address_vouch(user=ann)
    problems: list[str] = []
    with oidc_provider() as provider:
        provider.claims = {"sub": "id-of-ann", "email": "ann@example.com", "email_verified": True}
        provider.use(settings)
        context = chromium.new_context(base_url=live_server.url)
        page = context.new_page()
        note_problems(page, problems)
        page.goto("/sign-in?next=/account")
        page.get_by_role("button", name="Sign in with Corp").click()
        page.wait_for_url("**/account")
        page.get_by_text("Connected").wait_for()
        context.close()
    assert problems == []
