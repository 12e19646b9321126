"""The main loop: start components, restart what dies, stop them in order.

    add(spec)            start a component now
    adopt(spec, state)   watch a component that runs already
    run(each_turn)       until SIGTERM, SIGINT or SIGHUP: reap, restart with a growing pause (1, 2, 4 .. 30 s), call `each_turn`
    stop(order)          SIGTERM one component after the other, each with its time; a second signal ends everything at once

Everything here runs in the main thread; the clock is injected.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from lightcone_site.serve.child import Child, ChildSpec, ChildState, exit_words
from lightcone_site.serve.console import Console
from lightcone_site.serve.signals import SignalInbox

TURN_S = 0.25
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Interrupted(Exception):
    """The operator asked to stop while something was waited for."""


class Supervisor:
    """Owns the children. `clock` gives monotonic seconds."""

    def __init__(self, console: Console, inbox: SignalInbox, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._inbox = inbox
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._announced: dict[str, list[str]] = {}

    def add(self, spec: ChildSpec) -> Child:
        child = Child(spec)
        self._children[spec.name] = child
        child.start(self._clock())
        return child

    def adopt(self, spec: ChildSpec, state: ChildState) -> None:
        """Go on with a child that this process started as another program."""
        self._children[spec.name] = Child(spec, state)

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(self._children.values())

    def run(self, each_turn: Callable[[], object]) -> None:
        """Watch the children until a stop signal arrives, or `each_turn` returns something true."""
        while not self._is_stop_asked(TURN_S):
            self._restart_dead()
            if each_turn():
                return

    def check(self) -> None:
        """Raises Interrupted if a stop signal has arrived."""
        if self._is_stop_asked(0):
            raise Interrupted

    def wait_for(self, is_true: Callable[[], bool], *, timeout_s: float) -> bool:
        """Watch until `is_true()` or the time is over; returns which. Raises Interrupted on a stop signal."""
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
                assert child.restart_at is not None
                self._console.problem(
                    child.spec.name, f"{exit_words(code)}; starting again in {child.restart_at - now:.0f} s"
                )
                self._tell_last_words(child)
            elif child.restart_at is not None and now >= child.restart_at:
                self._start_again(child, now)

    def _start_again(self, child: Child, now: float) -> None:
        """What the system refuses now, for want of memory, say, it may grant later; the others run on."""
        try:
            child.start(now)
        except OSError as error:
            child.put_off(now)
            assert child.restart_at is not None
            self._console.problem(
                child.spec.name, f"cannot be started: {error}; trying again in {child.restart_at - now:.0f} s"
            )

    def _tell_last_words(self, child: Child) -> None:
        """The end of the log, unless it says the same as after the death before."""
        words = child.last_words()
        if words != self._announced.get(child.spec.name):
            self._announced[child.spec.name] = words
            for line in (*words, f"log: {child.spec.log_path}"):
                self._console.detail("", line)

    def _is_stop_asked(self, timeout_s: float) -> bool:
        return bool(STOP_SIGNALS.intersection(self._inbox.wait(timeout_s)))
