"""A child process for work that may hang, exhaust memory or crash. It is bounded in time and memory, and killed beyond
its bounds.

The child is `python -m engine.killable FD MODULE:FUNCTION BYTES NICENESS`, started on first use and kept. Calls and
answers are msgpack, never pickle. The function takes and returns plain values, and refuses by raising `RequestError`.
engine.structured (compilers) and engine.inputs (templates, files, media) use it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import queue
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgpack

from engine.api.errors import EngineFailure, ErrorCode, RequestError
from engine.memory import trim_heap
from engine.slow_work import Places, SlowWork

logger = logging.getLogger(__name__)

START_S = 60.0
"""The time that a child may take to import its function. It does not count against a call."""

CALL_CPU_S = 120
"""The processor time after which the system ends a child in mid-call. Without its parent it would go on for ever."""

READY, ANSWER, LARGE, REFUSAL, DEFECT = "ready", "answer", "large", "refusal", "defect"


class KillableExceeded(Exception):
    """The call was killed as it exceeded its time or memory. `reason` is "time" or "memory"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LargeResult:
    """A result that a function in a child returns with large bytes. They are sent as they lie, without a copy.

    The caller gets the pair (value, bytes).
    """

    value: Any
    data: memoryview


class KillableProcess:
    """A child that runs one function, `module:function`, and may grow by `memory_bytes` after its imports. One call at
    a time.

    `first_call` has the arguments of a call that each new child gets first, to load what it needs; it does not count
    against a call. `niceness` gives other processes precedence on a busy processor, as the model computes there too.
    """

    def __init__(
        self, target: str, memory_bytes: int, first_call: tuple[Any, ...] | None = None, *, niceness: int = 0
    ) -> None:
        self._niceness = niceness
        self._target = target
        self._memory_bytes = memory_bytes
        self._first_call = first_call
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._poller: select.poll

    def start(self) -> None:
        """Start the child, unless it runs, and wait until it is ready. Raises EngineFailure."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "engine.killable",
                    str(theirs.fileno()),
                    self._target,
                    str(self._memory_bytes),
                    str(self._niceness),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).resolve().parent.parent,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self._connection = Connection(ours.detach())
        # NOTE: Connection.poll makes a selector each time, which takes longer than the wait for a short text.
        self._poller = select.poll()
        self._poller.register(self._connection.fileno(), select.POLLIN)
        if not self._has_output(START_S) or self._receive() != [READY, None] or not self._is_prepared():
            self.close()
            raise EngineFailure(ErrorCode.INTERNAL_ERROR, "a helper process of the engine could not be started")

    def call(self, *arguments: Any, timeout_s: float) -> Any:
        """Return the function's result.

        Raises RequestError (its refusal), KillableExceeded, EngineFailure (its defect).
        """
        self.start()
        assert self._connection is not None
        with contextlib.suppress(OSError):  # a child that died shows in the answer
            self._connection.send_bytes(msgpack.packb(arguments))
        if not self._has_output(timeout_s):
            self.close()
            raise KillableExceeded("time")
        answer = self._receive()
        if answer is None:
            self.close()
            raise KillableExceeded("memory")
        word, value = answer
        if word == LARGE:
            return value, self._receive_data()
        if word == REFUSAL:
            raise _refusal(value)
        if word == DEFECT:
            raise EngineFailure(ErrorCode.INTERNAL_ERROR, "a helper process of the engine failed")
        return value

    def close(self) -> None:
        """Kill the child. Idempotent."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._connection = self._process = None

    def _is_prepared(self) -> bool:
        """Return True if the first call, if there is one, has been answered. Raises RequestError (its refusal)."""
        if self._first_call is None:
            return True
        assert self._connection is not None
        with contextlib.suppress(OSError):
            self._connection.send_bytes(msgpack.packb(self._first_call))
        answer = self._receive() if self._has_output(START_S) else None
        if answer is not None and answer[0] == REFUSAL:
            self.close()
            raise _refusal(answer[1])
        return answer is not None and answer[0] == ANSWER

    def _has_output(self, timeout_s: float) -> bool:
        return bool(self._poller.poll(timeout_s * 1000))

    def _receive(self) -> Any:
        """Return an answer, or None if the child is gone."""
        assert self._connection is not None
        try:
            return msgpack.unpackb(self._connection.recv_bytes())
        except (EOFError, OSError):
            return None

    def _receive_data(self) -> bytes:
        """Return the bytes of a large result. Raises KillableExceeded if the child dies while it sends them."""
        assert self._connection is not None
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            self.close()
            raise KillableExceeded("memory") from None


class KillablePool:
    """A pool of such processes. A call takes an idle one or waits for it, and no tenant takes them all. Thread-safe.

    `work` is the worker's slow work, of which these calls are part: a few long ones must not hold all its threads.
    """

    def __init__(
        self,
        target: str,
        size: int,
        memory_bytes: int,
        first_call: tuple[Any, ...] | None = None,
        *,
        niceness: int = 0,
        work: SlowWork | None = None,
    ) -> None:
        self._work = work
        self._permits = Places(size)
        self._processes = [KillableProcess(target, memory_bytes, first_call, niceness=niceness) for _ in range(size)]
        self._idle: queue.LifoQueue[KillableProcess] = queue.LifoQueue()  # the last one used is warm
        for process in reversed(self._processes):
            self._idle.put(process)

    def warm(self) -> None:
        """Start one process in the background, so that the first call need not wait for its imports."""
        threading.Thread(target=self._warm, name="killable-warm", daemon=True).start()

    def call(self, *arguments: Any, timeout_s: float, tenant: str = "") -> Any:
        """Call the function as KillableProcess.call does, in an idle process. Each call ahead delays it by at most its
        `timeout_s`.

        Raises EngineUnavailable if the tenant has too much slow work in hand.
        """
        with contextlib.nullcontext() if self._work is None else self._work.of(tenant), self._permits.one(tenant):
            process = self._idle.get()
            try:
                return process.call(*arguments, timeout_s=timeout_s)
            finally:
                self._idle.put(process)

    def close(self) -> None:
        """Kill all processes. Idempotent."""
        for process in self._processes:
            process.close()

    def _warm(self) -> None:
        process = self._idle.get()
        try:
            process.start()
        except Exception:  # closed meanwhile, perhaps; whatever it is, the first call will see it again
            logger.warning("a helper process could not be started ahead of time", exc_info=True)
        finally:
            self._idle.put(process)


def main(descriptor: int, target: str, memory_bytes: int, niceness: int) -> None:
    """Serve calls until the parent's end of the link closes, however the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(niceness)
    connection = Connection(descriptor)
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    used_bytes = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if sys.platform == "linux" else 0
    )
    if used_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + memory_bytes, resource.RLIM_INFINITY))
    connection.send_bytes(msgpack.packb((READY, None)))
    with contextlib.suppress(EOFError, OSError):
        while True:
            call = msgpack.unpackb(connection.recv_bytes())
            resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + CALL_CPU_S, resource.RLIM_INFINITY))
            word, result = _answer(function, call)
            if word == LARGE:
                connection.send_bytes(msgpack.packb((LARGE, result.value)))
                connection.send_bytes(result.data)
            else:
                connection.send_bytes(msgpack.packb((word, result)))
            del call, result  # a child that waits keeps nothing
            if word == LARGE:
                trim_heap()  # freed pieces below one in use stay with the C library otherwise


def _refusal(value: Any) -> RequestError:
    return RequestError(ErrorCode(value[0]), value[1], value[2])


def _answer(function: Callable[..., Any], arguments: list[Any]) -> tuple[str, Any]:
    try:
        result = function(*arguments)
        return (LARGE if isinstance(result, LargeResult) else ANSWER), result
    except RequestError as error:
        return REFUSAL, (error.code.value, error.message, error.param)
    except MemoryError:
        os._exit(1)  # whatever is left of this process is not worth keeping
    except Exception:
        logging.exception("a call failed")
        return DEFECT, None


if __name__ == "__main__":
    # NOTE: this module is __main__ here; a function's LargeResult is that of the module by its name.
    importlib.import_module("engine.killable").main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
