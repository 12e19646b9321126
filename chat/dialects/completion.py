"""The path of every completion request, shared by all dialects: a plain async view from the first header to the last frame.

1. Key (401, 403), size (413), content type and JSON (400).  2. The checks of request/, on the loop when small, else in a thread.
3. Model (404), rights of the key (400).  4. The run is started; limits (429, 503), then messages (400).
5. `Admitted`, or a plain HTTP error.  6. One JSON object, or frames.

A client that goes away cancels the view; `leave()` tells the run. What bodies look like is the dialect's own (`Dialect`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from chat.addresses import request_address
from chat.dialects.chat_format.numbered import NumberedStream
from chat.dialects.chat_format.stored import ChatKeep, resumable_afterlife, resumable_asked
from chat.dialects.dialect import AnswerHead, AnswerWriter, Dialect, ReadingDoor, StreamWriter
from chat.dialects.heads import head_admitted
from chat.dialects.keeping import Archive, Keep, keeping_check, keeps_answer
from chat.dialects.request.build import MessagesRefused, generation_request
from chat.dialects.request.messages import last_message_text
from chat.dialects.request.strict_json import json_object_read
from chat.dialects.request.tools import is_forced
from chat.dialects.sent_names import Events, SentNamesReader
from chat.dialects.view import body_too_large, caller_require, client_hints, json_response, model_unknown, request_id
from chat.errors import INTERNAL_MESSAGE, ApiError, engine_api_error
from chat.models.access import Right
from chat.permissions import right_require
from chat.run_id import run_id_create
from chat.services.catalogue import ModelEntry, model_resolve_async
from chat.services.completions import (
    LimitExceeded,
    PublicIdInUse,
    RequestTrace,
    RunReader,
    completion_refuse,
    completion_start,
    limits_look,
    request_rejected_record,
)
from chat.services.keys import Caller
from chat.sse import PING, EventStreamResponse
from engine.api import (
    Admitted,
    Completed,
    EngineError,
    EngineUnavailable,
    ErrorCode,
    Event,
    Failed,
    GenerationRequest,
    Outcome,
    RequestError,
    ToolMode,
)

logger = logging.getLogger(__name__)

INLINE_BODY_BYTES = 64 * 1024
TIMED_OUT_MESSAGE = "The request did not finish within its time limit; ask for fewer tokens, or allow it more time."
T = TypeVar("T")

_check_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="request-check")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that has passed steps 1 and 2. `num_bytes`: of its body; `arrived_at`: unix seconds."""

    caller: Caller
    values: dict[str, Any]
    trace: RequestTrace
    arrived_at: float
    num_bytes: int
    request_id: str


async def completion(request: HttpRequest, dialect: Dialect) -> HttpResponseBase:
    """Answer a completion request; the handler of every chat completion route."""
    is_resumable = resumable_asked(request, dialect)
    accepted, run = await request_start(request, dialect, partial(_start, dialect, is_resumable))
    keep = ChatKeep(accepted.values, accepted.caller, run.generation, is_begun=is_resumable) if keeps_answer(accepted.values) else None
    return await run_answer(request, dialect, accepted, run, keep=keep, is_numbered=is_resumable)


async def request_start(request: HttpRequest, dialect: ReadingDoor, start: Callable[[Accepted], Awaitable[T]]) -> tuple[Accepted, T]:
    """Steps 1 and 2 of any request that computes, then `start`. A failure of these is logged, and tells what is left of the limits."""
    arrived_at = time.time()
    caller: Caller | None = None
    values: dict[str, Any] = {}
    try:
        caller = await caller_require(request, dialect)
        right_require(caller, str(Right.INFERENCE))
        body = body_read(request)
        values = await aside(len(body), _check, body, request, dialect)
        accepted = Accepted(caller, values, _trace(request, dialect, values), arrived_at, len(body), request_id(request))
        return accepted, await start(accepted)
    except Exception as error:
        rejection_record(error, caller=caller, trace=_trace(request, dialect, values), arrived_at=arrived_at)
        if caller is not None and not (isinstance(error, ApiError) and error.extra_headers):
            headers = await limits_look(caller=caller)
            _set_headers(request, error, headers)
        raise


def _set_headers(request: HttpRequest, error: Exception, headers: dict[str, str]) -> None:
    """Let the answer to an error have these headers too, also where it is a defect that no step had foreseen."""
    if isinstance(error, ApiError):
        error.extra_headers = headers | error.extra_headers
    else:
        request.lightcone_headers = headers


async def _start(dialect: Dialect, is_resumable: bool, accepted: Accepted) -> StartedRun:
    """Start the run; an answer that is to be kept even if the client leaves is begun in the store."""
    values = accepted.values
    keeping_check(values, accepted.num_bytes)
    if is_resumable:
        values["afterlife"] = partial(resumable_afterlife, dialect.name)
    run = await start_reworded(dialect, accepted)
    try:
        if is_resumable and keeps_answer(values):
            await ChatKeep(values, accepted.caller, run.generation).begin(run.head)
    except BaseException:
        run.reader.leave()
        raise
    return run


async def start_reworded(dialect: Dialect, accepted: Accepted) -> StartedRun:
    """`run_start`, whose refusals name what was sent."""
    values = accepted.values
    try:
        return await run_start(
            values,
            caller=accepted.caller,
            trace=accepted.trace,
            arrived_at=accepted.arrived_at,
            num_bytes=accepted.num_bytes,
            request_id=accepted.request_id,
        )
    except ApiError as error:
        told = dialect.reword(RequestError(ErrorCode.INVALID_VALUE, error.message, error.param), values)
        error.message, error.param = told.message, told.param
        raise


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that is on its way to a worker; whoever holds it leaves its reader. `head`: of its answer, before the admission."""

    model: ModelEntry
    generation: GenerationRequest
    reader: RunReader
    head: AnswerHead


async def run_start(
    values: dict[str, Any], *, caller: Caller, trace: RequestTrace, arrived_at: float, num_bytes: int = 0, request_id: str = ""
) -> StartedRun:
    """Steps 3 and 4 of a request of `num_bytes`, for the playground too. Raises ApiError; then nothing was started."""
    model = await _model(values, caller)
    if model is None:
        raise model_unknown(values["model"] or "(default)")
    build = partial(generation_request, model=model.name, sampling_defaults=model.sampling_defaults, caller=caller, arrived_at=arrived_at)
    try:
        generation = await aside(num_bytes, build, values)
    except MessagesRefused as error:
        ending = completion_refuse(request=error.request, messages=values["messages"], caller=caller, trace=trace)
        error.extra_headers = await _within_limits(ending)
        raise
    head = _head(request_id, values, model, generation)
    starting = completion_start(
        request=generation,
        caller=caller,
        trace=trace,
        linger_s=values["linger_s"],
        is_further=values["is_further"],
        afterlife=values["afterlife"](head) if values["afterlife"] else None,
    )
    return StartedRun(model, generation, await _within_limits(starting), head)


async def _model(values: dict[str, Any], caller: Caller) -> ModelEntry | None:
    """The model asked for; where it may have several names, that of the first one there is, whether or not the caller may use it."""
    for name in values["model_names"] or ():
        if await model_resolve_async(name=name) is not None:
            return await model_resolve_async(name=name, caller=caller)
    return None if values["model_names"] else await model_resolve_async(name=values["model"], caller=caller)


async def _within_limits(admission: Awaitable[T]) -> T:
    """What a service gives that looks at limits first; raises ApiError where one says no."""
    try:
        return await admission
    except LimitExceeded as error:
        raise ApiError("rate_limit_exceeded", error.message, retry_after_s=error.retry_after_s, headers=error.headers) from None
    except PublicIdInUse:
        message = "The request id stands for another resumable request of this project; send another X-Request-Id, or none."
        raise ApiError("request_id_in_use", message, "request_id") from None
    except EngineError as error:
        raise engine_api_error(error) from None


def rejection_record(error: Exception, *, caller: Caller | None, trace: RequestTrace, arrived_at: float) -> None:
    """Log a request that never became a run; what is no ApiError is a defect of ours."""
    known = error if isinstance(error, ApiError) else ApiError("internal_error", INTERNAL_MESSAGE)
    if trace.batch_id and known.answer.should_retry:
        return  # the batch sends it again, as often as it takes
    run_id = run_id_create(at_s=arrived_at)
    request_rejected_record(run_id=run_id, caller=caller, trace=trace, status=known.status, code=known.code, arrived_at=arrived_at)


async def run_answer(
    request: HttpRequest, dialect: Dialect, accepted: Accepted, run: StartedRun, *, keep: Keep | None = None, is_numbered: bool = False
) -> HttpResponseBase:
    """Wait for the admission, then answer. The reader is left on every way out, a cancelled view included.

    `keep`: what is done with the whole answer before its last piece is sent. `is_numbered`: chunks have numbers to ask for them by.
    """
    reader, values = run.reader, accepted.values
    events = SentNamesReader(reader, dialect.reword, values)
    hands_over = False
    try:
        try:
            admitted = await admission_wait(run)
            ahead = await _first_news(events) if values["stream"] and may_leave_no_token(run.generation) else None
        except EngineError as error:
            raise engine_api_error(dialect.reword(error, values)) from None
        head = head_admitted(run.head, admitted)
        if values["stream"]:
            writer = NumberedStream(dialect.stream(head)) if is_numbered else dialect.stream(head)
            archive = Archive(dialect.answer(head), partial(keep.end, head)) if keep is not None else None
            frames = stream_frames(events, writer, admitted=admitted, ahead=ahead, archive=archive)
            response: HttpResponseBase = EventStreamResponse(frames, on_close=reader.leave, headers=reader.headers)
            hands_over = True
            return response
        body = await answer_collect(events, dialect.answer(head))
        if keep is not None:
            await keep.end(head, body)
        return json_response(body, headers=reader.headers)
    except Exception as error:
        _set_headers(request, error, reader.headers)
        raise
    finally:
        if not hands_over:
            reader.leave()


async def admission_wait(run: StartedRun) -> Admitted:
    """Wait for the admission, as long as the queue and the request's own deadline allow; raises EngineError, and ApiError 408."""
    deadline_at = run.generation.deadline_at or math.inf
    try:
        return await run.reader.first(timeout_s=min(settings.LIGHTCONE_QUEUE_TIMEOUT_S, max(0.0, deadline_at - time.time())))
    except EngineUnavailable:
        if deadline_at > time.time():
            raise
        with contextlib.suppress(EngineUnavailable):  # whoever leaves without a word is logged as a client that left
            await run.reader.stop(Outcome.TIMED_OUT)
        raise ApiError("inference_timeout", TIMED_OUT_MESSAGE) from None


def may_leave_no_token(generation: GenerationRequest) -> bool:
    """Whether what the request forbids could leave no first token to choose: then the status line waits for that token."""
    sampling = generation.sampling
    is_forced = generation.tool_choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED)
    is_limited = sampling.allowed_token_ids is not None or sampling.bad_words or sampling.processors
    return bool(generation.constraint or is_forced or is_limited)


async def _first_news(reader: Events) -> Event | None:
    """The event after the admission, None if it is long in coming; raises ApiError if it says that the run has failed."""
    event = await reader.next(silence_s())
    error = None if event is None else ending_error(event)
    if error is not None:
        raise error
    return event


async def answer_collect(reader: Events, answer: AnswerWriter) -> bytes:
    """The JSON answer of a run, when it has ended; raises ApiError where it fails."""
    async for event in reader:
        error = ending_error(event)
        if error is not None:
            raise error
        answer.feed(event)
    return answer.body()


async def stream_frames(
    reader: Events, writer: StreamWriter, *, admitted: Admitted, ahead: Event | None = None, archive: Archive | None = None
) -> AsyncIterator[bytes]:
    """The frames of a run, with a ping after each silence. `ahead`: an event already taken. Errors that come now travel in the stream."""
    keep_alive_s = silence_s()
    clock = asyncio.get_running_loop().time
    spoke_at = clock()
    is_ended = False
    try:
        opening = writer.feed(Event(0, 1, admitted))
        if opening:
            yield opening
        while not is_ended:
            event = ahead or await reader.next(keep_alive_s)
            ahead = None
            frame = b""
            if event is not None:
                is_ended = event.is_terminal
                error = ending_error(event)
                if archive is not None and error is None:
                    await archive.feed(event)
                frame = writer.feed(event) if error is None else writer.error(error)
            if frame:
                spoke_at = clock()
                yield frame
            elif settings.LIGHTCONE_LIMITS.sse_keep_alive and (event is None or clock() - spoke_at >= keep_alive_s):
                spoke_at = clock()
                yield PING
    except EngineError as error:
        yield writer.error(engine_api_error(error))
    except Exception:
        logger.exception("A stream broke off")
        yield writer.error(ApiError("internal_error", INTERNAL_MESSAGE))


def silence_s() -> float:
    return settings.LIGHTCONE_LIMITS.sse_keep_alive or settings.LIGHTCONE_LIMITS.request_timeout


def ending_error(event: Event) -> ApiError | None:
    """The error that a terminal event stands for; None for all others, and for a run that finished."""
    payload = event.payload
    if isinstance(payload, Failed):
        if payload.outcome == Outcome.TIMED_OUT:
            return ApiError("inference_timeout", payload.message)
        return engine_api_error(EngineError(payload.code, payload.message, payload.param))
    if not isinstance(payload, Completed) or payload.outcome == Outcome.FINISHED:
        return None
    if payload.outcome == Outcome.TIMED_OUT:
        return ApiError("inference_timeout", TIMED_OUT_MESSAGE)
    return ApiError(ErrorCode.ENGINE_ERROR.value, "The request was stopped before it finished.")


def body_read(request: HttpRequest) -> bytes:
    """What is left of step 1: the body, of a size and a type that are taken. Raises ApiError."""
    body: bytes = request.read()
    if len(body) > settings.LIGHTCONE_HTTP_LIMITS.max_body_bytes:
        raise body_too_large()
    _check_content_type(request)
    return body


async def aside(num_bytes: int, work: Callable[..., T], *args: Any) -> T:
    """`work(*args)` on a request of that size: in a thread if large, as other requests go on meanwhile."""
    if num_bytes <= INLINE_BODY_BYTES:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(_check_threads, work, *args)


def object_read(request: HttpRequest) -> dict[str, Any]:
    """The object in the body of a request that computes nothing; raises ApiError."""
    return _object(body_read(request))


def _object(body: bytes) -> dict[str, Any]:
    limits = settings.LIGHTCONE_LIMITS
    return json_object_read(body, max_depth=limits.max_json_depth, max_digits=limits.max_json_digits)


def _check(body: bytes, request: HttpRequest, dialect: ReadingDoor) -> dict[str, Any]:
    values = dialect.read(_object(body))
    if values["request_id"] is not None and getattr(request, "lightcone_request_id", None) is None:
        request.lightcone_request_id = values["request_id"]
    return values


def _check_content_type(request: HttpRequest) -> None:
    essence = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if essence != "application/json" and not (essence.startswith("application/") and essence.endswith("+json")):
        raise ApiError("invalid_content_type", "The Content-Type header must be application/json.")
    if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise ApiError("invalid_content_type", "The Content-Encoding header must be absent or identity: bodies are not decompressed.")


def answer_head(request_id: str, run: StartedRun, admitted: Admitted) -> AnswerHead:
    """What the values, the model and the admission say of the answer; for the playground too."""
    return head_admitted(replace(run.head, request_id=request_id), admitted)


def _head(request_id: str, values: dict[str, Any], model: ModelEntry, generation: GenerationRequest) -> AnswerHead:
    """What the values and the model say of the answer."""
    options = values["stream_options"] or {}
    last_role, last_text = last_message_text(generation.messages, values["messages"]) if generation.raw is None else ("assistant", "")
    opens_turn = generation.prompt.add_generation_prompt and not generation.prompt.continue_final_message
    role = "assistant" if opens_turn else last_role
    return AnswerHead(
        request_id=request_id,
        created=int(generation.arrived_at),
        model=model.name,
        fingerprint=model.fingerprint,
        role=role,
        num_choices=values["n"],
        has_logprobs=values["logprobs"],
        include_usage=options.get("include_usage", False),
        continuous_usage=options.get("continuous_usage_stats", False),
        service_tier=values["service_tier"],
        num_prompt_tokens=0,
        returns_token_ids=bool(values["return_token_ids"]),
        names_tokens_by_id=bool(values["return_tokens_as_token_ids"]),
        includes_reasoning=values["include_reasoning"] is not False,
        echo=last_text if values["echo"] and last_role == role else "",
        stream_interval=values["stream_interval"] or 1,
        answers_function_call=bool(values["functions"]),
        is_call_forced=is_forced(generation.tool_choice),
        temperature=generation.sampling.temperature,
        top_p=generation.sampling.top_p,
        told=values["told"],
    )


def _trace(request: HttpRequest, dialect: ReadingDoor, values: dict[str, Any]) -> RequestTrace:
    """What the log keeps of the call, cut to its limits."""
    size = settings.LIGHTCONE_LOG_FIELD_CHARS
    hints = client_hints(request)
    return RequestTrace(
        dialect=dialect.name,
        route=request.path[:size],
        is_stream=bool(values.get("stream")),
        model_asked=(values.get("model") or "")[:size],
        client_request_id=request_id(request)[:size],
        user_label=(values.get("user") or values.get("safety_identifier") or "")[:size],
        user_agent=request.headers.get("User-Agent", "")[:size],
        address=request_address(request)[:size],
        batch_id=getattr(request, "lightcone_batch_id", ""),
        retry_count=hints.retry_count,
        patience_s=hints.patience_s,
        metadata=values.get("metadata") or {},
    )
