"""The contract between the HTTP server and the application, through the ASGI scope of a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

Scope = dict[str, Any]
"""A request as ASGI describes it."""

ADMITTED = "lightcone.admitted"
"""The key of the request's `Admitted` in the scope."""
STOP = "lightcone.stop"
"""The key of the server's `Stop` in the scope."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The permission to send a body, which takes from the `owner`'s share of all bodies."""

    owner: str
    max_body_bytes: int | None = None
    """None: the usual bound of the path."""
    known: object = None
    """What the application already knows of the request; None for a stranger."""


class Stop:
    """The stages of a stop. `is_announced`: a load balancer should choose another server; requests are still answered.

    `closing` is set when the server accepts nothing new and running requests may end.
    """

    def __init__(self) -> None:
        self.is_announced = False
        self.closing = asyncio.Event()
