"""The Channels layer of the alias `tokens`: Valkey's pub/sub without polling. A channel has one reader; there are no
groups.

channels_redis polls its subscription ten times a second through several layers of redis-py; here a message goes from
the socket into the channel's queue. Messages may be lost, as the contract of layers allows: readers of runs detect it
by the message's number. After a lost connection the channels are subscribed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from typing import Any
from weakref import WeakKeyDictionary

import msgpack
from channels.layers import BaseChannelLayer
from redis.exceptions import RedisError

from chat.relay.valkey.wire import ErrorReply, Reply, RespClient, RespConnection, pack_command, resp_connect

logger = logging.getLogger(__name__)

MAX_MESSAGES = 10_000
"""The messages that wait in one channel at most; further ones are lost."""
RETRY_S = 0.5


class TokenLayer(BaseChannelLayer):
    """The layer on one Valkey. `prefix` begins the names of new channels. Each event loop has its own connections."""

    def __init__(self, url: str, prefix: str = "tokens", **options: Any) -> None:
        super().__init__(**options)
        self._url = url
        self._prefix = prefix
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopLayer] = WeakKeyDictionary()

    def serialize(self, message: dict[str, Any]) -> bytes:
        """Encode a message as it is published, for scripts that publish."""
        packed: bytes = msgpack.packb(message)
        return packed

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Subscribe to a new channel, which only this loop reads. Raises redis.RedisError or OSError."""
        name = f"{self._prefix}{prefix}{uuid.uuid4().hex}"
        await self._here().subscribe(name)
        return name

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Raises redis.RedisError or OSError."""
        await self._here().publish(channel, self.serialize(message))

    async def receive(self, channel: str) -> dict[str, Any]:
        message: dict[str, Any] = msgpack.unpackb(await self._here().queue(channel).get())
        return message

    async def close(self) -> None:
        """Close the connections of the running loop."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.close()

    def _here(self) -> _LoopLayer:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _LoopLayer(self._url)
        return self._loops[loop]


class _LoopLayer:
    """The channels of one event loop, and its two connections, as a subscriber's connection takes no other commands."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._queues: dict[str, asyncio.Queue[bytes]] = {}
        self._subscription: RespConnection | None = None
        self._subscribed: dict[str, asyncio.Event] = {}
        self._connecting = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None
        self._client = RespClient(url)
        self._is_closed = False

    def queue(self, channel: str) -> asyncio.Queue[bytes]:
        return self._queues[channel]

    async def subscribe(self, channel: str) -> None:
        self._queues[channel] = asyncio.Queue(MAX_MESSAGES)
        self._subscribed[channel] = asyncio.Event()
        try:
            async with self._connecting:
                if self._subscription is None:
                    await self._connect()
                else:
                    self._subscription.send(pack_command(b"SUBSCRIBE", channel.encode()))
            await self._subscribed[channel].wait()
        except BaseException:
            del self._queues[channel], self._subscribed[channel]
            raise

    async def publish(self, channel: str, data: bytes) -> None:
        answer = await self._client.call(b"PUBLISH", channel.encode(), data)
        if isinstance(answer, ErrorReply):
            raise RedisError(answer)

    async def close(self) -> None:
        self._is_closed = True
        self._client.close()
        if self._subscription is not None:
            self._subscription.close()
        if self._returning is not None:
            self._returning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._returning
        await asyncio.sleep(0)  # transports report their end in the next turn of the loop

    async def _connect(self) -> None:
        """Connect and subscribe every channel."""
        self._subscription = await resp_connect(self._url, self._take, self._lose)
        self._subscription.send(pack_command(b"SUBSCRIBE", *(channel.encode() for channel in self._queues)))

    def _take(self, answer: Reply) -> None:
        if not isinstance(answer, list) or len(answer) != 3:
            return
        kind, name, data = answer
        channel = name.decode()
        if kind == b"message" and channel in self._queues:
            with contextlib.suppress(asyncio.QueueFull):
                self._queues[channel].put_nowait(data)
        elif kind == b"subscribe" and channel in self._subscribed:
            self._subscribed[channel].set()

    def _lose(self) -> None:
        self._subscription = None
        if not self._is_closed:
            logger.warning("the subscription of this process was cut")
            self._returning = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        while self._subscription is None:
            try:
                async with self._connecting:
                    if self._subscription is None:
                        await self._connect()
            except (RedisError, OSError):
                await asyncio.sleep(RETRY_S)
