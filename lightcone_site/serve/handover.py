"""What the supervisor must know once everything runs, and how it becomes a program that knows no more than that.

Preparing an installation takes Django and all that it loads, some 90 MiB; watching processes takes none of it. So the process replaces
itself (execve) when that is done: it keeps its id and its children, the lock and the console. The standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from lightcone_site.serve.child import SECRETS_OF_THE_START, Child, ChildSpec, ChildState

WATCHER = "lightcone_site.serve.watch"
HELD_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})
"""Kept back by the system while there are no handlers for them."""


@dataclass(frozen=True, slots=True)
class Handover:
    """`lock`: the descriptor of the instance lock. `socket_path`: of the embedded Valkey, to be removed at the end; empty without one."""

    lock: int
    host: str
    port: int
    url: str
    model: str
    socket_path: str
    children: tuple[tuple[ChildSpec, ChildState], ...]

    @classmethod
    def of(cls, children: Sequence[Child], **facts: Any) -> Handover:
        return cls(children=tuple((child.spec, child.state) for child in children), **facts)

    def pack(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Handover:
        values = json.loads(data)
        children = tuple((_spec(spec), ChildState(**state)) for spec, state in values.pop("children"))
        return cls(children=children, **values)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Those that arrive inside the block come after it, or to the program that this process becomes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def become_watcher(handover: Handover, directory: Path) -> NoReturn:
    """Go on as `python -m lightcone_site.serve.watch` in `directory`, where our packages are. Called with signals held. Raises OSError.

    What it is told may be long and has secrets in it (environments of children), so it goes through a file without a name.
    """
    environment = {name: value for name, value in os.environ.items() if name not in SECRETS_OF_THE_START}
    with tempfile.TemporaryFile() as file:
        file.write(handover.pack())
        file.seek(0)
        for descriptor in (file.fileno(), handover.lock):
            os.set_inheritable(descriptor, True)
        sys.stdout.flush()
        os.chdir(directory)
        os.execve(sys.executable, [sys.executable, "-m", WATCHER, str(file.fileno())], environment)  # noqa: S606


def take_over(descriptor: int) -> Handover:
    """Read what the process was told by the program that it was before."""
    with os.fdopen(descriptor, "rb") as file:
        handover = Handover.unpack(file.read())
    os.set_inheritable(handover.lock, False)
    return handover


def _spec(values: dict[str, Any]) -> ChildSpec:
    places = {name: Path(values[name]) for name in ("directory", "log_path")}
    return ChildSpec(**values | places | {"command": tuple(values["command"])})
