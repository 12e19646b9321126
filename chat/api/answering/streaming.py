"""Answer a started run: with a status until the run is admitted, then with one JSON object or frames.

An error before the first frame has a status of its own; a later one travels in the stream. A ping follows each silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import Any, Generic, Protocol

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse

from chat.api.answering.pipeline import Accepted, P, StartedRun, request_start, run_start
from chat.api.answering.storage import AnswerKeep, Archive
from chat.api.dialect import AnswerFormat, AnswerWriter, RequestReader, StreamWriter
from chat.api.view import json_response
from chat.catalog.named_models import model_of_other_kind
from chat.errors import ApiError, FieldNames, api_error, engine_api_error, names_unchanged
from chat.generation.completions import RunReader
from chat.generation.waiting import Waiting, admission_await, waiting_watch
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

PING = b": ping\n"
DONE = b"data: [DONE]\n\n"
json_string = encode_basestring_ascii
"""Return a Python string as JSON in ASCII, in C: several clients split lines at U+2028, U+2029 and U+0085."""
INTERRUPTED_MESSAGE = "The server broke the answer off before it was whole; please send the request again."
TIMED_OUT_MESSAGE = "The request did not finish within its time limit; ask for fewer tokens, or allow it more time."


@dataclass(frozen=True, slots=True)
class Transport:
    """How the frames of a stream travel: their media type, and what is sent after a silence."""

    content_type: str
    ping: bytes


EVENT_STREAM = Transport("text/event-stream; charset=utf-8", PING)


async def run_answer(
    request: HttpRequest,
    dialect: AnswerFormat,
    accepted: Accepted[P],
    run: StartedRun,
    *,
    keep: AnswerKeep | None = None,
    wrap: Callable[[StreamWriter], StreamWriter] | None = None,
    transport: Transport = EVENT_STREAM,
) -> HttpResponseBase:
    """Wait for the admission, then answer. Leave the reader on every way out, also if the view is cancelled.

    `keep` gets the whole answer before its last piece is sent. `wrap` is put around the dialect's writer of streams.
    """
    reader, is_stream = run.reader, accepted.parsed.response.stream
    request.lightcone_headers = reader.headers
    hands_over = False
    try:

        def frames_of(admitted: Admitted, ahead: Event | None = None) -> RunFrames:
            head = run.head.admitted(admitted)
            writer = dialect.stream(head)
            archive = Archive(dialect.answer(head), partial(keep.end, head)) if keep is not None else None
            return RunFrames(reader, wrap(writer) if wrap else writer, admitted, ahead=ahead, archive=archive)

        if is_stream and transport is EVENT_STREAM and wants_progress(request):
            source: FrameSource = AwaitedFrames(run, frames_of, dialect.stream(run.head))
        else:
            admitted = await admission_wait(run)
            if is_stream:
                ahead = None
                if may_leave_no_token(run.generation):
                    ahead = await reader.next(silence_s())
                    if ahead is not None:
                        ending_check(ahead)
                source = frames_of(admitted, ahead)
        if is_stream:
            frames = frames_sent(source, accepted.parsed.field_names, ping=transport.ping)
            response: HttpResponseBase = EventStreamResponse(
                frames, on_close=reader.leave, headers=reader.headers, content_type=transport.content_type
            )
            hands_over = True
            return response
        head = run.head.admitted(admitted)
        body = await answer_collect(reader, dialect.answer(head))
        if keep is not None:
            await keep.end(head, body)
        return json_response(body, headers=reader.headers)
    finally:
        if not hands_over:
            reader.leave()


@dataclass(frozen=True, slots=True)
class ReadPrompt(Generic[P]):
    """A prompt as a worker rendered and tokenised it."""

    parsed: P
    generation: GenerationRequest
    admitted: Admitted
    headers: dict[str, str]
    """The `x-ratelimit-*` lines for the answer."""


async def prompt_read(
    request: HttpRequest,
    dialect: RequestReader[P],
    start: Callable[[Accepted[P]], Awaitable[StartedRun]] = run_start,
) -> ReadPrompt[P]:
    """Have a worker render and tokenise the prompt of a request with `Task.READ`. Raises ApiError.

    Such a run has a record and counts as a request against the key's limits. It uses no tokens.
    """
    accepted, run = await request_start(request, dialect, start)
    request.lightcone_headers = run.reader.headers
    try:
        admitted = await admission_wait(run)
        async for event in run.reader:
            ending_check(event)
        return ReadPrompt(accepted.parsed, run.generation, admitted, dict(run.reader.headers))
    finally:
        run.reader.leave()


# The admission, and the end of a run.


async def admission_wait(run: StartedRun) -> Admitted:
    """Wait for the admission within the queue's and the request's own time. Raises EngineError, ApiError 408 or 400."""
    async with _within_time(run):
        return await admission_await(run.reader, model=run.generation.model, timeout_s=_patience_s(run))


async def admission_watch(run: StartedRun) -> AsyncIterator[Waiting | Admitted]:
    """Yield what a run waits for, and last its admission. Raises as `admission_wait`."""
    async with _within_time(run):
        patience_s = _patience_s(run)
        async for waiting in waiting_watch(run.reader, model=run.generation.model, timeout_s=patience_s):
            yield waiting
        yield await run.reader.first(timeout_s=patience_s)


def _patience_s(run: StartedRun) -> float:
    left_s = max(0.0, (run.generation.deadline_at or math.inf) - time.time())
    return float(min(settings.LIGHTCONE_QUEUE_TIMEOUT_S, left_s))


@contextlib.asynccontextmanager
async def _within_time(run: StartedRun) -> AsyncIterator[None]:
    """End the run with ApiError 408 if it is not admitted within the request's own time.

    A model of another kind is refused with ApiError 400, which names those that could.
    """
    try:
        yield
    except EngineUnavailable:
        if (run.generation.deadline_at or math.inf) > time.time():
            raise
        with contextlib.suppress(EngineUnavailable):  # then the reader ends the run as it leaves
            await run.reader.stop(Outcome.TIMED_OUT)
        raise ApiError("inference_timeout", TIMED_OUT_MESSAGE) from None
    except RequestError as error:
        if error.param != "model":
            raise
        raise await model_of_other_kind(error.message, run.generation.task, run.caller) from None


def wants_progress(request: HttpRequest) -> bool:
    """Return True if the stream shall begin before its run is admitted, with comments on what the run waits for."""
    return bool(request.headers.get("X-Lightcone-Progress") == "1")


def may_leave_no_token(generation: GenerationRequest) -> bool:
    """Return True if the constraints could rule out every first token; an error may be a 4xx until then."""
    sampling = generation.sampling
    has_forced_call = generation.tool_choice.mode in (ToolMode.REQUIRED, ToolMode.NAMED)
    is_limited = sampling.allowed_token_ids is not None or sampling.bad_words or sampling.processors
    return bool(generation.constraint or has_forced_call or is_limited)


def ending_error(event: Event) -> ApiError | None:
    """Return the error that a terminal event stands for; None for other events and for a finished run."""
    payload = event.payload
    if isinstance(payload, Failed):
        if payload.outcome == Outcome.TIMED_OUT:
            return ApiError("inference_timeout", payload.message)
        return engine_api_error(EngineError(payload.code, payload.message, payload.param))
    if not isinstance(payload, Completed) or payload.outcome == Outcome.FINISHED:
        return None
    if payload.outcome == Outcome.TIMED_OUT:
        return ApiError("inference_timeout", TIMED_OUT_MESSAGE)
    if payload.outcome in (Outcome.INTERRUPTED, Outcome.WORKER_LOST):
        return ApiError("worker_lost", INTERRUPTED_MESSAGE)
    return ApiError(ErrorCode.ENGINE_ERROR.value, "The request was stopped before it finished.")


def ending_check(event: Event) -> None:
    error = ending_error(event)
    if error is not None:
        raise error


async def answer_collect(reader: RunReader, answer: AnswerWriter) -> bytes:
    """Return the JSON answer of a run once it has ended. Raises ApiError if it fails."""
    async for event in reader:
        ending_check(event)
        answer.feed(event)
    return answer.body()


# Server-sent events. A frame is one JSON value on one line, in ASCII. Model output is inside a JSON string, so it
# cannot form a frame.


def compact_json(value: Any) -> str:
    """Return JSON without spaces, in ASCII."""
    return json.dumps(value, separators=(",", ":"))


def data_frame(json_text: str) -> bytes:
    """Return a frame. `json_text` is one JSON value in ASCII without line breaks."""
    return f"data: {json_text}\n\n".encode("ascii")


class EventStreamResponse(StreamingHttpResponse):
    """A response that streams `frames`. It calls `on_close` once, on the loop, also if the stream never began."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        on_close: Callable[[], None],
        headers: dict[str, str] | None = None,
        content_type: str = EVENT_STREAM.content_type,
    ) -> None:
        self._frames = _Frames(frames, on_close)
        super().__init__(self._frames, content_type=content_type, headers=headers)
        self["Cache-Control"] = "no-cache, no-transform"
        self["X-Accel-Buffering"] = "no"

    def __aiter__(self) -> AsyncIterator[bytes]:
        # NOTE: Django's own __aiter__ puts two more generators between each frame and the socket.
        return aiter(self._frames)


class _Frames:
    """Frames with a `close` that any thread may call when the response is done with."""

    def __init__(self, frames: AsyncIterator[bytes], on_close: Callable[[], None]) -> None:
        self._frames = frames
        self._on_close: Callable[[], None] | None = on_close
        self._loop = asyncio.get_running_loop()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for frame in self._frames:
                yield frame
        finally:
            self._finish()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self, *_: Any) -> None:
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()


# Streams.


class FrameSource(Protocol):
    """The frames of a stream."""

    @property
    def is_over(self) -> bool:
        """Whether the last frame was given."""

    def opening(self) -> bytes:
        """Return the first frame; b"" for none."""

    async def next(self, timeout_s: float) -> bytes | None:
        """Return the next frame, b"" for an event without one, None after `timeout_s` of silence. May raise."""

    def error(self, error: ApiError) -> bytes:
        """Return the frame that ends a stream which cannot go on."""


async def frames_sent(
    source: FrameSource, names: FieldNames = names_unchanged, *, ping: bytes = PING
) -> AsyncIterator[bytes]:
    """Yield the frames of a source, pings between them; last an error, with the client's field names."""
    keep_alive_s = silence_s()
    clock = asyncio.get_running_loop().time
    spoke_at = clock()
    try:
        opening = source.opening()
        if opening:
            yield opening
        while not source.is_over:
            frame = await source.next(keep_alive_s)
            if frame:
                spoke_at = clock()
                yield frame
            elif settings.LIGHTCONE_LIMITS.sse_keep_alive and (frame is None or clock() - spoke_at >= keep_alive_s):
                spoke_at = clock()
                yield ping
    except Exception as error:
        failure = failure_log(error, "A stream broke off")
        failure.rename_fields(names)
        yield source.error(failure)


def failure_log(error: Exception, message: str) -> ApiError:
    """Return the API's error for any exception of a run. Log a defect."""
    if not isinstance(error, EngineError | ApiError):
        logger.error(message, exc_info=error)
    return api_error(error)


def silence_s() -> float:
    """Return the seconds of silence after which a ping is due."""
    limits = settings.LIGHTCONE_LIMITS
    return float(limits.sse_keep_alive or limits.request_timeout)


class RunFrames:
    """The frames of one run. An `archive` gets each event first; `ahead` is an event already taken."""

    def __init__(
        self,
        reader: RunReader,
        writer: StreamWriter,
        admitted: Admitted,
        *,
        ahead: Event | None = None,
        archive: Archive | None = None,
    ) -> None:
        self.is_over = False
        self._reader, self._writer, self._archive = reader, writer, archive
        self._admitted, self._ahead = admitted, ahead

    def opening(self) -> bytes:
        return self._writer.feed(Event(0, 1, self._admitted))

    async def next(self, timeout_s: float) -> bytes | None:
        ahead, self._ahead = self._ahead, None
        event = ahead or await self._reader.next(timeout_s)
        if event is None:
            return None
        self.is_over = event.is_terminal
        ending_check(event)
        if self._archive is not None:
            await self._archive.feed(event)
        return self._writer.feed(event)

    def error(self, error: ApiError) -> bytes:
        return self._writer.error(error)


class AwaitedFrames:
    """The frames of a run from before its admission: comments on what it waits for, then those of `begin`.

    `unbegun` writes an error that comes before the admission.
    """

    def __init__(self, run: StartedRun, begin: Callable[[Admitted], RunFrames], unbegun: StreamWriter) -> None:
        self._begin, self._unbegun = begin, unbegun
        self._frames: RunFrames | None = None
        self._updates = admission_watch(run)
        self._comments = ProgressComments()

    @property
    def is_over(self) -> bool:
        return self._frames is not None and self._frames.is_over

    def opening(self) -> bytes:
        return b""

    async def next(self, timeout_s: float) -> bytes | None:
        if self._frames is not None:
            return await self._frames.next(timeout_s)
        update = await anext(self._updates)
        if isinstance(update, Waiting):
            return self._comments.of(update)
        self._frames = self._begin(update)
        return self._frames.opening()

    def error(self, error: ApiError) -> bytes:
        return self._unbegun.error(error) if self._frames is None else self._frames.error(error)


class ProgressComments:
    """Comments of a stream (lines that clients skip) with what a run waits for as one JSON object, when it changes."""

    def __init__(self) -> None:
        self._said: Waiting | None = None

    def of(self, waiting: Waiting) -> bytes:
        """Return the comment; b"" if it would say the same as the one before."""
        if waiting == self._said:
            return b""
        self._said = waiting
        return f": progress {compact_json(asdict(waiting))}\n".encode("ascii")
