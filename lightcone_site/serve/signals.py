"""Signals as data: the main loop waits here and reads what has arrived."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections.abc import Iterator


class SignalInbox:
    """Collects SIGTERM, SIGINT, SIGHUP and SIGCHLD through the wake-up descriptor; no code runs inside a handler."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @contextlib.contextmanager
    def installed(self) -> Iterator[SignalInbox]:
        """Receive signals inside the block; afterwards everything is as before. Main thread only.

        SIGHUP stays ignored where it was, as `nohup` asks, and for a program that this process becomes.
        """
        watched = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            watched.append(signal.SIGHUP)
        previous = {number: signal.signal(number, lambda *_: None) for number in watched}
        wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        try:
            yield self
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            self._reader.close()
            self._writer.close()

    def wait(self, timeout_s: float) -> list[int]:
        """The numbers of the signals that arrived, after at most `timeout_s`."""
        select.select([self._reader], [], [], max(timeout_s, 0))
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []
