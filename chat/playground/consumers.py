"""The playground's socket: the same service as the API, with one reader task per run.

    browser → {"type": "start", "id", "request"} · {"type": "attach", "id"} · {"type": "stop", "id"}
    server  → {"type": "waiting", "id", "state", "phase", "fraction", "num_before"}* until a worker takes the run,
              {"type": "admitted", "id", …}, {"type": "delta", "id", "choice", "text", …}* and, where a worker was lost,
              {"type": "resuming", "id"}, then {"type": "completed", "id", …} or {"type": "error", "id", "error", …}

`id` is the page's own name of the run, which it uses once. A run goes on for a while without its page
(LIGHTCONE_PLAYGROUND_DETACH_GRACE). "attach" reads it from its first event, for its user only. A delta may also have
"reasoning", "logprobs", "token_ids" and "tool_calls"; the first piece of a call names it. Channels dispatches one
message at a time, so a handler starts a task and returns at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from chat.access.accounts import session_user
from chat.access.addresses import client_address
from chat.access.keys import KeyInvalid
from chat.api.request.strict_json import json_object_read
from chat.api.server_contract import STOP, Stop
from chat.api.view import run_in_thread_if_large
from chat.conversations.runs import run_name_read
from chat.errors import ApiError
from chat.generation.completions import RequestTrace, RunReader
from chat.playground.messages import Message, error_message
from chat.playground.running import (
    OpenRun,
    Visitor,
    page_trace,
    run_end,
    run_failure,
    run_open,
    run_rejoin,
    run_said,
    visitor_of,
)
from engine.api import EngineError

logger = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_LARGE = 1009
MAX_RUNS = 8
"""As many as two comparisons of four models have."""
STOPPED_MESSAGE = "The answer was stopped while the sound of its messages was written down."


class PlaygroundConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        """Accept the socket; close it with 4401 without access, as a page learns nothing from a refused handshake."""
        self.runs: dict[str, asyncio.Task[None]] = {}
        self.readers: dict[str, RunReader] = {}
        self.unstopped: set[str] = set()
        self.heard: set[str] = set()
        self.ending = asyncio.create_task(self.end_with_server(self.scope.get(STOP)))
        await self.accept()
        try:
            await self.visitor()
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)

    async def disconnect(self, code: int) -> None:
        """Stop reading the runs of this tab, which go on for a while. The `finally` of each reader does the rest."""
        self.ending.cancel()
        for task in self.runs.values():
            task.cancel()

    async def end_with_server(self, stop: Stop | None) -> None:
        """Close after the last run once the server stops; the page then connects to another one."""
        if stop is None:
            return
        await stop.closing.wait()
        if self.runs:
            await asyncio.wait(self.runs.values())
        await self.close()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        limit = settings.LIGHTCONE_HTTP_LIMITS.max_ws_message_bytes
        if bytes_data is not None or text_data is None or len(text_data.encode(errors="replace")) > limit:
            await self.close(code=TOO_LARGE)
            return
        run_name = ""
        try:
            message = await message_read(text_data)
            run_name = message["id"]
            await self.act(run_name, message)
        except ApiError as error:
            await self.send_error(run_name, error)

    async def act(self, run_name: str, message: Message) -> None:
        """Do what a message asks for. Raises ApiError."""
        match message.get("type"):
            case "start":
                self.follow(run_name, partial(self.open, run_name, message.get("request")))
            case "attach":
                self.follow(run_name, partial(self.rejoin, run_name))
            case "stop":
                await self.stop(run_name)
            case _:
                raise ApiError("invalid_value", "type must be start, attach or stop", "type")

    def follow(self, run_name: str, opening: Callable[[], Awaitable[OpenRun]]) -> None:
        """Start a task that reads a run. Raises ApiError."""
        stop: Stop | None = self.scope.get(STOP)
        if run_name in self.runs:
            raise ApiError("invalid_value", "a run of this id is going on; choose another id", "id")
        if stop is not None and stop.closing.is_set():
            raise ApiError("overloaded", "The server is being stopped; please send the message again.")
        if len(self.runs) >= MAX_RUNS:
            raise ApiError("rate_limit_exceeded", f"A page may have {MAX_RUNS} runs at once; stop one first.")
        task = asyncio.create_task(self.run(run_name, opening))
        self.runs[run_name] = task
        task.add_done_callback(lambda _: self.runs.pop(run_name, None))

    async def stop(self, run_name: str) -> None:
        """Stop the run in the engine; its reader still gets the end. Stop a run in its start afterwards.

        Writing sound down may take minutes, and ends at once.
        """
        try:
            if run_name in self.readers:
                await self.readers[run_name].stop()
            elif run_name in self.heard:
                self.heard.discard(run_name)
                self.runs[run_name].cancel()
                await self.send_error(run_name, ApiError("conflict", STOPPED_MESSAGE))
            elif run_name in self.runs:
                self.unstopped.add(run_name)
            else:
                await run_end(await self.visitor(), run_name)
        except EngineError as error:
            logger.warning("run %s of the playground not stopped: %s", run_name, error)
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)

    async def run(self, run_name: str, opening: Callable[[], Awaitable[OpenRun]]) -> None:
        """Open a run and forward its events until the last."""
        run: OpenRun | None = None
        try:
            run = await opening()
            self.readers[run_name] = run.reader
            await self.forward(run_name, run)
        except (ApiError, EngineError) as error:
            await self.send_error(run_name, run_failure(error, run))
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)
        except Exception as error:
            logger.exception("A playground run failed")
            await self.send_error(run_name, run_failure(error, run))
        finally:
            self.unstopped.discard(run_name)
            left = self.readers.pop(run_name, None)
            if left is not None:
                left.leave()

    async def forward(self, run_name: str, run: OpenRun) -> None:
        """Forward the events of a run. Raises ApiError and EngineError if it fails."""
        if run_name in self.unstopped:
            await self.stop(run_name)
        async for said in run_said(run):
            for message in said.messages:
                await self.send_message(message | {"id": run_name})

    async def open(self, run_name: str, body: Any) -> OpenRun:
        hearing = partial(self.hearing, run_name)
        return await run_open(await self.visitor(), run_name, body, trace=self.trace(), hearing=hearing)

    @contextmanager
    def hearing(self, run_name: str) -> Iterator[None]:
        """Have a stop end the start of a run, in which sound is written down. Raises ApiError after a stop."""
        if run_name in self.unstopped:
            raise ApiError("conflict", STOPPED_MESSAGE)
        self.heard.add(run_name)
        try:
            yield
        finally:
            self.heard.discard(run_name)

    async def rejoin(self, run_name: str) -> OpenRun:
        return await run_rejoin(await self.visitor(), run_name)

    async def visitor(self) -> Visitor:
        """Return who is here, read for each run: a socket outlives sign-outs and changed rights. Raises KeyInvalid."""
        session_key = self.scope["session"].session_key
        return await database_sync_to_async(lambda: visitor_of(session_user(session_key=session_key)))()

    def trace(self) -> RequestTrace:
        """Return what the request log keeps of a run."""
        headers = {name: value.decode("latin-1") for name, value in self.scope["headers"]}
        peer = str((self.scope.get("client") or ("", 0))[0])
        address = client_address(peer=peer, forwarded=headers.get(b"x-forwarded-for", ""))
        return page_trace(route=self.scope["path"], user_agent=headers.get(b"user-agent", ""), address=address)

    async def send_message(self, message: Message) -> None:
        await self.send(text_data=json.dumps(message))

    async def send_error(self, run_name: str, error: ApiError) -> None:
        await self.send_message(error_message(error) | {"id": run_name})


async def message_read(text: str) -> Message:
    """Return a message whose `id` names a run. Raises ApiError."""
    try:
        message: Message = await run_in_thread_if_large(len(text), json_object_read, text.encode())
    except (ApiError, UnicodeEncodeError):
        raise ApiError("invalid_json", "A message must be one JSON object.") from None
    run_name_read(message.get("id"))
    return message
