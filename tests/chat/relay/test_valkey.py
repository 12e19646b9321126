"""The Valkey client: cancellations are kept, and calls beyond the connections wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as ValkeyAway
from redis.exceptions import ResponseError

from chat.relay.valkey import Valkey, ValkeyLine, WritesRefused, valkey_connect


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
    """redis-py swallowed about half of the cancellations on Python 3.11 (asyncio.wait_for)."""
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


async def test_calls_beyond_the_connections_wait(valkey: str) -> None:
    client = valkey_connect(valkey, max_connections=2)
    assert await asyncio.gather(*(client.ping() for _ in range(100))) == [True] * 100
    await client.aclose(close_connection_pool=True)


async def test_an_unreachable_server_is_an_error_at_once() -> None:
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
async def test_a_loading_or_full_server_counts_as_unavailable(tmp_path: Path, answer: str, is_away: bool) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(f"-{answer}\r\n".encode() * data.count(b"*"))
        writer.close()

    server = await asyncio.start_unix_server(refuse, tmp_path / "valkey.sock")
    client = valkey_connect(f"unix://{tmp_path}/valkey.sock")
    with pytest.raises(ValkeyAway if is_away else ResponseError):
        await client.eval("return 1", 0)
    await client.aclose(close_connection_pool=True)
    server.close()


async def write(client: Valkey) -> object:
    return await client.set("test-refused", 1)


async def write_by_script(client: Valkey) -> object:
    return await client.eval("return redis.call('SET', KEYS[1], 1)", 1, "test-refused")


async def write_in_pipeline(client: Valkey) -> object:
    pipe = client.pipeline(transaction=False)
    pipe.set("test-refused", 1)
    return await pipe.execute()


@pytest.mark.parametrize("call", [write, write_by_script, write_in_pipeline])
async def test_refused_writes_count_as_an_unavailable_server(
    valkey: str, call: Callable[[Valkey], Awaitable[object]]
) -> None:
    """With a full disk requests got a 500 or no answer, as the error counted as a defect."""
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


@pytest.fixture
async def line(valkey: str) -> AsyncIterator[ValkeyLine]:
    line = ValkeyLine(valkey)
    yield line
    await line.close()


async def test_a_line_returns_answers_and_errors(line: ValkeyLine) -> None:
    assert await line.call("ECHO", b"x" * 300_000) == b"x" * 300_000
    with pytest.raises(ResponseError):
        await line.call("NOSUCH")
    assert await line.call("PING") == b"PONG"


async def test_a_line_reconnects_after_a_loss(line: ValkeyLine, valkey: str) -> None:
    own_id, other = await line.call("CLIENT", "ID"), ValkeyLine(valkey)
    await other.call("CLIENT", "KILL", "ID", own_id)
    with pytest.raises((ValkeyAway, OSError)):
        await line.call("CLIENT", "ID")
    assert await line.call("CLIENT", "ID") != own_id
    await other.close()


async def test_callers_of_a_line_get_their_own_answers_despite_cancellations(line: ValkeyLine) -> None:
    calls = [asyncio.create_task(line.call("ECHO", number)) for number in range(50)]
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    kept = [answer for number, answer in enumerate(answers) if number % 3]
    assert kept == [b"%d" % number for number in range(50) if number % 3]
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::3])
    assert await line.call("ECHO", "still") == b"still"


async def test_a_late_reply_is_never_that_of_the_next_command(
    line: ValkeyLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await line.call("PING")
    monkeypatch.setattr("chat.relay.valkey.ANSWER_TIMEOUT_S", 0.05)
    with pytest.raises(TimeoutError):
        await line.call("BLPOP", "nothing", 0)
    monkeypatch.undo()
    assert await line.call("PING") == b"PONG"


@pytest.mark.parametrize("reply", [b"", b"$4\r\nPO", b"%2\r\n"])
async def test_silence_and_malformed_replies_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            writer.write(reply)
        writer.close()

    monkeypatch.setattr("chat.relay.valkey.ANSWER_TIMEOUT_S", 0.05)
    server = await asyncio.start_unix_server(answer, tmp_path / "valkey.sock")
    line = ValkeyLine(f"unix://{tmp_path}/valkey.sock")
    with pytest.raises((ValkeyAway, OSError)):
        await line.call("PING")
    await line.close()
    server.close()
