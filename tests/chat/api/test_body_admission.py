"""Admission before the body: a valid key is required, and routes without a key accept small bodies."""

from __future__ import annotations

from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.test import Client

from chat.access import authentication as auth
from chat.access.keys import key_create
from chat.api.middleware import body_admit
from chat.api.server_contract import Admitted
from chat.errors import ApiError
from chat.models import Project
from lightcone_site.limits import MIB
from tests.people import member

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_valkey(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refresh() -> None:
        """Nothing is cached here."""

    monkeypatch.setattr(auth, "configuration_refresh", refresh)


def scope(path: str = "/v1/chat/completions", method: str = "POST", **headers: str) -> dict[str, Any]:
    described = {"host": "localhost", **headers}
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in described.items()],
        "client": ["192.0.2.1", 5000],
        "server": ["127.0.0.1", 8000],
    }


async def refused(**described: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await body_admit(scope(**described))
    return caught.value


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/files", "/v1/messages", "/v4/chat/completions", "/v1/unknown", "/files"]
)
async def test_bodies_are_refused_without_a_valid_key(path: str) -> None:
    assert (await refused(path=path)).status == 401
    assert (await refused(path=path, authorization="Bearer lc_wrong")).status == 401


async def test_the_refusal_returns_the_clients_request_id() -> None:
    assert (await refused(x_request_id="mine-1")).request_id == "mine-1"
    assert (await refused(x_request_id="not clean")).request_id is None


async def test_a_content_type_that_cannot_be_read_is_refused() -> None:
    error = await refused(content_type="multipart/form-data; boundary*=no-encoding''a")
    assert (error.status, error.code) == (400, "invalid_content_type")


async def test_a_valid_key_admits_the_body_and_passes_its_caller_on(project: Project) -> None:
    _, raw = await database_sync_to_async(key_create)(project=project, name="k")
    admitted = await body_admit(scope(authorization=f"Bearer {raw}"))
    assert admitted.owner == f"project {project.pk}"
    assert admitted.max_body_bytes is None
    assert admitted.known.project_id == project.pk


@pytest.mark.parametrize(
    ("path", "method"),
    [("/sign-in", "POST"), ("/admin/login/", "POST"), ("/health/live", "POST"), ("/v1/chat/completions", "OPTIONS")],
)
async def test_routes_without_a_key_accept_small_bodies_only(path: str, method: str) -> None:
    assert await body_admit(scope(path=path, method=method)) == Admitted(owner="address 192.0.2.1", max_body_bytes=MIB)


async def test_clients_behind_a_proxy_have_separate_body_budgets(settings: Any) -> None:
    """One client could use the budget of all, so that nobody could sign in."""
    settings.LIGHTCONE_TRUSTED_PROXIES = ["192.0.2.1"]
    admitted = await body_admit(scope(path="/sign-in", x_forwarded_for="203.0.113.9, 198.51.100.7"))
    assert admitted.owner == "address 198.51.100.7"


FILES = "/playground/api/files"


def session_of(name: str) -> str:
    """Return the cookie of somebody who is signed in."""
    client = Client()
    client.force_login(member(name))
    return f"lightcone_session={client.cookies['lightcone_session'].value}"


async def test_people_who_are_signed_in_may_send_a_file_of_a_chat(settings: Any) -> None:
    cookie = await database_sync_to_async(session_of)("ann")
    admitted = await body_admit(scope(path=FILES, cookie=cookie))
    assert admitted.max_body_bytes == settings.LIGHTCONE_LIMITS.max_file_bytes == 10 * MIB
    assert admitted.owner.startswith("account ")
    assert admitted.known is not None


@pytest.mark.parametrize(
    ("path", "method"),
    [(FILES, "PUT"), (f"{FILES}/", "POST"), (f"{FILES}/1", "POST"), ("/playground/api/draft", "POST")],
)
async def test_other_pages_accept_small_bodies_of_people_who_are_signed_in(path: str, method: str) -> None:
    cookie = await database_sync_to_async(session_of)("ann")
    admitted = await body_admit(scope(path=path, method=method, cookie=cookie))
    assert admitted == Admitted(owner="address 192.0.2.1", max_body_bytes=MIB)


@pytest.mark.parametrize("headers", [{}, {"cookie": "lightcone_session=" + "x" * 32}, {"cookie": "lightcone_session="}])
async def test_strangers_may_not_send_a_file_of_a_chat(headers: dict[str, str]) -> None:
    admitted = await body_admit(scope(path=FILES, **headers))
    assert admitted == Admitted(owner="address 192.0.2.1", max_body_bytes=MIB)
