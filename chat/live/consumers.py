"""The socket of a live page: a message a second while it is open.

    server → {"snapshot": {…}, "html": "…"}, or {"snapshot": null, "html": "…"} while a store does not answer

The page names its panel in the address: `?view=workers`, `?view=models` or `?view=model&model=NAME`, with `&lang=de`.
It sends nothing. Whoever may not see the panel, or may no longer, is closed with 4403; 4401 without a session. A
process has at most MAX_SOCKETS of these, and a session MAX_OF_SESSION: the next is closed with 4429 and polls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from chat.access.accounts import session_user
from chat.api.server_contract import STOP, Stop
from chat.live.panels import Panel, panel_read, panels
from chat.live.source import AWAY, Tick, ticker

logger = logging.getLogger(__name__)

SIGNED_OUT, FORBIDDEN, TOO_MANY = 4401, 4403, 4429
UNKNOWN = 4404
BROKEN = 1011
MAX_SOCKETS = 200
MAX_OF_SESSION = 20
CHECK_S = 5.0
"""How often a socket looks whether its person may still see the panel."""

_open: Counter[str] = Counter()
"""Open sockets by session."""


class LiveConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        """Accept the socket, as a page learns nothing from a refused handshake; then close it with the reason."""
        self.session_key = ""
        self.queue: asyncio.Queue[Tick] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        await self.accept()
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        first = {name: values[0] for name, values in query.items()}
        asked = panel_read(first.get("view", ""), first.get("model", ""), first.get("lang", ""))
        if asked is None:
            await self.close(code=UNKNOWN)
            return
        try:
            panel, refusal = await self.allowed(asked)
        except AWAY as error:
            logger.warning("no live socket: %s", error)
            await self.close(code=BROKEN)
            return
        if panel is None:
            await self.close(code=refusal)
            return
        key = self.scope["session"].session_key
        if _open.total() >= MAX_SOCKETS or _open[key] >= MAX_OF_SESSION:
            await self.close(code=TOO_MANY)
            return
        self.session_key = key
        _open[key] += 1
        self.queue = ticker.listen()
        self.tasks = [
            asyncio.create_task(self.tell(self.queue, asked, panel)),
            asyncio.create_task(self.end_with_server(self.scope.get(STOP))),
        ]

    async def disconnect(self, code: int) -> None:
        for task in self.tasks:
            task.cancel()
        self.leave()

    def leave(self) -> None:
        """Listen no more, and make room for another socket."""
        if self.queue is not None:
            ticker.leave(self.queue)
            self.queue = None
        if self.session_key:
            _open[self.session_key] -= 1
            if _open[self.session_key] <= 0:
                del _open[self.session_key]
            self.session_key = ""

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Ignore what a page sends; it has nothing to say."""

    async def allowed(self, asked: Panel) -> tuple[Panel | None, int]:
        """Return the panel as its person sees it, or None and why not: a socket outlives sign-outs and roles."""

        def look() -> tuple[Panel | None, int]:
            user = session_user(session_key=self.scope["session"].session_key, is_use=False)
            if not user.is_authenticated:
                return None, SIGNED_OUT
            return (asked.of(user), 0) if asked.is_seen_by(user) else (None, FORBIDDEN)

        return await database_sync_to_async(look)()

    async def tell(self, queue: asyncio.Queue[Tick], asked: Panel, panel: Panel) -> None:
        """Send each tick until the person may no longer see it. A store that is away costs a tick."""
        checked_at = time.monotonic()
        code = BROKEN
        try:
            while True:
                tick = await queue.get()
                try:
                    if time.monotonic() - checked_at >= CHECK_S:
                        seen, refusal = await self.allowed(asked)
                        if seen is None:
                            code = refusal
                            break
                        panel, checked_at = seen, time.monotonic()
                    text = panels.kept(panel, tick.snapshot)
                    if text is None:
                        text = await database_sync_to_async(panels.text)(panel, tick.snapshot)
                except AWAY as error:
                    logger.warning("a live page misses a second: %s", error)
                    continue
                await self.send(text_data=text)
        except Exception:
            logger.exception("a live socket ends")
        self.leave()
        await self.close(code=code)

    async def end_with_server(self, stop: Stop | None) -> None:
        """Close once the server stops; the page then connects to another one."""
        if stop is not None:
            await stop.closing.wait()
            await self.close()
