"""The open connections, WebSockets included: how many there may be in all and of one address.

If there are too many, idle ones are closed: those of the address itself, or, if there are too many in all, those of the
address with the most. Proxies have no bound of their own, as many clients come through them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from heapq import nsmallest
from operator import itemgetter
from typing import Any
from weakref import WeakSet

from chat.access.addresses import ip_address
from lightcone_site.limits import HttpLimits

IPV6_PREFIX = 64
"""Bits of an IPv6 address that a network gives to one customer, who chooses the rest."""
CLOSED_PART = 16
"""One in so many connections of an address is closed at once, as it takes time to find idle ones."""


class Connections:
    """The open transports by the address of their peer; under "" those that have no bound of their own."""

    def __init__(self, limits: HttpLimits, is_proxy: Callable[[str], bool]) -> None:
        self._limits = limits
        self._is_proxy = is_proxy
        self._by_address: dict[str, WeakSet[Any]] = {}

    def admit(self, transport: Any) -> bool:
        """Count a new connection. Return False if there are too many and none is idle."""
        address = self._address(transport)
        of_address = self._by_address.get(address, ())
        if address and len(of_address) >= self._limits.max_connections_per_address and not self._make_room(address):
            return False
        if len(self) >= self._limits.max_connections and not self._make_room(self._fullest()):
            return False
        self._by_address.setdefault(address, WeakSet()).add(transport)
        return True

    def release(self, transport: Any) -> None:
        address = self._address(transport)
        of_address = self._by_address.get(address, WeakSet())
        of_address.discard(transport)
        if not of_address:
            self._by_address.pop(address, None)

    def all(self) -> list[Any]:
        return [transport for of_address in self._by_address.values() for transport in of_address]

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def _address(self, transport: Any) -> str:
        """Return the address to count by; "" for a proxy, and for a peer without an address, as on a Unix socket."""
        host = getattr(transport.getPeer(), "host", "") or ""
        return "" if self._is_proxy(host) else address_of_customer(host)

    def _fullest(self) -> str:
        """Return the address with the most connections, "" if none has a bound."""
        return max(filter(None, self._by_address), key=lambda address: len(self._by_address[address]), default="")

    def _make_room(self, address: str) -> bool:
        """Close the connections that have been idle longest, and forget lost WebSockets.

        Return False if there were none.
        """
        of_address = self._by_address.get(address, WeakSet())
        idle = [(since, transport) for transport in of_address if (since := idle_since(transport)) is not None]
        longest = nsmallest(max(1, len(of_address) // CLOSED_PART), idle, key=itemgetter(0))
        for _, transport in longest:
            transport.abortConnection()
        lost = [transport for transport in of_address if not transport.connected]
        for transport in (*lost, *(transport for _, transport in longest)):
            of_address.discard(transport)
        return bool(lost or longest)


def idle_since(transport: Any) -> float | None:
    """Return the time since when a connection is idle, on the reactor's clock; None if it is busy."""
    return getattr(getattr(transport, "protocol", None), "idle_since", None)


def address_of_customer(host: str) -> str:
    """Return an IPv4 address, or the network of an IPv6 address; "" for any other text."""
    try:
        address = ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False).network_address)
