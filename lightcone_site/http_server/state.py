"""What all connections of a server share."""

from __future__ import annotations

import asyncio

from chat.api.server_contract import Stop
from engine.memory import HeapTrimmer
from lightcone_site.http_server.budget import BodiesBudget
from lightcone_site.http_server.connections import Connections
from lightcone_site.http_server.options import Limits, ServerOptions
from lightcone_site.http_server.outgoing import Unread

HEAP_RELEASE_DELAY_S = 5.0
UNKNOWN_PART = 8
"""Bodies of clients that the application does not know have a budget of their own: this part of the other one."""


class ServerState:
    """Limits and options, and the counts that the limits bound."""

    def __init__(self, limits: Limits, options: ServerOptions) -> None:
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
