"""Send a webhook: signed as Standard Webhooks says, to a checked address, bounded in time and size.

Redirects are not followed, as they would lead around the check. Proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import Iterable
from dataclasses import dataclass

import httpcore2
from django.utils.translation import gettext as _

from chat.access.checked_network import CheckedNetwork
from chat.access.destinations import Destination, DestinationRules
from chat.alerts.models import ANSWER_CHARS, MAX_ADDRESS_CHARS
from chat.alerts.secrets import secret_bytes

TIMEOUT_S = 10.0
"""Of a whole try: resolving, connecting, sending, the answer."""
ANSWER_BYTES = 4 * ANSWER_CHARS
WEBHOOK_RULES = DestinationRules("LIGHTCONE_WEBHOOK_NETWORKS", MAX_ADDRESS_CHARS)


@dataclass(frozen=True, slots=True)
class Message:
    """What a webhook says. `at_s`: when this try is made."""

    id: str
    at_s: int
    body: str


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    """How the body began."""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status <= 299


class WebhookFailed(Exception):
    """The error for a webhook that got no answer; the message says why."""


def signature(message: Message, secret: str) -> str:
    """Return the signature of a message with one secret."""
    signed = f"{message.id}.{message.at_s}.{message.body}".encode()
    return "v1," + base64.b64encode(hmac.digest(secret_bytes(secret), signed, hashlib.sha256)).decode()


def headers_of(message: Message, secrets: Iterable[str], user_agent: str) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "user-agent": user_agent,
        "webhook-id": message.id,
        "webhook-timestamp": str(message.at_s),
        "webhook-signature": " ".join(signature(message, secret) for secret in secrets),
    }


async def webhook_send(
    destination: Destination, *, headers: dict[str, str], body: str, timeout_s: float = TIMEOUT_S
) -> Answer:
    """Send a webhook and return its answer, whatever its status. Raises AddressRefused or WebhookFailed."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _send(destination, headers, body)
    except TimeoutError:
        text = _("No complete answer came within %(seconds)s s.") % {"seconds": f"{timeout_s:g}"}
        raise WebhookFailed(text) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError) as error:
        raise WebhookFailed(str(error)[:ANSWER_CHARS] or type(error).__name__) from error


async def _send(destination: Destination, headers: dict[str, str], body: str) -> Answer:
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=ssl.create_default_context(),
        max_connections=1,
        max_keepalive_connections=0,
        network_backend=CheckedNetwork(WEBHOOK_RULES),
    )
    async with (
        pool,
        pool.stream("POST", destination.url, headers=list(headers.items()), content=body.encode()) as response,
    ):
        start = b""
        async for piece in response.aiter_stream():
            start += piece
            if len(start) >= ANSWER_BYTES:
                break
    return Answer(response.status, _shown(start))


def _shown(start: bytes) -> str:
    """Return the start of a body as a text that a page can show and a database can store."""
    text = start[:ANSWER_BYTES].decode("utf-8", "replace")
    return "".join(char if char.isprintable() else " " for char in text).strip()[:ANSWER_CHARS]
