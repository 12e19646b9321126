"""A change made by one process applies to the next request of every other (console A5)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
from channels.db import database_sync_to_async
from django.test import RequestFactory

from chat.access.authentication import AuthFailures, ConfigurationCopies, caller_identify
from chat.access.configuration import TTLCache, configuration_changed
from chat.access.keys import Caller, key_create, key_disable, key_update
from chat.catalog.services import model_delete, model_register, model_resolve_async
from chat.errors import ApiError
from chat.models import ApiKey, Project, ServedModel
from chat.relay.state.keys import Keys
from chat.relay.web.dispatcher import _dispatchers, dispatcher_of_loop


class Process:
    """A web process as far as its copies go."""

    def __init__(self) -> None:
        self.cache: TTLCache[str] = TTLCache(max_entries=10, ttl_s=60.0)
        self.copies = ConfigurationCopies(self.cache.clear)

    async def look_up(self, rows: dict[str, str], epoch: list[int]) -> str | None:
        async def read_epoch() -> bytes:
            return b"%d" % epoch[0]

        await self.copies.refresh(read_epoch)
        if self.cache.get("key") is None and "key" in rows:
            self.cache.put("key", rows["key"], generation=self.cache.generation)
        return self.cache.get("key")


async def test_two_processes_see_a_change_at_their_next_refresh() -> None:
    first, second = Process(), Process()
    rows, epoch = {"key": "60 per minute"}, [1]
    assert [await process.look_up(rows, epoch) for process in (first, second)] == ["60 per minute"] * 2
    rows["key"] = "6 per minute"
    epoch[0] += 1
    assert [await process.look_up(rows, epoch) for process in (second, first)] == ["6 per minute"] * 2
    del rows["key"]
    epoch[0] += 1
    assert [await process.look_up(rows, epoch) for process in (first, second)] == [None, None]


async def test_without_the_epoch_cached_copies_are_dropped() -> None:
    process, rows = Process(), {"key": "old"}
    await process.look_up(rows, [1])
    rows["key"] = "new"

    async def fail() -> bytes:
        raise ConnectionError

    await process.copies.refresh(fail)
    assert process.cache.get("key") is None


@pytest.fixture
async def deployment(settings: Any, valkey: str) -> AsyncIterator[str]:
    settings.LIGHTCONE_REDIS_URL = valkey
    settings.LIGHTCONE_DEPLOYMENT = f"test-{secrets.token_hex(4)}"
    _dispatchers.pop(asyncio.get_running_loop(), None)
    yield settings.LIGHTCONE_DEPLOYMENT
    await dispatcher_of_loop().close()
    _dispatchers.pop(asyncio.get_running_loop(), None)


def request_with(raw: str) -> Any:
    return RequestFactory().get("/v1/models", headers={"Authorization": f"Bearer {raw}"})


async def identify(raw: str) -> Caller:
    request = request_with(raw)
    return await caller_identify(request, key_header="authorization", failures=AuthFailures(limit=5, window_s=60))


async def in_another_process(change: Any) -> None:
    """Run a change without its signal in this process, so that only the epoch shows it."""
    with mock.patch.object(configuration_changed, "send"):
        await database_sync_to_async(change)()


@pytest.mark.django_db(transaction=True)
async def test_a_key_changed_elsewhere_is_changed_here_at_once(deployment: str, project: Project) -> None:
    key, raw = await database_sync_to_async(key_create)(project=project, name="shared")
    assert (await identify(raw)).limits.requests_per_minute is None

    def limit() -> None:
        row = ApiKey.objects.get(pk=key.pk)
        row.requests_per_minute = 3
        key_update(key=row)

    await in_another_process(limit)
    assert (await identify(raw)).limits.requests_per_minute == 3
    await in_another_process(lambda: key_disable(key=ApiKey.objects.get(pk=key.pk)))
    with pytest.raises(ApiError) as refused:
        await identify(raw)
    assert refused.value.status == 401


@pytest.mark.django_db(transaction=True)
async def test_a_model_removed_elsewhere_is_unknown_here_at_once(deployment: str, project: Project) -> None:
    _, raw = await database_sync_to_async(key_create)(project=project, name="shared")
    await database_sync_to_async(model_register)(name="small", path="/models/small.gguf")
    await identify(raw)
    assert await model_resolve_async(name="small") is not None

    def remove() -> None:
        model_delete(model=ServedModel.objects.get(name="small"))

    await in_another_process(remove)
    await identify(raw)
    assert await model_resolve_async(name="small") is None


@pytest.mark.django_db(transaction=True)
async def test_every_change_raises_the_epoch(deployment: str, project: Project) -> None:
    epoch = dispatcher_of_loop().configuration_epoch
    assert Keys(deployment).configuration_epoch.startswith(deployment)
    assert await epoch() is None
    await database_sync_to_async(key_create)(project=project, name="one")
    await database_sync_to_async(model_register)(name="small", path="/models/small.gguf")
    assert await epoch() == b"2"
