"""Whose address a request or a socket comes from; the one place that believes forwarding headers, and only from trusted proxies."""

from __future__ import annotations

import ipaddress

from django.conf import settings
from django.http import HttpRequest

MAX_ADDRESS_CHARS = 64


def client_address(*, peer: str, forwarded: str) -> str:
    """The peer's address, or the nearest untrusted one of X-Forwarded-For when the peer is a trusted proxy. "" on a Unix socket."""
    if not settings.LIGHTCONE_TRUSTED_PROXIES:
        return peer
    address = peer
    for hop in reversed(forwarded.split(",")):
        if not _is_trusted(address) or not hop.strip():
            break
        address = hop.strip()[:MAX_ADDRESS_CHARS]
    return address


def request_address(request: HttpRequest) -> str:
    """`client_address` of an HTTP request."""
    return client_address(peer=request.META.get("REMOTE_ADDR") or "", forwarded=request.headers.get("X-Forwarded-For", ""))


def _is_trusted(address: str) -> bool:
    try:
        peer = ipaddress.ip_address(address)
        return any(peer in ipaddress.ip_network(proxy, strict=False) for proxy in settings.LIGHTCONE_TRUSTED_PROXIES)
    except ValueError:
        return False
