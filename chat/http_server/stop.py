"""How far the stop of a server has come, for whoever answers within it."""

from __future__ import annotations

import asyncio


class Stop:
    """`is_announced`: it stops soon, and who balances load should choose another; what comes is still answered. `closing` is set when
    nothing new is taken any more: what runs may end."""

    def __init__(self) -> None:
        self.is_announced = False
        self.closing = asyncio.Event()
