"""Who acts: the user or key of a request, the operating-system user of a command, or the server itself.

Whoever takes a request sets it, as a function that is called only if the request does something that is audited.
"""

from __future__ import annotations

import os
import pwd
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from chat.audit.actions import ActorKind


@dataclass(frozen=True, slots=True)
class Origin:
    """Who acts, and from where."""

    kind: ActorKind
    id: str = ""
    name: str = ""
    address: str = ""
    source: str = ""
    """Console, playground or API; of a command, its line."""
    request_id: str = ""


_who: ContextVar[Callable[[], Origin] | None] = ContextVar("audit_origin", default=None)


def origin() -> Origin:
    """Return who acts now."""
    who = _who.get()
    return _of_process() if who is None else who()


def origin_set(who: Callable[[], Origin]) -> None:
    """Let what this task or thread does from now on be done by `who`."""
    _who.set(who)


@contextmanager
def acting(who: Callable[[], Origin]) -> Iterator[None]:
    """Let what happens within be done by `who`."""
    before = _who.get()
    _who.set(who)
    try:
        yield
    finally:
        _who.set(before)


def _of_process() -> Origin:
    """Return the server, in its processes, which have a role, or else the user who runs this program."""
    machine = socket.gethostname()
    if role := os.environ.get("LIGHTCONE_ROLE", ""):
        return Origin(ActorKind.SYSTEM, name=role, address=machine)
    words = [Path(sys.argv[0] or "python").name, *sys.argv[1:]]
    return Origin(ActorKind.COMMAND, str(os.getuid()), _user_name(), machine, shlex.join(words))


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that no user has
        return str(os.getuid())
