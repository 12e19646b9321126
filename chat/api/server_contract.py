"""What the HTTP server and the application tell each other through the ASGI scope of a request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

Scope = dict[str, Any]
"""A request as ASGI describes it."""

ADMITTED = "lightcone.admitted"
"""Where an application finds, in the scope, the `Admitted` of its request."""
STOP = "lightcone.stop"
"""Where it finds the server's `Stop`."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Why a body may come. `owner`: whose share of all bodies it takes; `max_body_bytes`: None, as usual on its path; `known`: what the
    application has learned of the request already, None of a stranger."""

    owner: str
    max_body_bytes: int | None = None
    known: object = None


class Stop:
    """`is_announced`: it stops soon, and who balances load should choose another; what comes is still answered. `closing` is set when
    nothing new is taken any more: what runs may end."""

    def __init__(self) -> None:
        self.is_announced = False
        self.closing = asyncio.Event()
