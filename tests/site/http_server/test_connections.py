"""The connection that is closed if there are too many: an idle one of the address over its limit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from lightcone_site.http_server.connections import Connections, address_of_customer
from lightcone_site.limits import HttpLimits

LIMITS = replace(HttpLimits(), max_connections=5, max_connections_per_address=3)


@dataclass(eq=False)
class Transport:
    """The transport of a connection that is idle since an instant, or busy (None)."""

    host: str
    idle_since: float | None = None
    connected: bool = True
    protocol: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.protocol = SimpleNamespace(idle_since=self.idle_since)

    def getPeer(self) -> SimpleNamespace:
        return SimpleNamespace(host=self.host) if self.host else SimpleNamespace(name=b"socket")

    def abortConnection(self) -> None:
        self.connected = False


def table(*opened: Transport) -> Connections:
    connections = Connections(LIMITS, is_proxy="10.0.0.1".__eq__)
    for transport in opened:
        assert connections.admit(transport)
    return connections


def test_an_address_over_its_limit_loses_its_longest_idle_connection() -> None:
    """Thousands of idle connections of one address blocked all other clients."""
    opened = [Transport("192.0.2.1", idle_since) for idle_since in (None, 7.0, 3.0)]
    connections = table(*opened)
    assert connections.admit(Transport("192.0.2.1", 9.0))
    assert [transport.connected for transport in opened] == [True, True, False]


def test_an_address_with_only_busy_connections_gets_no_more() -> None:
    opened = [Transport("192.0.2.1") for _ in range(3)]
    connections = table(*opened)
    assert not connections.admit(Transport("192.0.2.1", 9.0))
    assert connections.admit(other := Transport("192.0.2.2", 9.0))
    connections.release(opened[0])
    assert connections.admit(Transport("192.0.2.1", 9.0))
    assert other.connected


def test_a_closed_websocket_is_not_counted() -> None:
    """Twisted does not report the end of a connection that has become a WebSocket."""
    opened = [Transport("192.0.2.1") for _ in range(3)]
    connections = table(*opened)
    opened[0].connected = False
    assert connections.admit(Transport("192.0.2.1"))


@pytest.mark.parametrize("host", ["10.0.0.1", ""], ids=["a proxy", "a Unix socket"])
def test_proxies_and_unix_sockets_have_no_limit_per_address(host: str) -> None:
    opened = [Transport(host) for _ in range(5)]
    connections = table(*opened)
    assert not connections.admit(Transport(host))
    assert all(transport.connected for transport in opened)


def test_over_the_total_limit_the_address_with_the_most_connections_loses_one() -> None:
    many = [Transport("192.0.2.1", float(number)) for number in range(3)]
    few = [Transport("192.0.2.2", 0.0), Transport("10.0.0.1", 0.0)]
    connections = table(*many, *few)
    assert connections.admit(Transport("192.0.2.3", 9.0))
    assert [transport.connected for transport in many] == [False, True, True]
    assert all(transport.connected for transport in few)


@pytest.mark.parametrize(
    ("host", "customer"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("name", ""),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(host: str, customer: str) -> None:
    assert address_of_customer(host) == customer
