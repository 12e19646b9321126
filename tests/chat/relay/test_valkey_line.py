"""Connections for threads that wait: whole answers, a line for each caller at once, and a lost one is replaced at the next call."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from chat.relay.valkey import line as valkey_line
from chat.relay.valkey.line import SyncConnection, SyncPool
from chat.relay.valkey.wire import ErrorReply


def test_commands_are_answered_whole_and_refused(valkey: str) -> None:
    lines = SyncPool(valkey)
    assert lines.call(b"ECHO", b"x" * 600_000) == b"x" * 600_000
    assert isinstance(lines.call(b"NOSUCH"), ErrorReply)
    assert lines.call(b"PING") == b"PONG"
    lines.close()


def test_who_calls_alone_keeps_one_line_and_others_have_their_own(valkey: str) -> None:
    lines = SyncPool(valkey)
    assert lines.call(b"CLIENT", b"ID") == lines.call(b"CLIENT", b"ID")
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda number: lines.call(b"ECHO", b"%d" % number), range(100))) == [
            b"%d" % number for number in range(100)
        ]
    lines.close()


def test_a_lost_line_is_an_error_once(valkey: str) -> None:
    lines, other = SyncPool(valkey), SyncPool(valkey)
    other.call(b"CLIENT", b"KILL", b"ID", b"%d" % lines.call(b"CLIENT", b"ID"))
    with pytest.raises(OSError):
        lines.call(b"PING")
    assert lines.call(b"PING") == b"PONG"
    lines.close()
    other.close()


@pytest.mark.parametrize("said", [b"", b"$4\r\nPO", b"%2\r\n"])
def test_silence_and_nonsense_are_errors(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        monkeypatch.setattr(
            valkey_line, "sync_connect", lambda _: SyncConnection(SimpleNamespace(_sock=ours, disconnect=ours.close))
        )
        theirs.send(said)
        with pytest.raises(OSError):
            SyncPool("").call(b"PING")
        assert ours.fileno() == -1
