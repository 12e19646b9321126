"""Addresses: that of a client, for which only trusted proxies' forwarding headers count, and those of this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from django.conf import settings
from django.http import HttpRequest

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_ADDRESS_CHARS = 64


def client_address(*, peer: str, forwarded: str) -> str:
    """Return the peer's address, or behind trusted proxies the nearest untrusted one. Empty on a Unix socket."""
    if not settings.LIGHTCONE_TRUSTED_PROXIES:
        return peer
    address = peer
    for hop in reversed(forwarded.split(",")):
        if not is_trusted_proxy(address) or not hop.strip():
            break
        address = hop.strip()[:MAX_ADDRESS_CHARS]
    return address


def request_address(request: HttpRequest) -> str:
    return client_address(
        peer=request.META.get("REMOTE_ADDR") or "", forwarded=request.headers.get("X-Forwarded-For", "")
    )


def is_loopback(place: str) -> bool:
    """Return True if an address, in brackets or not, or the name `localhost` means this machine."""
    try:
        return ip_address(place.strip("[]")).is_loopback
    except ValueError:
        return place.lower() == "localhost"


def is_trusted_proxy(address: str) -> bool:
    try:
        peer = ip_address(address)
        return any(peer in ipaddress.ip_network(proxy, strict=False) for proxy in settings.LIGHTCONE_TRUSTED_PROXIES)
    except ValueError:
        return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; that of IPv4 if a socket of both versions wraps one. Raises ValueError."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Return True if an address is in one of the networks. What is no address is in none."""
    try:
        place = ip_address(address)
    except ValueError:
        return False
    return any(place in network for network in networks)
