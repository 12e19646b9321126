"""Authentication of API requests: find the key, in headers alone, check it, and slow down clients that guess."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port
from redis.exceptions import RedisError

from chat.access.accounts import anonymous_caller
from chat.access.addresses import is_loopback, request_address
from chat.access.admin_keys import (
    ADMIN_KEY_PREFIX,
    AdminCaller,
    AdminKeyForbidden,
    AdminKeyInvalid,
    admin_key_authenticate,
)
from chat.access.configuration import configuration_changed
from chat.access.keys import KEY_PREFIX, Caller, KeyForbidden, KeyInvalid, key_authenticate
from chat.errors import ApiError
from chat.relay.web.dispatcher import dispatcher_of_loop

MAX_ADDRESSES = 10_000
FORWARDING_HEADERS = frozenset(
    "forwarded via x-real-ip x-client-ip x-cluster-client-ip x-original-forwarded-for true-client-ip cf-connecting-ip "
    "fastly-client-ip".split()
)
"""Headers by which a proxy names its client, beside those that begin with `X-Forwarded`."""
MISSING_KEY = "You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY' or as 'x-api-key: YOUR_KEY'."
NOT_BEARER = "Incorrect API key provided: the Authorization header must read 'Bearer YOUR_KEY'."
ADMIN_KEY_HERE = "An admin key (lca_…) opens /v1/organization alone. Send an API key (lc_…) here."
TOO_MANY = "Too many requests with a wrong API key from your address. Wait, then send a valid key."


class AuthFailures:
    """The wrong keys by address within a window, in this process. The address that failed longest ago goes first."""

    def __init__(self, *, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.window_s = window_s
        self.clock = clock
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: when its window began, and the number."""

    def wait_s(self, address: str) -> float:
        """Return the seconds that this address has to wait; 0 if it may try."""
        since, count = self._failures.get(address, (0.0, 0))
        if count < self.limit:
            return 0.0
        left = since + self.window_s - self.clock()
        if left <= 0:
            del self._failures[address]
        return max(0.0, left)

    def add(self, address: str) -> None:
        now = self.clock()
        since, count = self._failures.pop(address, (now, 0))
        if now - since > self.window_s:
            since, count = now, 0
        self._failures[address] = (since, count + 1)
        if len(self._failures) > MAX_ADDRESSES:
            self._failures.popitem(last=False)


class ConfigurationCopies:
    """The cached keys and models of a process, and the configuration epoch that they belong to. `forget()` drops them.

    Each request compares the epoch, so changes hold from the next request and no notice can be lost.
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._epoch: bytes | None = None

    async def refresh(self, read_epoch: Callable[[], Awaitable[bytes | None]]) -> None:
        """Drop the copies if the epoch has changed, or cannot be read: then the database decides."""
        try:
            epoch = await read_epoch()
        except (RedisError, OSError):
            self._forget()
            return
        if epoch != self._epoch:
            self._forget()
            self._epoch = epoch


_copies = ConfigurationCopies(lambda: configuration_changed.send(sender=None))


async def configuration_refresh() -> None:
    """Drop stale copies; call it before a decision that rests on them."""
    await _copies.refresh(dispatcher_of_loop().configuration_epoch)


async def caller_identify(request: HttpRequest, *, key_header: str, failures: AuthFailures) -> Caller:
    """Return the caller of this request. `key_header`: the dialect's own header, which wins if both are present.

    A valid key passes even if its address has sent many wrong ones, as clients may share a proxy. Raises ApiError: 401
    without a valid key, 403 for one that is valid elsewhere, 429 after too many wrong keys of the address.
    """
    address = request_address(request)
    scheme, raw = _sent_key(request, key_header)
    if not raw.startswith(KEY_PREFIX) and _may_be_anonymous(request):
        return await database_sync_to_async(anonymous_caller)()
    if not raw:
        raise ApiError("invalid_api_key", MISSING_KEY)
    counted = None if _is_local(request, address) else failures
    if scheme != "bearer":
        raise _wrong_key(NOT_BEARER, counted, address)
    await configuration_refresh()
    try:
        return await key_authenticate(raw=raw, address=address, origin=request.headers.get("Origin", ""))
    except KeyInvalid as error:
        message = ADMIN_KEY_HERE if raw.startswith(ADMIN_KEY_PREFIX) else str(error)
        raise _wrong_key(message, counted, address) from None
    except KeyForbidden as error:
        raise ApiError("permission_denied", str(error)) from None


async def admin_identify(request: HttpRequest, *, failures: AuthFailures) -> AdminCaller:
    """Return the caller of a request with an admin key. Raises ApiError as `caller_identify` does."""
    address = request_address(request)
    scheme, raw = _sent_key(request, "authorization")
    if not raw:
        raise ApiError("invalid_api_key", MISSING_KEY)
    counted = None if _is_local(request, address) else failures
    if scheme != "bearer":
        raise _wrong_key(NOT_BEARER, counted, address)
    try:
        return await database_sync_to_async(admin_key_authenticate)(raw=raw, address=address)
    except AdminKeyInvalid as error:
        raise _wrong_key(str(error), counted, address) from None
    except AdminKeyForbidden as error:
        raise ApiError("permission_denied", str(error)) from None


def _wrong_key(message: str, failures: AuthFailures | None, address: str) -> ApiError:
    """Count a wrong key and return its error, or the error that asks to wait. `failures` None: do not count."""
    if failures is not None:
        wait_s = failures.wait_s(address)
        if wait_s:
            return ApiError("rate_limit_exceeded", TOO_MANY, retry_after_s=wait_s)
        failures.add(address)
    return ApiError("invalid_api_key", message)


def _sent_key(request: HttpRequest, key_header: str) -> tuple[str, str]:
    """Return the scheme, `bearer` for a usable one, and the key as sent, which is empty if there is none."""
    bearer = request.headers.get("Authorization")
    plain = request.headers.get("X-Api-Key")
    if plain is not None and (key_header == "x-api-key" or bearer is None):
        return "bearer", plain.strip()
    scheme, _, key = (bearer or "").strip().rpartition(" ")
    if not scheme and key.lower() == "bearer":
        return "bearer", ""
    return scheme.rstrip().lower(), key


def _may_be_anonymous(request: HttpRequest) -> bool:
    """Return True if the operator admits requests without a key and this one comes from a program on this machine.

    The asked name must be a loopback one, which excludes pages whose host name was rebound to this address.
    """
    return (
        settings.LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK
        and not settings.LIGHTCONE_TRUSTED_PROXIES
        and not _is_forwarded(request)
        and is_loopback(request.META.get("REMOTE_ADDR") or "")
        and is_loopback(split_domain_port(request.get_host())[0])
        and _is_from_allowed_page(request)
    )


def _is_from_allowed_page(request: HttpRequest) -> bool:
    """Return True without an Origin header, or if it names an allowed page. Only browsers send one."""
    origin = request.headers.get("Origin")
    allowed = settings.LIGHTCONE_CORS_ALLOWED_ORIGINS
    return origin is None or "*" in allowed or origin in (*allowed, f"{request.scheme}://{request.get_host()}")


def _is_local(request: HttpRequest, address: str) -> bool:
    """Return True if the request comes from this machine without a proxy."""
    return not _is_forwarded(request) and (address == "" or is_loopback(address))


def _is_forwarded(request: HttpRequest) -> bool:
    return any(name.lower() in FORWARDING_HEADERS or name.lower().startswith("x-forwarded") for name in request.headers)
