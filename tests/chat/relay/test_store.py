"""The Valkey client: cancellation is never swallowed, and many calls at once wait their turn."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import pytest
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import ResponseError

from chat.relay.valkey.store import Valkey, WritesRefused, valkey_connect
from chat.relay.valkey.wire import ErrorReply


async def command(client: Valkey) -> object:
    return await client.xrange("nothing", count=1)


async def script(client: Valkey) -> object:
    return await client.eval("return 1", 0)


async def pipeline(client: Valkey) -> object:
    pipe = client.pipeline(transaction=False)
    pipe.get("nothing")
    return await pipe.execute()


@pytest.mark.parametrize("call", [command, script, pipeline])
@pytest.mark.parametrize("max_connections", [1, 32])
async def test_a_cancelled_call_is_cancelled(
    valkey: str, call: Callable[[Valkey], Awaitable[object]], max_connections: int
) -> None:
    """redis-py swallowed about half of them on Python 3.11 (asyncio.wait_for); a client's disconnect would have been lost."""
    client = valkey_connect(valkey, max_connections=max_connections)
    await client.ping()
    went_on: list[int] = []

    async def work(turn: int) -> None:
        await call(client)
        await asyncio.sleep(0)
        went_on.append(turn)

    num_cancelled = 0
    for turn in range(60):
        task = asyncio.create_task(work(turn))
        for _ in range(turn % 20):
            await asyncio.sleep(0)
        if task.cancel():
            num_cancelled += 1
            with pytest.raises(asyncio.CancelledError):
                await task
    assert num_cancelled > 10
    assert await client.ping()
    await client.aclose(close_connection_pool=True)


async def test_more_calls_than_connections_wait_their_turn(valkey: str) -> None:
    client = valkey_connect(valkey, max_connections=2)
    assert await asyncio.gather(*(client.ping() for _ in range(100))) == [True] * 100
    await client.aclose(close_connection_pool=True)


async def test_what_is_asked_ahead_is_as_of_then_where_there_is_a_connection(valkey: str) -> None:
    client, name = valkey_connect(valkey), f"test-{secrets.token_hex(4)}"
    unconnected = client.get_soon(name)
    await client.eval("return redis.call('SET', KEYS[1], 1)", 1, name)
    connected = client.get_soon(name)
    await client.eval("return redis.call('SET', KEYS[1], 2)", 1, name)
    assert (await unconnected(), await connected()) == (b"2", b"1")
    client.get_soon(name)  # and left
    lost = client.get_soon(name)
    client.resp.close()
    with pytest.raises(OSError):
        await lost()
    assert await client.get_soon(name)() == b"2"
    await client.delete(name)
    await client.aclose(close_connection_pool=True)


async def test_a_server_that_is_away_is_an_error_at_once() -> None:
    client = valkey_connect("unix:///nonexistent/valkey.sock")
    with pytest.raises(Exception, match="nonexistent"):
        await client.ping()
    await client.aclose(close_connection_pool=True)


@pytest.mark.parametrize(
    ("answer", "is_away"),
    [
        ("LOADING Valkey is loading the dataset in memory", True),
        ("MISCONF Errors writing to the AOF file: No space left on device", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", True),
        ("ERR no such script", False),
    ],
)
async def test_a_server_that_reads_its_files_or_has_no_room_is_away(
    monkeypatch: pytest.MonkeyPatch, answer: str, is_away: bool
) -> None:
    client = valkey_connect("redis://nowhere")

    async def call(*_: bytes) -> ErrorReply:
        return ErrorReply(answer)

    monkeypatch.setattr(client.resp, "call", call)
    with pytest.raises(ValkeyAway if is_away else ResponseError):
        await client.eval("return 1", 0)
    await client.aclose(close_connection_pool=True)


async def write(client: Valkey) -> object:
    return await client.set("test-refused", 1)


async def write_by_script(client: Valkey) -> object:
    return await client.eval("return redis.call('SET', KEYS[1], 1)", 1, "test-refused")


async def write_in_pipeline(client: Valkey) -> object:
    pipe = client.pipeline(transaction=False)
    pipe.set("test-refused", 1)
    return await pipe.execute()


@pytest.mark.parametrize("call", [write, write_by_script, write_in_pipeline])
async def test_writes_that_are_refused_are_a_server_that_is_away(
    valkey: str, call: Callable[[Valkey], Awaitable[object]]
) -> None:
    """With a full disk requests were answered 500, or never, as the error passed for one of ours."""
    client = valkey_connect(valkey)
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")  # which takes no writes either
    try:
        with pytest.raises(WritesRefused):
            await call(client)
    finally:
        await client.execute_command("REPLICAOF", "NO", "ONE")
    await call(client)
    await client.delete("test-refused")
    await client.aclose(close_connection_pool=True)
