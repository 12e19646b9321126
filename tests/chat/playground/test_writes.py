"""An answer that is streamed asks nothing more of the database than a short one: no token is written there."""

from __future__ import annotations

from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth import get_user_model
from django.db.backends.utils import CursorWrapper

from chat.generation.completions import RunInfo
from chat.playground import running
from tests.chat.api.conftest import ADMITTED, Scripted, ScriptedReader, completed, delta, finished
from tests.chat.playground.conftest import HELLO_BODY, messages_until_end
from tests.chat.playground.test_run_views import Browser

pytestmark = pytest.mark.django_db(transaction=True)

FEW, MANY = 2, 400


def script(num_tokens: int) -> list[Any]:
    said = [delta(f"word{number} ") for number in range(num_tokens)]
    return [ADMITTED, *said, finished(), completed(output=num_tokens)]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What any thread has asked the database, as it grows."""
    asked: list[str] = []
    for name in ("execute", "executemany"):

        def note(cursor: Any, sql: Any, params: Any = None, *, run: Any = getattr(CursorWrapper, name)) -> Any:
            asked.append(str(sql))
            return run(cursor, sql, params)

        monkeypatch.setattr(CursorWrapper, name, note)
    return asked


async def test_a_long_answer_over_the_socket_tells_the_database_no_more_than_a_short_one(
    page: WebsocketCommunicator, service: Scripted, statements: list[str]
) -> None:
    asked = {}
    for num_tokens in (FEW, FEW, MANY):  # the first fills what is read once
        service.script = script(num_tokens)
        statements.clear()
        await page.send_json_to({"type": "start", "id": f"run-{len(service.requests)}", "request": HELLO_BODY})
        *deltas, end = await messages_until_end(page)
        assert (len(deltas), end["type"]) == (num_tokens, "completed")
        asked[num_tokens] = list(statements)
    assert asked[FEW], "the session is read for each run: what this test counts is there"
    assert asked[MANY] == asked[FEW]


async def test_a_long_answer_over_http_tells_the_database_no_more_than_a_short_one(
    service: Scripted, kept: list[str], ada: Any, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def attach(*, run_id: str, caller: Any) -> Any:
        return ScriptedReader(service.script, {}), RunInfo("running", {"project_id": 1, "model": "m"}, 60.0)

    monkeypatch.setattr(running, "run_attach", attach)
    browser = Browser()
    await browser.client.aforce_login(
        await database_sync_to_async(get_user_model().objects.get)(username="ada"),
    )
    asked = {}
    for num_tokens in (FEW, FEW, MANY):
        service.script = script(num_tokens)
        name = f"run-{len(service.requests)}"
        assert (await browser.start(name))[0] == 202
        statements.clear()
        messages = [message for _, message in await browser.events(name)]
        assert [message["type"] for message in messages].count("delta") == num_tokens
        asked[num_tokens] = list(statements)
    assert asked[FEW], "the session is read for each request: what this test counts is there"
    assert asked[MANY] == asked[FEW]
