"""The socket of live pages: who gets in, what it says, how many there may be, and that nobody's absence costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import User
from django.db import OperationalError
from django.test import Client

from chat.access.sessions import SEEN
from chat.catalog.services import model_register
from chat.live import consumers
from chat.live.source import SnapshotSource, Ticker, ticker
from chat.models import Membership, Project
from tests.chat.live.floor import NODE, LiveFloor, floor
from tests.chat.playground.conftest import HOST, cookie_of
from tests.people import member

__all__ = ["floor"]
pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = b"http://localhost:8000"
_opened: list[WebsocketCommunicator] = []


@pytest.fixture(autouse=True)
async def ended() -> AsyncIterator[None]:
    """Let no socket, and no reader of snapshots, outlive its test."""
    yield
    for page in _opened:
        if not page.future.done():
            await page.disconnect()
    _opened.clear()
    await ticker.stop()


async def socket(
    client: Client | None, query: str = "view=workers", *, origin: bytes = ORIGIN
) -> WebsocketCommunicator:
    from lightcone_site.asgi import application

    headers = [(b"host", HOST), (b"origin", origin), (b"cookie", await cookie_of(client))]
    _opened.append(WebsocketCommunicator(application, f"/ws/admin/live?{query}", headers=headers))
    return _opened[-1]


async def close_code(page: WebsocketCommunicator) -> int:
    """Return the code that a socket is closed with."""
    message = await page.receive_output(timeout=5)
    assert message["type"] == "websocket.close", message
    return int(message["code"])


@database_sync_to_async
def signed_in(role: str, project: Project) -> Client:
    client = Client()
    client.force_login(member(f"the-{role}", role, org=project.org))
    return client


async def test_a_viewer_gets_a_snapshot_and_its_html(floor: LiveFloor, project: Project) -> None:
    await database_sync_to_async(model_register)(name="small", path="/models/small.gguf")
    floor.host()
    floor.lease("small", num_running=3)
    page = await socket(await signed_in("viewer", project))
    assert (await page.connect())[0]
    message = await page.receive_json_from(timeout=5)
    (host,) = message["snapshot"]["hosts"]
    assert (host["node"], host["models"][0]["num_running"]) == (NODE, 3)
    assert NODE in message["html"]
    assert "/drain/" not in message["html"]
    second = await page.receive_json_from(timeout=5)
    assert second["snapshot"]["at"] > message["snapshot"]["at"]
    await page.disconnect()


async def test_an_unknown_language_is_told_in_the_default_one(floor: LiveFloor, project: Project) -> None:
    page = await socket(await signed_in("admin", project), "view=workers&lang=xx")
    assert (await page.connect())[0]
    assert "No worker runs" in (await page.receive_json_from(timeout=5))["html"]
    await page.disconnect()


@pytest.mark.parametrize("origin", [b"http://localhost:9000", b"https://evil.example", b""])
async def test_a_page_of_another_origin_gets_no_socket(floor: LiveFloor, project: Project, origin: bytes) -> None:
    page = await socket(await signed_in("admin", project), origin=origin)
    assert not (await page.connect())[0]


@pytest.mark.parametrize(
    ("role", "query", "code"),
    [
        ("member", "view=workers", consumers.FORBIDDEN),
        ("billing", "view=models", consumers.FORBIDDEN),
        ("admin", "view=nothing", consumers.UNKNOWN),
        ("admin", "view=model", consumers.UNKNOWN),
        (None, "view=workers", consumers.SIGNED_OUT),
    ],
)
async def test_who_may_not_see_is_told_why(
    floor: LiveFloor, project: Project, role: str | None, query: str, code: int
) -> None:
    page = await socket(await signed_in(role, project) if role else None, query)
    assert (await page.connect())[0]
    assert await close_code(page) == code
    assert ticker.num_listeners == 0


async def test_a_socket_ends_with_the_role(floor: LiveFloor, project: Project, monkeypatch: Any) -> None:
    monkeypatch.setattr(consumers, "CHECK_S", 0.0)
    page = await socket(await signed_in("viewer", project))
    assert (await page.connect())[0]
    await page.receive_json_from(timeout=5)
    await database_sync_to_async(Membership.objects.filter(user__username="the-viewer").update)(role="member")
    message = await page.receive_output(timeout=5)
    while message["type"] == "websocket.send":
        message = await page.receive_output(timeout=5)
    assert message == {"type": "websocket.close", "code": consumers.FORBIDDEN}


async def test_one_session_has_a_bounded_number_of_sockets(
    floor: LiveFloor, project: Project, monkeypatch: Any
) -> None:
    monkeypatch.setattr(consumers, "MAX_OF_SESSION", 2)
    client = await signed_in("admin", project)
    pages = [await socket(client) for _ in range(3)]
    for page in pages:
        assert (await page.connect())[0]
    assert await close_code(pages[2]) == consumers.TOO_MANY
    await pages[0].disconnect()
    again = await socket(client)
    assert (await again.connect())[0]
    assert "snapshot" in await again.receive_json_from(timeout=5)
    for page in (pages[1], again):
        await page.disconnect()
    assert ticker.num_listeners == 0


async def test_all_listeners_share_a_task_that_rests_without_them() -> None:
    reads = 0

    def snapshot() -> Any:
        nonlocal reads
        reads += 1
        return object()

    shared = Ticker(SnapshotSource(snapshot), period_s=0.01)
    queues = [shared.listen() for _ in range(20)]
    ticks = [await queue.get() for queue in queues]
    assert len({id(tick.snapshot) for tick in ticks}) == 1
    for queue in queues:
        shared.leave(queue)
    assert (shared.num_listeners, reads) == (0, 1)


async def test_a_store_that_is_away_is_told_and_comes_back(floor: LiveFloor, project: Project, settings: Any) -> None:
    valkey, settings.LIGHTCONE_REDIS_URL = settings.LIGHTCONE_REDIS_URL, "redis://127.0.0.1:1"
    page = await socket(await signed_in("admin", project))
    assert (await page.connect())[0]
    message = await page.receive_json_from(timeout=5)
    assert message["snapshot"] is None
    assert "does not answer" in message["html"]
    settings.LIGHTCONE_REDIS_URL = valkey
    while message["snapshot"] is None:
        message = await page.receive_json_from(timeout=5)
    await page.disconnect()


async def test_a_deleted_account_is_signed_out(floor: LiveFloor, project: Project, monkeypatch: Any) -> None:
    monkeypatch.setattr(consumers, "CHECK_S", 0.0)
    page = await socket(await signed_in("admin", project))
    assert (await page.connect())[0]
    await database_sync_to_async(User.objects.filter(username="the-admin").delete)()
    message = await page.receive_output(timeout=5)
    while message["type"] == "websocket.send":
        message = await page.receive_output(timeout=5)
    assert message["code"] == consumers.SIGNED_OUT


async def test_a_database_that_fails_costs_a_tick_and_other_errors_close_the_socket(
    floor: LiveFloor, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_S", 0.0)
    page = await socket(await signed_in("admin", project))
    assert (await page.connect())[0]
    await page.receive_json_from(timeout=5)
    looks: list[Exception] = [OperationalError("away"), ValueError("odd")]
    known = consumers.session_user

    def fail(**asked: Any) -> Any:
        if looks and isinstance(looks[0], OperationalError):
            raise looks.pop(0)
        return known(**asked)

    monkeypatch.setattr(consumers, "session_user", fail)
    while looks[0].args != ("odd",):
        await page.receive_json_from(timeout=5)
    assert (await page.receive_json_from(timeout=5))["snapshot"] is not None

    def break_down(**asked: Any) -> Any:
        raise looks[0]

    monkeypatch.setattr(consumers, "session_user", break_down)
    message = await page.receive_output(timeout=5)
    while message["type"] == "websocket.send":
        message = await page.receive_output(timeout=5)
    assert (message["code"], ticker.num_listeners) == (consumers.BROKEN, 0)


async def test_an_open_live_page_does_not_keep_a_session(
    floor: LiveFloor, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_S", 0.0)
    client = await signed_in("admin", project)

    @database_sync_to_async
    def seen_at(age_s: int = 0) -> int:
        session = client.session
        if age_s:
            session[SEEN] -= age_s
            session.save()
        return int(session[SEEN])

    before = await seen_at(61)
    page = await socket(client)
    assert (await page.connect())[0]
    for _ in range(2):
        await page.receive_json_from(timeout=5)
    await page.disconnect()
    await database_sync_to_async(client.get)("/admin/live/snapshot?view=workers")
    assert await seen_at() == before
    await database_sync_to_async(client.get)("/admin/workers/")
    assert await seen_at() > before


async def test_a_reader_that_breaks_is_told_and_the_next_listener_begins_anew() -> None:
    def snapshot() -> Any:
        raise ValueError("odd")

    shared = Ticker(SnapshotSource(snapshot), period_s=0.01)
    queue = shared.listen()
    ticks = [await queue.get() for _ in range(2)]
    shared.leave(queue)
    assert [tick.snapshot for tick in ticks] == [None, None]
