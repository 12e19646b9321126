"""What the page saves reaches the server once, in order, as its own person, and undoes nothing of others."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model

from chat.playground.kept import state_change, state_get
from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_page_changes_only_what_its_reader_changes(scripted: ScriptedPage) -> None:
    """An open page sent all that it knew of the account, and so undid what another device had kept meanwhile."""
    page = scripted.sign_in()
    user = get_user_model().objects.get(username="ada")
    elsewhere = {"replies": {"weather": "rain"}, "votes": [{"best": "plain"}]}
    state_change(user_id=user.pk, changes=elsewhere)
    page.click("#sidebar-close")
    scripted.wait_for(lambda: "sidebar" in state_get(user_id=user.pk))
    assert state_get(user_id=user.pk) == elsewhere | {"sidebar": False}


def test_a_change_that_did_not_reach_the_server_goes_with_the_next(scripted: ScriptedPage) -> None:
    page = scripted.sign_in()
    user = get_user_model().objects.get(username="ada")
    lost = []
    page.route("**/playground/api/state", lambda route: (lost.append(route), route.abort()))
    page.click("#sidebar-close")
    scripted.wait_for(lambda: lost)
    page.unroute("**/playground/api/state")
    page.click("#panel-toggle")
    scripted.wait_for(lambda: state_get(user_id=user.pk) == {"sidebar": False, "panel": True})
    scripted.problems[:] = [problem for problem in scripted.problems if "ERR_FAILED" not in problem]
