"""The bare connection: any way to cut the stream of answers gives the same answers, and a lost connection is made again."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.relay.valkey.wire import ErrorReply, RespClient, pack_command, read_reply

ANSWERS = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.binary(max_size=30)
    | st.text(alphabet="ERR valkey", max_size=9).map(ErrorReply),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


def written(answer: object) -> bytes:
    if answer is None:
        return b"$-1\r\n"
    if isinstance(answer, ErrorReply):
        return b"-" + answer.encode() + b"\r\n"
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, bytes):
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    assert isinstance(answer, list)
    return b"*%d\r\n" % len(answer) + b"".join(map(written, answer))


@given(answer=ANSWERS, behind=st.binary(max_size=5), cut=st.integers(min_value=0))
def test_an_answer_is_read_whole_or_not_at_all(answer: object, behind: bytes, cut: int) -> None:
    data = written(answer)
    assert read_reply(b"xy" + data + behind, 2) == (answer, len(data) + 2)
    assert read_reply(data[: cut % len(data)], 0) is None


def test_simple_strings_are_bytes_and_other_protocols_are_refused() -> None:
    assert read_reply(b"+OK\r\n", 0) == (b"OK", 5)
    with pytest.raises(ValueError):
        read_reply(b"%1\r\n", 0)


def test_a_command_counts_its_bytes() -> None:
    assert pack_command(b"SET", "ä\r\n".encode()) == b"*2\r\n$3\r\nSET\r\n$4\r\n\xc3\xa4\r\n\r\n"


async def test_commands_are_answered_and_refused(valkey: str) -> None:
    caller = RespClient(valkey)
    assert await caller.call(b"ECHO", b"x" * 300_000) == b"x" * 300_000
    assert isinstance(await caller.call(b"NOSUCH"), ErrorReply)
    caller.close()


async def test_a_caller_connects_again_after_a_loss(valkey: str) -> None:
    caller = RespClient(valkey)
    own_id = await caller.call(b"CLIENT", b"ID")
    other = RespClient(valkey)
    await other.call(b"CLIENT", b"KILL", b"ID", b"%d" % own_id)
    try:
        next_id = await caller.call(b"CLIENT", b"ID")
    except OSError:  # sent before the loss was seen
        next_id = await caller.call(b"CLIENT", b"ID")
    assert next_id != own_id
    assert await caller.call(b"PING") == b"PONG"
    caller.close()
    other.close()


async def test_many_commands_at_once_get_their_own_answers_whoever_gives_up(valkey: str) -> None:
    caller = RespClient(valkey)
    calls = [asyncio.create_task(caller.call(b"ECHO", b"%d" % number)) for number in range(50)]
    await asyncio.sleep(0)
    for call in calls[::3]:
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    kept = [answer for number, answer in enumerate(answers) if number % 3]
    assert kept == [b"%d" % number for number in range(50) if number % 3]
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::3])
    assert await caller.call(b"ECHO", b"still") == b"still"
    caller.close()


async def test_a_closed_caller_leaves_nobody_waiting(valkey: str) -> None:
    caller = RespClient(valkey)
    await caller.call(b"PING")
    blocked = asyncio.create_task(caller.call(b"BLPOP", b"nothing", b"0"))
    await asyncio.sleep(0)
    caller.close()
    with pytest.raises(OSError, match="closed"):
        await blocked
    assert await caller.call(b"PING") == b"PONG"
    caller.close()


async def test_all_who_need_a_silent_valkey_wait_once_together(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    async def connect(url: str, *_: object) -> None:
        attempts.append(url)
        await asyncio.sleep(0)
        raise TimeoutError

    monkeypatch.setattr("chat.relay.valkey.wire.resp_connect", connect)
    caller = RespClient("redis://silent")
    calls = [asyncio.create_task(caller.call(b"PING")) for _ in range(20)]
    await asyncio.sleep(0)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(isinstance(answer, TimeoutError) for answer in answers[1:])
    assert len(attempts) == 1
    with pytest.raises(TimeoutError):
        await caller.call(b"PING")
    assert len(attempts) == 2


async def test_who_gives_up_while_connecting_leaves_the_connection_to_the_others(valkey: str) -> None:
    caller = RespClient(valkey)
    first, second = (asyncio.create_task(caller.call(b"ECHO", word)) for word in (b"one", b"two"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"two"
    caller.close()
