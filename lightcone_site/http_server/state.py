"""What a server is given, and what its connections share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chat.api.server_contract import Admitted, Scope, Stop
from chat.errors import ApiError
from engine.memory import HeapTrimmer
from lightcone_site.http_server.budget import BodiesBudget
from lightcone_site.http_server.connections import Connections
from lightcone_site.http_server.outgoing import Unread
from lightcone_site.limits import HttpLimits

HEAP_RELEASE_DELAY_S = 5.0
UNKNOWN_PART = 8
"""Bodies of clients that the application does not know have a budget of their own: this part of the other one."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The functions of the application that a server calls, and the times of its stop in seconds."""

    admit: Callable[[Scope], Awaitable[Admitted]]
    """Check a request whose headers have arrived and whose body has not. Raises ApiError to refuse the body."""
    render_error: Callable[[str, str | None, ApiError], tuple[dict[str, str], bytes]]
    """Return headers and body of an error, from the path and the Origin header of its request."""
    is_proxy: Callable[[str], bool]
    """Return True for an address that many clients come through."""
    drain_s: float
    drain_delay_s: float
    on_cut: Callable[[], None]
    """Called before running answers are cut."""
    settle: Callable[[], Awaitable[None]]
    """Finish what cut answers leave behind. It has little time."""


class ServerState:
    """Limits and options, and the counts that the limits bound."""

    def __init__(self, limits: HttpLimits, options: ServerOptions) -> None:
        self.limits = limits
        self.options = options
        self.open_connections = Connections(limits, options.is_proxy)
        heap = HeapTrimmer(HEAP_RELEASE_DELAY_S)
        self.bodies = BodiesBudget(limits.max_bodies_bytes, heap.schedule)
        self.unknown_bodies = BodiesBudget(limits.max_bodies_bytes // UNKNOWN_PART, heap.schedule)
        self.unread = Unread(limits.max_unread_bytes)
        self.stop = Stop()
        self.changed = asyncio.Event()
        """Set when an answer or a connection has ended."""
