"""Fetch media of requests: data URLs, and remote files of the hosts that the operator names.

The room's callers use `MediaFetcher.fetch`. Proxies of the environment, cookies and credentials are never used. What
is fetched goes to the worker undecoded; its first bytes are looked at here, so that nothing else leaves its server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from weakref import WeakValueDictionary

import httpcore2
from django.conf import settings

from chat.access.checked_network import CheckedNetwork
from chat.access.destinations import AddressInside, AddressRefused, Destination, Resolve
from chat.errors import ApiError
from chat.media.cache import Kept, MediaCache
from chat.media.data_urls import Media, MediaBudget, data_url_read, is_data_url
from chat.media.errors import media_refused
from chat.media.hosts import MEDIA_RULES, destination_of, is_host_allowed, is_remote_allowed
from engine.api.media import MediaKind, MediaLimits
from engine.api.media_formats import HEAD_BYTES, formats_of, media_format

logger = logging.getLogger(__name__)

REDIRECTS = (301, 302, 303, 307, 308)
MAX_FETCHES = 32
"""Of a web process at once."""
MAX_TENANT_FETCHES = 8
MAX_RESOLVES = 8
"""Names that are resolved at once. The system's resolver cannot be interrupted."""
INLINE_CHARS = 1 << 18
"""The longest data URL that is read on the event loop; it takes a millisecond."""
CACHE_FOLDER = "media_cache"
FAILURES = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError, ValueError)
"""What a server that is away, broken or hostile makes the client raise."""


@dataclass(frozen=True, slots=True)
class MediaRequest:
    """Who asks for an item. `param`: its field. `may_fetch`: the key has the right to fetch remote media.

    `may_keep`: the project lets things be stored. `max_bytes`: of the item, where fewer than any media may have.
    """

    kind: MediaKind
    param: str
    tenant: str
    may_fetch: bool
    may_keep: bool = True
    max_bytes: int | None = None


class _Failed(Exception):
    """The error for a fetch that did not succeed. The text is for the log of the operator alone."""


class MediaFetcher:
    """The fetcher of a web process. `resolve` and `ssl_context` are the system's unless they are given."""

    def __init__(
        self,
        limits: MediaLimits | None = None,
        cache: MediaCache | None = None,
        *,
        resolve: Resolve | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.limits = limits or settings.LIGHTCONE_MEDIA_LIMITS
        self._cache = cache or MediaCache(Path(settings.DATA_DIR) / CACHE_FOLDER, settings.LIGHTCONE_MEDIA_CACHE_BYTES)
        self._resolve_threads = ThreadPoolExecutor(MAX_RESOLVES, "media-resolve")
        self._network = CheckedNetwork(MEDIA_RULES, resolve or self._resolve)
        self._ssl_context = ssl_context
        self._all = asyncio.Semaphore(MAX_FETCHES)
        self._of_tenants: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def budget(self) -> MediaBudget:
        """Return the bytes of a new request, for all its items."""
        return MediaBudget(self.limits)

    async def fetch(self, url: str, request: MediaRequest, budget: MediaBudget) -> Media:
        """Return an item of a request, undecoded, of the asked kind by its first bytes. Raises ApiError.

        1. Read a data URL; refuse other schemes than http and https, and what the operator or the key does not allow.
        2. Fetch it, through at most `LIGHTCONE_MEDIA_REDIRECTS` redirects, each checked like the first URL.
        """
        if is_data_url(url):
            return await self._of_data_url(url, request, budget)
        destination = self._checked(url, request)
        timeout_s = self.limits.timeout_s(request.kind)
        try:
            async with asyncio.timeout(timeout_s), self._place(request.tenant):
                found = await self._cached(destination, request, budget)
        except TimeoutError:
            raise media_refused(request.param, f"could not be fetched within {timeout_s:g} s; send the data") from None
        except (_Failed, AddressRefused, *FAILURES) as error:
            logger.info("media of %s could not be fetched: %s", destination.origin, _shown(error))
            message = "could not be fetched: its server must be reachable and answer with the file; send the data"
            raise media_refused(request.param, message) from None
        return Media(request.kind, (found.data,), may_be_kept=found.may_be_kept)

    async def _resolve(self, host: str, port: int) -> list[str]:
        """Resolve in threads of its own: names that hang must not hold up others' work."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._resolve_threads, _addresses, host, port)
        return list(dict.fromkeys(str(place[4][0]) for place in found))

    async def _of_data_url(self, url: str, request: MediaRequest, budget: MediaBudget) -> Media:
        def read() -> Media:
            return data_url_read(url, kind=request.kind, param=request.param, limits=self.limits, budget=budget)

        return read() if len(url) <= INLINE_CHARS else await asyncio.to_thread(read)

    def _checked(self, url: str, request: MediaRequest) -> Destination:
        """Return the destination of a first URL. Raises ApiError, with what is wrong in the words of the API."""
        param = request.param
        if url.split(":", 1)[0].lower() not in ("http", "https"):
            raise media_refused(param, "must be a data URL with base64, or an address that begins with https://")
        if not is_remote_allowed():
            raise _not_fetched(request, "this server fetches no remote media")
        if not request.may_fetch:
            raise _not_fetched(request, "this API key may not have media fetched")
        try:
            destination = destination_of(url)
        except AddressInside:
            message = (
                "must not lead to a private, local or reserved address, unless the operator admits it; send the data"
            )
            raise media_refused(param, message) from None
        except AddressRefused:
            schemes = "http:// or https://" if settings.LIGHTCONE_MEDIA_HTTP else "https://"
            message = (
                f"must begin with {schemes} and name a host, without user, password, spaces or backslashes, in at most "
                f"{MEDIA_RULES.max_chars} characters"
            )
            raise media_refused(param, message) from None
        if not is_host_allowed(destination):
            message = "names a host that this server does not fetch media from; send the data"
            raise media_refused(param, message)
        return destination

    def close(self) -> None:
        """End the threads. Idempotent."""
        self._resolve_threads.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place of the tenant, and one of all."""
        own = self._of_tenants.get(tenant)
        if own is None:
            own = self._of_tenants[tenant] = asyncio.Semaphore(MAX_TENANT_FETCHES)
        async with own, self._all:
            yield

    async def _cached(self, destination: Destination, request: MediaRequest, budget: MediaBudget) -> Kept:
        if not request.may_keep:
            return await self._fetched(destination, request, budget, None)
        kept = await asyncio.to_thread(self._cache.get, request.tenant, destination.url)
        if kept is not None and not _is_of_kind(kept.data, request.kind):
            kept = None
        fresh = await self._fetched(destination, request, budget, kept)
        if kept is not None and fresh.data is kept.data:
            _check_size(len(kept.data), request, budget)
            budget.take(len(kept.data), request.param)
        else:
            await asyncio.to_thread(self._cache.put, request.tenant, destination.url, fresh)
        if kept is not None and not fresh.may_be_kept:
            await asyncio.to_thread(self._cache.drop, request.tenant, destination.url)
        return fresh

    async def _fetched(
        self, destination: Destination, request: MediaRequest, budget: MediaBudget, kept: Kept | None
    ) -> Kept:
        """Return the answer behind all redirects, or `kept` if it has not changed."""
        for _ in range(settings.LIGHTCONE_MEDIA_REDIRECTS + 1):
            is_kept = kept is not None and kept.url == destination.url
            async with self._answer(destination, kept.conditions if kept is not None and is_kept else {}) as answer:
                if answer.status in REDIRECTS:
                    location = _header(answer, b"location")
                elif answer.status == 304 and kept is not None and is_kept:
                    return replace(kept, may_be_kept=not _forbids_keeping(answer))
                elif answer.status == 200:
                    data = await _body(answer, request, budget)
                    is_stored = not _forbids_keeping(answer)
                    names = (_header(answer, b"etag"), _header(answer, b"last-modified"))
                    return Kept(destination.url, *(names if is_stored else ("", "")), data, may_be_kept=is_stored)
                else:
                    raise _Failed(f"status {answer.status}")
            if not location:
                raise _Failed("a redirect without a location")
            destination = destination_of(urljoin(destination.url, location))
            if not is_host_allowed(destination):
                raise _Failed("a redirect to a host that is not allowed")
        raise _Failed("too many redirects")

    @asynccontextmanager
    async def _answer(self, destination: Destination, conditions: dict[str, str]) -> AsyncIterator[httpcore2.Response]:
        headers = {
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": f"Lightcone/{settings.LIGHTCONE_VERSION}",
        }
        if self._ssl_context is None:
            self._ssl_context = await asyncio.to_thread(ssl.create_default_context)
        pool = httpcore2.AsyncConnectionPool(
            ssl_context=self._ssl_context,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=self._network,
        )
        async with (
            pool,
            pool.stream("GET", destination.url, headers=list((headers | conditions).items())) as answer,
        ):
            yield answer


def _addresses(host: str, port: int) -> list[Any]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _body(answer: httpcore2.Response, request: MediaRequest, budget: MediaBudget) -> bytes:
    """Return the bytes of an answer. Raises ApiError as soon as they are too many, or of another kind than is asked."""
    if _header(answer, b"content-encoding").lower() not in ("", "identity"):
        raise _Failed("an encoded body, which was not asked for")
    length = _header(answer, b"content-length")
    if length.isdecimal() and len(length) < 20:
        _check_size(int(length), request, budget)
    data = bytearray()
    is_looked_at = False
    async for piece in answer.aiter_stream():
        data += piece
        _check_size(len(data), request, budget)
        if not is_looked_at and len(data) >= HEAD_BYTES:
            is_looked_at = True
            _check_kind(data, request)
    _check_kind(data, request)
    budget.take(len(data), request.param)
    return bytes(data)


def _check_size(num_bytes: int, request: MediaRequest, budget: MediaBudget) -> None:
    """Raise ApiError for more bytes than an item may have."""
    most = request.max_bytes
    if most is not None and most < num_bytes:
        raise media_refused(request.param, f"must have at most {most} bytes; send a smaller file", limit=most)
    if num_bytes > budget.item_bytes:
        raise budget.exceeded(request.param)


def _check_kind(data: bytes | bytearray, request: MediaRequest) -> None:
    if not _is_of_kind(data, request.kind):
        raise _not_of_kind(request)


def _is_of_kind(data: bytes | bytearray, kind: MediaKind) -> bool:
    found = media_format(bytes(data[:HEAD_BYTES]))
    return found is not None and kind in found.kinds


def _not_fetched(request: MediaRequest, reason: str) -> ApiError:
    """Return the refusal of an address, with what to send: fields of files take addresses alone."""
    if request.kind == MediaKind.DOCUMENT:
        return media_refused(request.param, f"cannot be used: {reason}; send the file in base64")
    return media_refused(request.param, f"must be a data URL with base64: {reason}")


def _not_of_kind(request: MediaRequest) -> ApiError:
    kind = f"{'an' if request.kind in (MediaKind.IMAGE, MediaKind.AUDIO) else 'a'} {request.kind} file"
    return media_refused(request.param, f"must lead to {kind}: {formats_of(request.kind)}")


def _header(answer: httpcore2.Response, name: bytes) -> str:
    """Return a header, or "" if it is missing, comes twice, or has other characters than printable ASCII."""
    found = [value.decode("latin-1").strip() for key, value in answer.headers if key.lower() == name]
    return found[0] if len(found) == 1 and found[0].isascii() and found[0].isprintable() else ""


def _forbids_keeping(answer: httpcore2.Response) -> bool:
    """Return True if a server says `no-store`, in one of several lines too."""
    return any(key.lower() == b"cache-control" and b"no-store" in value.lower() for key, value in answer.headers)


def _shown(error: Exception) -> str:
    """Return an error in one line of printable characters: servers choose what some of them quote."""
    text = (str(error) or type(error).__name__)[:200]
    return "".join(char if char.isprintable() else " " for char in text)
