"""Authentication of requests, and anonymous access from loopback."""

from __future__ import annotations

from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.test import RequestFactory

from chat.access import authentication as auth
from chat.access.authentication import MISSING_KEY, NOT_BEARER, AuthFailures, caller_identify
from chat.access.keys import Caller, key_create
from chat.errors import ApiError
from chat.models import Project

pytestmark = pytest.mark.django_db(transaction=True)

OURS = f"lc_unknown00_{'0' * 48}"
"""Of the form of our keys, and not one of them."""


@pytest.fixture(autouse=True)
def _no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(auth, "configuration_refresh", refresh)


async def identify(peer: str = "127.0.0.1", **headers: str) -> Caller:
    request = RequestFactory().get("/v1/models", REMOTE_ADDR=peer, headers={"Host": "localhost:8000", **headers})
    return await caller_identify(request, key_header="authorization", failures=AuthFailures(limit=5, window_s=60))


async def refused(**where: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await identify(**where)
    return caught.value


async def refusal(**where: str) -> int:
    return (await refused(**where)).status


async def test_a_key_is_required_on_loopback_by_default(project: Project) -> None:
    assert await refusal() == 401


async def test_anonymous_loopback_access_can_be_enabled(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    caller = await identify()
    assert (caller.project_id, caller.public_id) == (project.pk, "")


async def test_anonymous_access_excludes_proxies_and_bad_keys(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    for peer in ("203.0.113.9", "10.0.0.1", "::ffff:203.0.113.9", ""):
        assert await refusal(peer=peer) == 401
    for header in (
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "Forwarded",
        "Via",
        "X-Real-Ip",
        "True-Client-Ip",
    ):
        assert await refusal(**{header: "127.0.0.1"}) == 401
    assert await refusal(Authorization=f"Bearer {OURS}") == 401
    settings.LIGHTCONE_TRUSTED_PROXIES = ["127.0.0.1"]
    assert await refusal() == 401


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "127.3.2.1"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "127.8.8.8"])
async def test_anonymous_access_accepts_every_loopback_host(
    project: Project, settings: Any, host: str, peer: str
) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.ALLOWED_HOSTS = ["*"]
    assert (await identify(peer=peer, Host=host)).project_id == project.pk


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "10.0.0.5"])
async def test_anonymous_access_excludes_foreign_names_of_loopback(project: Project, settings: Any, host: str) -> None:
    """For a browser, a page whose name was rebound to 127.0.0.1 has the same origin as this server."""
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.ALLOWED_HOSTS = ["*"]
    assert await refusal(Host=host) == 401


async def test_anonymous_access_excludes_pages_of_other_origins(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.LIGHTCONE_CORS_ALLOWED_ORIGINS = []
    for origin in ("https://evil.example", "null", "http://localhost:3000"):
        assert await refusal(Origin=origin) == 401
    assert (await identify(Origin="http://localhost:8000")).project_id == project.pk
    settings.LIGHTCONE_CORS_ALLOWED_ORIGINS = ["http://localhost:3000"]
    assert (await identify(Origin="http://localhost:3000")).project_id == project.pk
    assert await refusal(Origin="https://evil.example") == 401


PLACEHOLDERS = [
    "Bearer ollama",
    "Bearer not-needed",
    "Bearer sk-no-key-required",
    "Bearer",
    "Bearer ",
    "bearer  EMPTY",
    "",
    "Basic eDp5",
]


@pytest.mark.parametrize("header", PLACEHOLDERS)
async def test_anonymous_access_accepts_placeholder_keys(project: Project, settings: Any, header: str) -> None:
    """OpenAI's SDKs always send a key, so that people write `ollama`, which was refused as a wrong key."""
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    settings.LIGHTCONE_CORS_ALLOWED_ORIGINS, settings.ALLOWED_HOSTS = [], ["*"]
    assert (await identify(Authorization=header)).project_id == project.pk
    assert (await identify(**{"X-Api-Key": header})).project_id == project.pk
    assert await refusal(Authorization=header, Origin="https://evil.example") == 401
    assert await refusal(Authorization=header, Host="evil.example") == 401
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = False
    assert await refusal(Authorization=header) == 401


@pytest.mark.parametrize("key", [OURS, "lc_short", f"{OURS} trailing", "lc_"])
async def test_anonymous_access_still_checks_keys_of_our_form(project: Project, settings: Any, key: str) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    assert await refusal(**{"X-Api-Key": key}) == 401
    assert await refusal(Authorization=f"Bearer {key.split()[0]}") == 401
    assert await refusal(Authorization=key.split()[0]) == 401


async def test_anonymous_access_still_uses_a_valid_key(project: Project, settings: Any) -> None:
    settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = True
    key, raw = await database_sync_to_async(key_create)(project=project, name="mine")
    assert (await identify(Authorization=f"Bearer {raw}")).public_id == key.public_id


@pytest.mark.parametrize("header", ["Bearer {}", "bearer  {}", " BEARER   {} "])
async def test_spaces_before_the_key_are_ignored(project: Project, header: str) -> None:
    """RFC 9110 allows it, and clients write it by mistake."""
    key, raw = await database_sync_to_async(key_create)(project=project, name="mine")
    assert (await identify(Authorization=header.format(raw))).public_id == key.public_id


async def test_authorization_errors_describe_the_header(project: Project) -> None:
    """`Bearer $LIGHTCONE_API_KEY` with the variable unset was called an incorrect key."""
    for header in ("Bearer ", "Bearer", ""):
        assert (await refused(Authorization=header)).message == MISSING_KEY
    for header in (OURS, f"Token {OURS}", f"Basic {OURS}"):
        assert (await refused(Authorization=header)).message == NOT_BEARER
    assert "Incorrect API key" in (await refused(Authorization="Bearer wrong")).message
