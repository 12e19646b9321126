"""The hosts that media may be fetched from: the entries of LIGHTCONE_MEDIA_DOMAINS, as the settings keep them.

An entry is an exact host (its ports are 80 and 443), a host with a port, or `*` for every public host.
"""

from __future__ import annotations

from django.conf import settings

from chat.access.destinations import PORTS, AddressRefused, Destination, DestinationRules

MAX_URL_CHARS = 8192
MEDIA_RULES = DestinationRules("LIGHTCONE_MEDIA_NETWORKS", MAX_URL_CHARS)
ANY = "*"


def is_remote_allowed() -> bool:
    """Return True if the operator lets media be fetched at all."""
    return bool(settings.LIGHTCONE_MEDIA_DOMAINS)


def is_host_allowed(destination: Destination) -> bool:
    """Return True if the operator names the host, and the port, of a destination."""
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    listed = settings.LIGHTCONE_MEDIA_DOMAINS
    if f"{host}:{destination.port}" in listed:
        return True
    return destination.port in PORTS.values() and (host in listed or ANY in listed)


def destination_of(url: str) -> Destination:
    """Return a URL's parts. Raises AddressRefused for one that media may not be fetched from, whoever asks."""
    destination = MEDIA_RULES.read(url)
    if destination.scheme == "http" and not settings.LIGHTCONE_MEDIA_HTTP:
        raise AddressRefused("http")
    return destination
