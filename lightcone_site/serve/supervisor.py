"""The main loop: start components, restart those that die after a growing pause (1 to 30 s), stop them in order."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator

from lightcone_site.serve.child import Child, ChildSpec, describe_exit
from lightcone_site.serve.console import Console

TURN_S = 0.25
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Interrupted(Exception):
    """Raised if the operator asks to stop during a wait."""


class SignalInbox:
    """Collects SIGTERM, SIGINT, SIGHUP and SIGCHLD through the wake-up descriptor; no code runs inside a handler."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    @contextlib.contextmanager
    def installed(self) -> Iterator[SignalInbox]:
        """Receive signals inside the block. Main thread only. SIGHUP stays ignored if it was, as `nohup` asks."""
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
        """Return the numbers of the signals that arrived, after at most `timeout_s`."""
        select.select([self._reader], [], [], max(timeout_s, 0))
        try:
            return list(self._reader.recv(4096))
        except BlockingIOError:
            return []


class Supervisor:
    """Owns the children. `clock` gives monotonic seconds."""

    def __init__(self, console: Console, inbox: SignalInbox, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._inbox = inbox
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._reported: dict[str, list[str]] = {}
        """The log lines that were shown at the last death of each child."""

    def add(self, spec: ChildSpec) -> Child:
        """Start a component and watch it from now on. Raises OSError."""
        child = Child(spec)
        self._children[spec.name] = child
        child.start(self._clock())
        return child

    def run(self, each_turn: Callable[[], object]) -> None:
        """Watch the children until a stop signal arrives."""
        while not self._is_stop_asked(TURN_S):
            self._restart_dead()
            each_turn()

    def check(self) -> None:
        """Raise Interrupted if a stop signal has arrived."""
        if self._is_stop_asked(0):
            raise Interrupted

    def wait_for(self, is_true: Callable[[], bool], *, timeout_s: float) -> bool:
        """Watch the children until `is_true()`; return False on time-out. Raises Interrupted on a stop signal."""
        deadline = self._clock() + timeout_s
        while not is_true():
            if self._clock() >= deadline:
                return False
            if self._is_stop_asked(0.02):
                raise Interrupted
            self._restart_dead()
        return True

    def stop(self, order: tuple[str, ...]) -> None:
        """Stop the named children one after the other; then end whatever is left of any group."""
        try:
            for name in order:
                child = self._children.get(name)
                if child is not None and child.is_running:
                    self._stop_one(child)
        except Interrupted:
            self._console.problem("stop", "asked twice: ending everything now")
        finally:
            for child in self._children.values():
                child.kill()

    def _stop_one(self, child: Child) -> None:
        self._console.progress(child.spec.name, "stopping")
        child.terminate()
        deadline = self._clock() + child.spec.stop_s
        while child.reap(self._clock()) is None:
            if self._clock() >= deadline:
                self._console.problem(child.spec.name, f"did not stop within {child.spec.stop_s:.0f} s; ended")
                child.kill()
                return
            if self._is_stop_asked(0.1):
                raise Interrupted
        self._console.ok(child.spec.name, "stopped")

    def _restart_dead(self) -> None:
        now = self._clock()
        for child in self._children.values():
            code = child.reap(now)
            if code is not None:
                pause_s = (child.restart_at or now) - now
                self._console.problem(child.spec.name, f"{describe_exit(code)}; starting again in {pause_s:.0f} s")
                self._show_log(child)
            elif child.restart_at is not None and now >= child.restart_at:
                self._start_again(child, now)

    def _start_again(self, child: Child, now: float) -> None:
        """Start the child. If the system refuses, for want of memory say, try again later; the others run on."""
        try:
            child.start(now)
        except OSError as error:
            pause_s = child.schedule_restart(now)
            self._console.problem(child.spec.name, f"cannot be started: {error}; trying again in {pause_s:.0f} s")

    def _show_log(self, child: Child) -> None:
        """Show the end of the log, unless it is the same as after the death before."""
        lines = child.last_log_lines()
        if lines != self._reported.get(child.spec.name):
            self._reported[child.spec.name] = lines
            for line in (*lines, f"log: {child.spec.log_path}"):
                self._console.detail("", line)

    def _is_stop_asked(self, timeout_s: float) -> bool:
        return bool(STOP_SIGNALS.intersection(self._inbox.wait(timeout_s)))
