"""Changes of keys, limits and models hold from the next request in every process: the door asks for the epoch first.

One GET per request. A lost notice is harmless, as nothing is notified: the epoch in Valkey is compared with the one under which
the copies of this process were made. While Valkey is away no copy is trusted, and the database decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from chat.access.configuration import configuration_changed
from chat.relay.web.dispatcher import dispatcher_of_loop

ReadEpoch = Callable[[], Awaitable[bytes | None]]


class CopiesOfConfiguration:
    """The epoch under which a process made its copies; `forget()` drops them."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._epoch: bytes | None = None

    async def refresh(self, read_epoch: ReadEpoch) -> None:
        """Drop the copies if the epoch has changed since they were made, or cannot be read."""
        try:
            epoch = await read_epoch()
        except (RedisError, OSError):
            self._forget()
            return
        if epoch != self._epoch:
            self._forget()
            self._epoch = epoch


def configuration_ask() -> ReadEpoch:
    """Ask for the epoch when a request has come, for the `configuration_refresh` on its way: the answer comes while the request is read."""
    return dispatcher_of_loop().configuration_ask()


async def configuration_refresh(asked: ReadEpoch | None = None) -> None:
    """Call before a decision that rests on cached keys or models. `asked`: of `configuration_ask`, since the request came."""
    await _copies.refresh(asked or dispatcher_of_loop().configuration_epoch)


_copies = CopiesOfConfiguration(lambda: configuration_changed.send(sender=None))
