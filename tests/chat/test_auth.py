"""Requests without a key: refused, unless the operator lets this machine's own in."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import RequestFactory

from chat import auth
from chat.auth import AuthFailures, caller_identify
from chat.errors import ApiError
from chat.models import Project
from chat.services.keys import Caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(auth, "configuration_refresh", refresh)


async def identify(peer: str = "127.0.0.1", **headers: str) -> Caller:
    request = RequestFactory().get("/v1/models", REMOTE_ADDR=peer, headers=headers)
    return await caller_identify(request, key_header="authorization", failures=AuthFailures(limit=5, window_s=60))


async def refusal(**where: str) -> int:
    with pytest.raises(ApiError) as refused:
        await identify(**where)
    return refused.value.status


async def test_a_key_is_needed_also_on_this_machine(project: Project) -> None:
    assert await refusal() == 401


async def test_where_the_operator_allows_it_this_machine_needs_none(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    caller = await identify()
    assert (caller.project_id, caller.public_id) == (project.pk, "")


async def test_what_came_through_a_proxy_or_with_a_bad_key_is_refused_all_the_same(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    assert await refusal(peer="203.0.113.9") == 401
    assert await refusal(**{"X-Forwarded-For": "127.0.0.1"}) == 401
    assert await refusal(Authorization="Bearer wrong") == 401
    settings.LIGHTCONE_TRUSTED_PROXIES = ["127.0.0.1"]
    assert await refusal() == 401
