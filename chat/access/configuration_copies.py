"""Drop cached keys and models when the configuration epoch has changed, so that changes hold from the next request.

Each request reads the epoch with one GET and compares it with the epoch of the cached copies, so no notice can be lost.
While Valkey is away no copy is trusted, and the database decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.exceptions import RedisError

from chat.access.configuration import configuration_changed
from chat.relay.web.dispatcher import dispatcher_of_loop

ReadEpoch = Callable[[], Awaitable[bytes | None]]


class ConfigurationCopies:
    """The cached copies of a process and their epoch. `forget()` drops them."""

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._epoch: bytes | None = None

    async def refresh(self, read_epoch: ReadEpoch) -> None:
        """Drop the copies if the epoch has changed or cannot be read."""
        try:
            epoch = await read_epoch()
        except (RedisError, OSError):
            self._forget()
            return
        if epoch != self._epoch:
            self._forget()
            self._epoch = epoch


async def configuration_refresh() -> None:
    """Drop stale copies; call it before a decision that rests on them."""
    await _copies.refresh(dispatcher_of_loop().configuration_epoch)


_copies = ConfigurationCopies(lambda: configuration_changed.send(sender=None))
