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
    async def refresh(asked: object) -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(auth, "configuration_refresh", refresh)


async def identify(peer: str = "127.0.0.1", **headers: str) -> Caller:
    request = RequestFactory().get("/v1/models", REMOTE_ADDR=peer, headers={"Host": "localhost:8000", **headers})
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
    for peer in ("203.0.113.9", "10.0.0.1", "::ffff:203.0.113.9", ""):
        assert await refusal(peer=peer) == 401
    for header in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Via", "X-Real-Ip", "True-Client-Ip"):
        assert await refusal(**{header: "127.0.0.1"}) == 401
    assert await refusal(Authorization="Bearer wrong") == 401
    settings.LIGHTCONE_TRUSTED_PROXIES = ["127.0.0.1"]
    assert await refusal() == 401


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "127.3.2.1"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"])
async def test_every_way_to_say_this_machine_is_it(project: Project, settings: Any, host: str, peer: str) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.ALLOWED_HOSTS = ["*"]
    assert (await identify(peer=peer, Host=host)).project_id == project.pk


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "10.0.0.5"])
async def test_a_name_that_was_bound_to_this_machine_is_not_this_machine(project: Project, settings: Any, host: str) -> None:
    """A page of evil.example whose name now has the address 127.0.0.1 is of one origin with us, for a browser."""
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.ALLOWED_HOSTS = ["*"]
    assert await refusal(Host=host) == 401


async def test_pages_of_other_origins_are_not_programs_of_this_machine(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.LIGHTCONE_CORS_ALLOWED_ORIGINS = []
    for origin in ("https://evil.example", "null", "http://localhost:3000"):
        assert await refusal(Origin=origin) == 401
    assert (await identify(Origin="http://localhost:8000")).project_id == project.pk
    settings.LIGHTCONE_CORS_ALLOWED_ORIGINS = ["http://localhost:3000"]
    assert (await identify(Origin="http://localhost:3000")).project_id == project.pk
    assert await refusal(Origin="https://evil.example") == 401
