"""The link between worker and core: it carries the closed set of `engine.messages` to a child process and back.

The child is `python -m engine.core.process`, started with one end of a socket pair. It is a fresh interpreter: nothing
of `__main__`, Django or Celery is loaded in it, and no start method of `multiprocessing` matters. Messages are msgpack,
never pickle. The child ends when its end of the link reports end of file, however the parent dies. (PR_SET_PDEATHSIG
is not used: it fires when the *thread* that started the child ends.)
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgpack

from engine import messages
from engine.api.media import MediaLimits
from engine.api.request import ProcessorCall, RepetitionRule
from engine.config import EngineConfig, StructuredLimits
from engine.messages import FromCore, Shutdown, ToCore

CLOSED_SET: tuple[type, ...] = (
    *(cls for cls in vars(messages).values() if isinstance(cls, type) and dataclasses.is_dataclass(cls)),
    ProcessorCall,
    RepetitionRule,
)
"""The classes that may travel: messages and their parts. The position of a class is its msgpack extension code."""

PATHS = ("model_path", "kv_spill_folder", "turns_file")
"""The fields of EngineConfig that are paths, or None."""

EXIT_S = 5.0
"""Time for a child to leave once its end of the link is closed."""

PACK_BYTES = 1024
"""First size of a packed object's buffer. msgpack's own 256 KiB took 14 µs a message: each nested object has one."""

_CODES = {cls: code for code, cls in enumerate(CLOSED_SET)}
_TUPLE_POSITIONS = {
    cls: [index for index, field in enumerate(dataclasses.fields(cls)) if str(field.type).startswith("tuple")]
    for cls in CLOSED_SET
}


class LinkClosed(Exception):
    """The other side is gone."""


def _field_reader(cls: type) -> Callable[[object], tuple[object, ...]]:
    names = [field.name for field in dataclasses.fields(cls)]
    if not names:
        return lambda message: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda message: (read(message),)


_READERS = {cls: _field_reader(cls) for cls in CLOSED_SET}


def pack(message: object) -> bytes:
    """Encode one message of the closed set. Raises TypeError for anything else."""
    return msgpack.packb(message, default=_pack_one, buf_size=PACK_BYTES)


def unpack(data: bytes) -> Any:
    """Decode the output of `pack`. Raises ValueError for bytes that are no message."""
    return msgpack.unpackb(data, ext_hook=_unpack_one)


def _pack_one(message: object) -> msgpack.ExtType:
    code = _CODES.get(type(message))
    if code is None:
        raise TypeError(f"{type(message).__name__} is no message between worker and core")
    return msgpack.ExtType(
        code, msgpack.packb(_READERS[type(message)](message), default=_pack_one, buf_size=PACK_BYTES)
    )


def _unpack_one(code: int, data: bytes) -> object:
    if code >= len(CLOSED_SET):
        raise ValueError(f"unknown message code {code}")
    cls = CLOSED_SET[code]
    values = msgpack.unpackb(data, ext_hook=_unpack_one)
    for index in _TUPLE_POSITIONS[cls]:
        values[index] = None if values[index] is None else tuple(values[index])
    return cls(*values)


class ProcessLink:
    """The worker's end of a link to a core in a child process."""

    def __init__(self, config: EngineConfig, program: Sequence[str] = ("-m", "engine.core.process")) -> None:
        """Start the child. `program`: arguments of the interpreter, before the number of the link's descriptor."""
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parents[2])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=root,
                env=os.environ | thread_environment(config.num_threads),
            )
        # NOTE: a time-out of the socket, as Connection.poll costs a selector and three system calls per message.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(config.step_timeout_s))
        self._connection = Connection(ours.detach())
        self._sending = threading.Lock()
        with contextlib.suppress(OSError):  # receive() reports a child that died at once
            self._connection.send_bytes(pack_config(config))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToCore) -> None:
        """Send a message. Thread-safe. Raises LinkClosed."""
        data = pack(message)
        try:
            with self._sending:
                self._connection.send_bytes(data)
        except OSError as error:
            raise LinkClosed from error

    def receive(self) -> FromCore:
        """Wait for the next message; one thread only. Raises LinkClosed when the core is gone.

        Ends a core that sends nothing, not even heartbeats, for `step_timeout_s`.
        """
        try:
            return unpack(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            if isinstance(error, BlockingIOError):
                self._process.kill()
            self._end_process(EXIT_S)
            with self._sending:
                self._connection.close()
            raise LinkClosed from error

    def close(self, timeout_s: float) -> None:
        """Ask the core to leave, wait for it, then end it by force. Idempotent."""
        with contextlib.suppress(LinkClosed):
            self.send(Shutdown())
        self._end_process(timeout_s)

    def _end_process(self, timeout_s: float) -> None:
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class PipeChannel:
    """The core's end of a link to another process. The reading thread calls `on_closed` when the worker is gone."""

    def __init__(self, connection: Connection, on_closed: Callable[[], None]) -> None:
        self._connection = connection
        self._on_closed = on_closed
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[ToCore] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="core-inbox", daemon=True).start()

    def send(self, message: FromCore) -> None:
        """Send a message; drop it when the worker is gone. Thread-safe."""
        data = pack(message)
        with contextlib.suppress(OSError), self._sending:
            self._connection.send_bytes(data)

    def receive(self, block: bool) -> list[ToCore]:
        """Return all messages that have arrived, in order; with `block` wait for at least one."""
        arrived = [self._inbox.get()] if block else []
        with contextlib.suppress(queue.Empty):
            while True:
                arrived.append(self._inbox.get_nowait())
        return arrived

    def _read(self) -> None:
        try:
            while True:
                self._inbox.put(unpack(self._connection.recv_bytes()))
        except (EOFError, OSError):
            self._on_closed()


def pack_config(config: EngineConfig) -> bytes:
    values = dataclasses.asdict(config)
    for name in PATHS:
        if values[name] is not None:
            values[name] = str(values[name].absolute())
    return json.dumps(values).encode()


def unpack_config(data: bytes) -> EngineConfig:
    """Decode the output of `pack_config`."""
    values = json.loads(data)
    values |= {name: Path(values[name]) for name in PATHS if values[name] is not None}
    values |= {"processors": tuple(values["processors"]), "structured": StructuredLimits(**values["structured"])}
    values["media"] = MediaLimits(**values["media"])
    return EngineConfig(**values)


def thread_environment(num_threads: int) -> dict[str, str]:
    """Return the environment to add for the child; the operator's own values win.

    Huge pages for the weights take 4 % off a step (Linux). Freed memory of up to 32 MiB is kept for the next
    allocation: given back, it would be cleared again and again, a third of the time of loading. OpenMP's threads wait
    actively a third as long as by default: longer waits let a step collapse when other processes want the cores, much
    shorter ones put threads to sleep between two tokens.
    """
    tunables = {"hugetlb": 1, "mmap_threshold": 32 << 20, "trim_threshold": 64 << 20}
    environment = {
        "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in tunables.items()),
        "GOMP_SPINCOUNT": "100000",
    }
    environment |= {name: os.environ[name] for name in environment if name in os.environ}
    if num_threads:
        environment["OMP_NUM_THREADS"] = str(num_threads)
    return environment


def _timeval(seconds: float) -> bytes:
    """Return a C struct timeval; for 0 the kernel sets no time-out."""
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
