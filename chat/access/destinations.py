"""Where requests of this server may go: the URL, and the addresses that its host has at the moment of the connection.

Webhooks of alerts and the fetching of media have rules of their own (`DestinationRules`) and these checks. A name is
resolved once, all its addresses are checked, and one of these is connected to, so that a name whose addresses change in
between leads nowhere. Numeric hosts in any spelling are addresses, and checked like them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.utils.translation import gettext as _

from chat.access.addresses import Network, ip_address

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""What returns the addresses of a host; the port is a hint."""
PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
LOCAL_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa")
"""Ends of names that no public host has; `metadata.google.internal` is one."""
REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        # Beyond what Python knows as private in all versions that we run on.
        *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
        *("168.63.129.16/32", "fec0::/10", "100::/64", "2001::/23", "64:ff9b:1::/48", "5f00::/16"),
    )
)
"""168.63.129.16 is public, and the metadata host of one cloud."""
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
COMPATIBLE = ipaddress.IPv6Network("::/96")
ISATAP = (0x0000_5EFE, 0x0200_5EFE)


class AddressRefused(Exception):
    """The error for a destination that requests may not go to. The message names what is wrong and what to do."""


class AddressInside(AddressRefused):
    """The error for an address inside, which a setting could admit."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked URL. `host` is in small letters, without brackets; `target` begins with a slash."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port != PORTS[self.scheme] else "")

    @property
    def url(self) -> str:
        return self.origin + self.target


@dataclass(frozen=True, slots=True)
class DestinationRules:
    """The rules of one sort of requests. `setting` names the inner networks that the operator admits."""

    setting: str
    max_chars: int

    def read(self, url: str) -> Destination:
        """Return a URL's parts, checked as far as that is possible without asking for names. Raises AddressRefused."""
        if len(url) > self.max_chars:
            raise AddressRefused(_("The address has more than %(most)s characters.") % {"most": self.max_chars})
        if any(char.isspace() or not char.isprintable() or char == "\\" for char in url):
            raise AddressRefused(_("The address has a space, a backslash or a control character; write them as %20 …"))
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise AddressRefused(_("The address cannot be read: %(error)s.") % {"error": error}) from None
        if parts.scheme not in PORTS or not parts.hostname:
            raise AddressRefused(_("Give an address such as https://hooks.example.com/lightcone."))
        if parts.username is not None or parts.password is not None:
            raise AddressRefused(_("Give no user and password in the address; the signature says who sends."))
        if port == 0:
            raise AddressRefused(_("The address has the port 0; give one from 1 to 65535."))
        host = _host(parts.hostname)
        literal = _literal(host)
        if literal is not None:
            host = str(literal)
            self.check(literal)
        elif not self._networks() and any(host == name or host.endswith(f".{name}") for name in LOCAL_NAMES):
            raise self._refusal(host)
        return Destination(parts.scheme, host, port or PORTS[parts.scheme], _target(parts))

    def check(self, address: Address) -> None:
        """Raise AddressInside unless requests may go to an address."""
        networks = self._networks()
        if not all(_is_admitted(inner, networks) for inner in _inner(address)):
            raise self._refusal(str(address))

    async def addresses_of(self, host: str, port: int, resolve: Resolve | None = None) -> list[str]:
        """Return the addresses of a host, all of which are checked. Raises AddressInside, or OSError without any."""
        texts = await (resolve or addresses_resolve)(host, port)
        for text in texts:
            if "%" in text:
                raise self._refusal(text)
            self.check(ipaddress.ip_address(text))
        if not texts:
            raise OSError(_("the host has no address"))
        return texts

    def _networks(self) -> list[Network]:
        return [ipaddress.ip_network(text, strict=False) for text in getattr(settings, self.setting)]

    def _refusal(self, host: str) -> AddressInside:
        return AddressInside(
            _(
                "%(host)s is inside: private, of this machine, or of the cloud's metadata. "
                "%(setting)s can admit its network."
            )
            % {"host": host, "setting": self.setting}
        )


def _host(name: str) -> str:
    """Return a host in the letters that go over the network. Raises AddressRefused."""
    if ":" in name:
        return name
    try:
        host = name.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        host = ""
    if not HOST.fullmatch(host):
        raise AddressRefused(_("%(host)s is no host; give a name or an address.") % {"host": repr(name)})
    return host


def _target(parts: SplitResult) -> str:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii():
        raise AddressRefused(_("The path of the address has letters beyond ASCII; write them as %C3%A4 …"))
    return target


def _literal(host: str) -> Address | None:
    """Return the address that a host is, in any spelling that the system's resolver knows: 127.1, 0x7f000001, …"""
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host)
        except ValueError:
            raise AddressRefused(_("%(host)s is no host; give a name or an address.") % {"host": repr(host)}) from None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _inner(address: Address) -> list[Address]:
    """Return an address and those that it carries: a packet to it may arrive at any of them."""
    address = ip_address(str(address))
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        number = int(address)
        if address.sixtofour is not None:
            found.append(address.sixtofour)
        if address in NAT64 or (address in COMPATIBLE and number > 1) or (number >> 32) & 0xFFFF_FFFF in ISATAP:
            found.append(ipaddress.IPv4Address(number & 0xFFFF_FFFF))
    return found


def _is_admitted(address: Address, networks: list[Network]) -> bool:
    if any(address in network for network in networks):
        return True
    if address in NAT64:  # its inner address decides
        return True
    is_inside = address.is_multicast or address.is_reserved or address.is_unspecified or not address.is_global
    return not is_inside and not any(address in network for network in REFUSED)


async def addresses_resolve(host: str, port: int) -> list[str]:
    """Return the addresses that the system's resolver has for a host. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[4][0]) for place in found))
