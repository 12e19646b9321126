"""The playground's socket: a door to the same service as the API, one reader task per run.

    browser → {"type": "start", "id", "request"} · {"type": "stop", "id"}
    server  → {"type": "delta", "id", "text", …}* · one of {"type": "completed", "id", …} · {"type": "error", "id", "error"}

`id` is the page's own name of the run. A delta also has "reasoning" and "tool_calls" where there is some; a piece of a call is
{"index", "id", "name", "arguments"}, and the first piece names it. A request is a Lightcone request body and passes the same checks.
A handler starts a task and returns at once, so that "stop" is read while a run goes on (Channels dispatches one message at a time).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import asdict
from typing import Any

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from chat.addresses import client_address
from chat.dialects.answering.accepting import Accepted, rejection_record
from chat.dialects.answering.endings import ending_error
from chat.dialects.answering.heads import head_admitted
from chat.dialects.answering.starting import StartedRun, run_start
from chat.dialects.body import object_parse
from chat.dialects.dialect import AnswerHead
from chat.dialects.request.refusals import refusal_reworded
from chat.dialects.request.schema import request_check
from chat.errors import INTERNAL_MESSAGE, ApiError, engine_api_error
from chat.services.accounts import session_caller
from chat.services.completions import RequestTrace, RunReader
from chat.services.configuration import configuration_refresh
from chat.services.keys import Caller, KeyInvalid
from engine.api import ChoiceFinished, Completed, Delta, EngineError, Outcome

logger = logging.getLogger(__name__)

SIGNED_OUT = 4401
TOO_LARGE = 1009
MAX_RUNS = 4
MAX_ID_CHARS = 64


class PlaygroundConsumer(AsyncWebsocketConsumer):
    """One browser tab."""

    async def connect(self) -> None:
        """Accept people with access; others are accepted and closed with 4401, as a refused handshake tells a page nothing."""
        self.runs: dict[str, asyncio.Task[None]] = {}
        self.readers: dict[str, RunReader] = {}
        await self.accept()
        try:
            await self.current_caller()
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)

    async def disconnect(self, code: int) -> None:
        """Leave every run of this tab; the readers' own `finally` does the rest."""
        for task in self.runs.values():
            task.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if bytes_data is not None or text_data is None or len(text_data) > settings.LIGHTCONE_HTTP_LIMITS.max_ws_message_bytes:
            await self.close(code=TOO_LARGE)
            return
        try:
            message = object_parse(text_data.encode())
        except (ApiError, UnicodeEncodeError):
            await self.send_error("", ApiError("invalid_json", "A message must be one JSON object."))
            return
        run_name = message.get("id")
        if not isinstance(run_name, str) or not 0 < len(run_name) <= MAX_ID_CHARS:
            await self.send_error("", ApiError("invalid_value", f"id must be a string of 1 to {MAX_ID_CHARS} characters", "id"))
        elif message.get("type") == "start":
            await self.start(run_name, message.get("request"))
        elif message.get("type") == "stop":
            await self.stop(run_name)
        else:
            await self.send_error(run_name, ApiError("invalid_value", "type must be start or stop", "type"))

    async def start(self, run_name: str, body: object) -> None:
        if run_name in self.runs:
            await self.send_error(run_name, ApiError("invalid_value", "a run of this id is going on; choose another id", "id"))
        elif len(self.runs) >= MAX_RUNS:
            await self.send_error(run_name, ApiError("rate_limit_exceeded", f"A page may have {MAX_RUNS} runs at once; stop one first."))
        elif not isinstance(body, dict):
            await self.send_error(run_name, ApiError("invalid_type", "request must be an object", "request"))
        else:
            task = asyncio.create_task(self.run(run_name, body))
            self.runs[run_name] = task
            task.add_done_callback(lambda _: self.runs.pop(run_name, None))

    async def stop(self, run_name: str) -> None:
        """Stop the run in the engine; its last event still arrives. A run that has no reader yet is given up."""
        if run_name in self.readers:
            try:
                await self.readers[run_name].stop()
            except EngineError as error:
                logger.warning("run %s not stopped: %s", self.readers[run_name].run_id, error)
        elif run_name in self.runs:
            self.runs[run_name].cancel()
            await self.send_error(run_name, ApiError("engine_error", "The request was stopped before it began."))

    async def run(self, run_name: str, body: dict[str, Any]) -> None:
        """Start the run and pass on its events until the last."""
        arrived_at = time.time()
        values: dict[str, Any] = {}
        try:
            run = await self.open(run_name, body, values, arrived_at)
            self.readers[run_name] = run.reader
            admitted = await run.reader.first(timeout_s=settings.LIGHTCONE_QUEUE_TIMEOUT_S)
            await self.forward(run_name, run.reader, head_admitted(run.head, admitted), arrived_at)
        except ApiError as error:
            await self.send_error(run_name, error)
        except EngineError as error:
            await self.send_error(run_name, engine_api_error(refusal_reworded(error, values)))
        except KeyInvalid:
            await self.close(code=SIGNED_OUT)
        except Exception:
            logger.exception("A playground run failed")
            await self.send_error(run_name, ApiError("internal_error", INTERNAL_MESSAGE))
        finally:
            left = self.readers.pop(run_name, None)
            if left is not None:
                left.leave()

    async def open(self, run_name: str, body: dict[str, Any], values: dict[str, Any], arrived_at: float) -> StartedRun:
        """Check the request as the API does, which fills `values`, and start it.

        Raises ApiError, and KeyInvalid for who is not signed in any more.
        """
        caller = await self.current_caller()
        await configuration_refresh()
        try:
            values.update(request_check(body))
            return await run_start(Accepted(caller, values, self.trace(values), arrived_at, num_bytes=0, request_id=run_name))
        except Exception as error:
            rejection_record(error, caller=caller, trace=self.trace(values), arrived_at=arrived_at)
            raise

    async def current_caller(self) -> Caller:
        """Looked up for each run, as a socket outlives sign-outs and changes of rights. Raises KeyInvalid."""
        return await database_sync_to_async(session_caller)(session_key=self.scope["session"].session_key)

    def trace(self, values: dict[str, Any]) -> RequestTrace:
        """What the log keeps of a run, cut to its limits."""
        size = settings.LIGHTCONE_LOG_FIELD_CHARS
        headers = {name: value.decode("latin-1") for name, value in self.scope["headers"]}
        peer = str((self.scope.get("client") or ("", 0))[0])
        return RequestTrace(
            dialect="playground",
            route=self.scope["path"],
            is_stream=True,
            model_asked=(values.get("model") or "")[:size],
            user_label=self.scope["user"].get_username()[:size],
            user_agent=headers.get(b"user-agent", "")[:size],
            address=client_address(peer=peer, forwarded=headers.get(b"x-forwarded-for", ""))[:size],
        )

    async def forward(self, run_name: str, reader: RunReader, head: AnswerHead, arrived_at: float) -> None:
        """Send what the first choice says as it comes, then the counters."""
        reason = None
        if head.echo:
            await self.send_message({"type": "delta", "id": run_name, "text": head.echo})
        async for event in reader:
            payload = event.payload
            if isinstance(payload, Delta | ChoiceFinished):
                if payload.choice == 0:
                    reason = payload.reason if isinstance(payload, ChoiceFinished) else None
                    await self.send_delta(run_name, payload, head)
            elif isinstance(payload, Completed) and payload.outcome in (Outcome.FINISHED, Outcome.STOPPED):
                await self.send_message(
                    {
                        "type": "completed",
                        "id": run_name,
                        "outcome": payload.outcome,
                        "finish_reason": reason,
                        "usage": asdict(payload.usage),
                        "timings": timings(payload, arrived_at),
                    }
                )
            else:
                error = ending_error(event)
                if error is not None:
                    raise error

    async def send_delta(self, run_name: str, payload: Delta | ChoiceFinished, head: AnswerHead) -> None:
        """One message for what there is to see; none for a step that shows nothing."""
        message: dict[str, object] = {"type": "delta", "id": run_name, "text": payload.text}
        if payload.reasoning and head.includes_reasoning:
            message["reasoning"] = payload.reasoning
        if payload.tool_calls:
            message["tool_calls"] = [asdict(call) for call in payload.tool_calls]
        if payload.text or len(message) > 3:
            await self.send_message(message)

    async def send_message(self, message: dict[str, object]) -> None:
        await self.send(text_data=json.dumps(message))

    async def send_error(self, run_name: str, error: ApiError) -> None:
        fields = {"message": error.message, "code": error.code, "param": error.param}
        await self.send_message({"type": "error", "id": run_name, "error": fields})


def timings(completed: Completed, arrived_at: float) -> dict[str, float | None]:
    """Seconds from arrival to the first token and to the end, and the decode rate."""
    first, end = completed.timings.first_token_at, completed.timings.ended_at
    num_gaps = completed.usage.completion_tokens - 1
    rate = None
    if first is not None and end is not None and end > first and num_gaps > 0:
        rate = num_gaps / (end - first)
    return {
        "first_token_s": None if first is None else first - arrived_at,
        "total_s": None if end is None else end - arrived_at,
        "tokens_per_s": rate,
    }
