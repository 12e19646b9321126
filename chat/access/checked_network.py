"""A network for the HTTP client that connects to checked addresses alone."""

from __future__ import annotations

from typing import Any

import httpcore2
from django.utils.translation import gettext as _

from chat.access.destinations import DestinationRules, Resolve


class CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """A network that resolves a host itself, once, and connects to the addresses that it has checked.

    TLS and `Host` have the name.
    """

    def __init__(self, rules: DestinationRules, resolve: Resolve | None = None) -> None:
        self._network = httpcore2.AnyIOBackend()
        self._rules = rules
        self._resolve = resolve

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        failure: Exception | None = None
        for address in await self._rules.addresses_of(host, port, self._resolve):
            try:
                return await self._network.connect_tcp(address, port, *args, **options)
            except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
                failure = error
        raise failure or OSError(_("the host has no address"))

    async def connect_unix_socket(self, path: str, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("requests go to hosts")

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
