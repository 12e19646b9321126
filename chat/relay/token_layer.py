"""The Channels layer of the alias `tokens`: Valkey's pub/sub without polling, for one reader a channel and no groups.

channels_redis polls its subscription ten times a second and takes twice the processor time for a message
(docs/decisions/0014). Messages may be lost: readers of runs detect it by the message's number.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgpack
from channels.layers import BaseChannelLayer
from redis.asyncio.connection import AbstractConnection

from chat.relay.valkey import CONNECT_TIMEOUT_S, ValkeyLine, connection_make


class TokenLayer(BaseChannelLayer):
    """The layer on one Valkey. Each event loop has its own connections."""

    def __init__(self, url: str, prefix: str = "tokens", **options: Any) -> None:
        super().__init__(**options)
        self._url = url
        self._prefix = prefix
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()

    def serialize(self, message: dict[str, Any]) -> bytes:
        """Encode a message for scripts that publish."""
        packed: bytes = msgpack.packb(message)
        return packed

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Subscribe to a new channel, which only this loop reads. Raises redis.RedisError or OSError."""
        channel, connection = f"{self._prefix}{prefix}{uuid.uuid4().hex}", connection_make(self._url)
        await _subscribe(connection, channel)
        self._here().subscriptions[channel] = connection
        return channel

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Raises redis.RedisError or OSError."""
        await self._here().line.call("PUBLISH", channel, self.serialize(message))

    async def receive(self, channel: str) -> dict[str, Any]:
        """Raises redis.RedisError or OSError once if the connection is lost; the next call subscribes again."""
        connection = self._here().subscriptions[channel]
        if not connection.is_connected:
            await _subscribe(connection, channel)
        _, _, data = await connection.read_response(disable_decoding=True)
        message: dict[str, Any] = msgpack.unpackb(data)
        return message

    async def close(self) -> None:
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.line.close()
            for connection in here.subscriptions.values():
                await connection.disconnect()

    def _here(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _LoopConnections(ValkeyLine(self._url))
        return self._loops[loop]


@dataclass(frozen=True, slots=True)
class _LoopConnections:
    line: ValkeyLine
    subscriptions: dict[str, AbstractConnection] = field(default_factory=dict)
    """By channel, of which a process has one. A subscribed connection takes no other commands."""


async def _subscribe(connection: AbstractConnection, channel: str) -> None:
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        await connection.send_command("SUBSCRIBE", channel, check_health=False)
        await connection.read_response(disable_decoding=True)
