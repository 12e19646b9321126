"""The playground's socket: the same service as the API, with one reader task per run.

    browser → {"type": "start", "id", "request"} · {"type": "attach", "id"} · {"type": "stop", "id"}
    server  → {"type": "waiting", "id", "state", "phase", "fraction", "num_before"}* until a worker takes the run,
              {"type": "delta", "id", "choice", "text", …}*, then {"type": "completed", "id", …} or
              {"type": "error", "id", "error"}

`id` is the page's own name of the run, which it uses once. A run goes on for a while without its page
(LIGHTCONE_PLAYGROUND_DETACH_GRACE). "attach" reads it from its first event, for its user only. A delta may also have
"reasoning" and "tool_calls"; the first piece of a call names it. Channels dispatches one message at a time, so a
handler starts a task and returns at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from chat.access.accounts import session_caller
from chat.access.addresses import client_address
from chat.access.authentication import configuration_refresh
from chat.access.keys import Caller, KeyInvalid
from chat.api.answering.pipeline import Accepted, rejection_record, run_start
from chat.api.answering.streaming import ending_check
from chat.api.dialect import AnswerHead
from chat.api.request.parsed import ParsedRequest
from chat.api.request.strict_json import json_object_read
from chat.api.server_contract import STOP, Stop
from chat.api.view import run_in_thread_if_large
from chat.conversations.runs import RUN_NAME, run_public_id, timings
from chat.errors import INTERNAL_MESSAGE, ApiError, FieldNames, api_error, names_unchanged
from chat.generation.completions import RequestTrace, RunReader, run_attach, run_find_public, run_stop
from chat.generation.waiting import Waiting, waiting_watch
from chat.playground.requests import head_kept, page_policy, page_request_parse
from engine.api import ChoiceFinished, Completed, Delta, EngineError, FinishReason, Outcome

logger = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_LARGE = 1009
MAX_RUNS = 4

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that this socket reads, before its admission."""

    reader: RunReader
    head: AnswerHead
    model: str
    """Whose workers take it."""
    field_names: FieldNames = names_unchanged
    """The names in the request, if this socket has sent it."""


class PlaygroundConsumer(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        """Accept the socket; close it with 4401 without access, as a page learns nothing from a refused handshake."""
        self.runs: dict[str, asyncio.Task[None]] = {}
        self.readers: dict[str, RunReader] = {}
        self.unstopped: set[str] = set()
        self.ending = asyncio.create_task(self.end_with_server(self.scope.get(STOP)))
        await self.accept()
        try:
            await self.current_caller()
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
        match message.get("type"), message.get("request"):
            case "start", dict(body):
                self.follow(run_name, partial(self.open, run_name, body))
            case "start", _:
                raise ApiError("invalid_type", "request must be an object", "request")
            case "attach", _:
                self.follow(run_name, partial(self.rejoin, run_name))
            case "stop", _:
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
        """Stop the run in the engine; its reader still gets the end. Stop a run in its start afterwards."""
        try:
            if run_name in self.readers:
                await self.readers[run_name].stop()
            elif run_name in self.runs:
                self.unstopped.add(run_name)
            else:
                caller = await self.current_caller()
                found = await run_find_public(public_id=run_public_id(caller, run_name), caller=caller)
                if found is not None:
                    await run_stop(run_id=found[0])
        except EngineError as error:
            logger.warning("run %s of the playground not stopped: %s", run_name, error)
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)

    async def run(self, run_name: str, opening: Callable[[], Awaitable[OpenRun]]) -> None:
        """Open a run and forward its events until the last."""
        names: FieldNames = names_unchanged
        try:
            run = await opening()
            names = run.field_names
            self.readers[run_name] = run.reader
            await self.forward(run_name, run)
        except (ApiError, EngineError) as error:
            failure = api_error(error)
            failure.rename_fields(names)
            await self.send_error(run_name, failure)
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)
        except Exception:
            logger.exception("A playground run failed")
            await self.send_error(run_name, ApiError("internal_error", INTERNAL_MESSAGE))
        finally:
            self.unstopped.discard(run_name)
            left = self.readers.pop(run_name, None)
            if left is not None:
                left.leave()

    async def forward(self, run_name: str, run: OpenRun) -> None:
        """Forward the events of a run. Raises ApiError and EngineError if it fails."""
        if run_name in self.unstopped:
            await self.stop(run_name)
        patience_s = settings.LIGHTCONE_QUEUE_TIMEOUT_S
        said: Waiting | None = None
        async for waiting in waiting_watch(run.reader, model=run.model, timeout_s=patience_s):
            if waiting != said:
                await self.send_message({"type": "waiting", "id": run_name, **asdict(waiting)})
            said = waiting
        admitted = await run.reader.first(timeout_s=patience_s)
        async for message in run_messages(run.reader, run.head.admitted(admitted)):
            await self.send_message(message | {"id": run_name})

    async def open(self, run_name: str, body: dict[str, Any]) -> OpenRun:
        """Check the request as the API does, and start it. Raises ApiError, and KeyInvalid after a sign-out."""
        arrived_at = time.time()
        parsed = ParsedRequest()
        caller = await self.current_caller()
        await configuration_refresh()
        try:
            parsed = page_request_parse(body)
            accepted = Accepted(caller, parsed, self.trace(parsed), arrived_at, num_bytes=0, request_id=run_name)
            run = await run_start(accepted, detach=page_policy(caller, run_name))
        except Exception as error:
            rejection_record(error, caller=caller, trace=self.trace(parsed), arrived_at=arrived_at)
            raise
        return OpenRun(run.reader, run.head, run.generation.model, parsed.field_names)

    async def rejoin(self, run_name: str) -> OpenRun:
        """Return a reader of this user's run, from its first event. Raises ApiError, EngineUnavailable, KeyInvalid."""
        caller = await self.current_caller()
        found = await run_find_public(public_id=run_public_id(caller, run_name), caller=caller)
        attached = None if found is None else await run_attach(run_id=found[0], caller=caller)
        if found is None or attached is None:
            raise ApiError(
                "not_resumable", "This answer cannot be picked up: it never began, or it ended too long ago."
            )
        return OpenRun(attached[0], head_kept(found[1]), str(attached[1].about["model"]))

    async def current_caller(self) -> Caller:
        """Return the caller, read for each run: a socket outlives sign-outs and changed rights. Raises KeyInvalid."""
        return await database_sync_to_async(session_caller)(session_key=self.scope["session"].session_key)

    def trace(self, parsed: ParsedRequest) -> RequestTrace:
        """Return what the request log keeps of a run, cut to its limits."""
        size = settings.LIGHTCONE_LOG_FIELD_CHARS
        headers = {name: value.decode("latin-1") for name, value in self.scope["headers"]}
        peer = str((self.scope.get("client") or ("", 0))[0])
        return RequestTrace(
            dialect="playground",
            route=self.scope["path"],
            is_stream=True,
            model_asked=(parsed.model or "")[:size],
            user_label=self.scope["user"].get_username()[:size],
            user_agent=headers.get(b"user-agent", "")[:size],
            metadata=parsed.delivery.metadata,
            address=client_address(peer=peer, forwarded=headers.get(b"x-forwarded-for", ""))[:size],
        )

    async def send_message(self, message: Message) -> None:
        await self.send(text_data=json.dumps(message))

    async def send_error(self, run_name: str, error: ApiError) -> None:
        fields = {"message": error.message, "code": error.code, "param": error.param}
        await self.send_message({"type": "error", "id": run_name, "error": fields})


async def message_read(text: str) -> Message:
    """Return a message whose `id` names a run. Raises ApiError."""
    try:
        message: Message = await run_in_thread_if_large(len(text), json_object_read, text.encode())
    except (ApiError, UnicodeEncodeError):
        raise ApiError("invalid_json", "A message must be one JSON object.") from None
    run_name = message.get("id")
    if not isinstance(run_name, str) or not RUN_NAME.fullmatch(run_name):
        raise ApiError("invalid_value", "id must be a string of 1 to 64 letters, digits and hyphens", "id")
    return message


async def run_messages(reader: RunReader, head: AnswerHead) -> AsyncIterator[Message]:
    """Yield deltas of every choice, then the counters. Raises ApiError if the run fails, EngineError if it is lost."""
    reasons: dict[int, FinishReason] = {}
    num_tokens: Counter[int] = Counter()
    if head.echo:
        for choice in range(head.num_choices):
            yield {"type": "delta", "choice": choice, "text": head.echo}
    async for event in reader:
        payload = event.payload
        if isinstance(payload, Delta | ChoiceFinished):
            if isinstance(payload, ChoiceFinished):
                reasons[payload.choice] = payload.reason
            else:
                num_tokens[payload.choice] += len(payload.token_ids)
            message = delta_message(payload, head)
            if message is not None:
                yield message
        elif isinstance(payload, Completed) and payload.outcome in (Outcome.FINISHED, Outcome.STOPPED):
            choices = [
                {"finish_reason": reasons.get(choice), "tokens": num_tokens[choice]}
                for choice in range(head.num_choices)
            ]
            ending = {"outcome": payload.outcome, "usage": asdict(payload.usage), "timings": timings(payload)}
            yield {"type": "completed", "choices": choices, **ending}
        else:
            ending_check(event)


def delta_message(payload: Delta | ChoiceFinished, head: AnswerHead) -> Message | None:
    """Return the message of a delta, or None if it shows nothing."""
    message: Message = {"type": "delta", "choice": payload.choice, "text": payload.text}
    if payload.reasoning and head.includes_reasoning:
        message["reasoning"] = payload.reasoning
    if payload.tool_calls:
        message["tool_calls"] = [asdict(call) for call in payload.tool_calls]
    return message if payload.text or len(message) > 3 else None
