"""Bring an HTTP request to a run: key, size, JSON, checks of the dialect, model, rights, limits.

A request that fails here is logged as one that never became a run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.http import HttpRequest

from chat.access.addresses import request_address
from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.answering.attached import attachments_forgotten, files_attached, num_file_bytes
from chat.api.answering.hearing import Hearing, sounds_heard
from chat.api.answering.images import files_fetched, media_fetcher, media_rules
from chat.api.dialect import AnswerHead, P_co, RequestReader
from chat.api.request.build import MessagesRefused, QueuePlacement, generation_request, rights_check
from chat.api.request.messages import last_message_text
from chat.api.request.named_files import AttachedFiles
from chat.api.request.parse import MEDIA_OPTIONS
from chat.api.request.parsed import ParsedRequest
from chat.api.request.strict_json import json_object_read
from chat.api.request.tools import is_forced
from chat.api.view import (
    body_read,
    caller_require,
    client_hints,
    header_text,
    ignored_line,
    request_id,
    run_in_thread_if_large,
)
from chat.catalog.named_models import model_asked, model_fallback
from chat.catalog.services import ModelEntry
from chat.errors import ApiError, api_error, engine_api_error
from chat.generation.completions import (
    DetachPolicy,
    LimitExceeded,
    PublicIdInUse,
    RequestTrace,
    RunReader,
    completion_refuse,
    completion_start,
    limits_look,
    request_rejected_record,
)
from chat.generation.metering import metering_of
from chat.media.data_urls import MediaBudget
from chat.relay.state.keys import run_id_create
from engine.api import EngineError, GenerationRequest

logger = logging.getLogger(__name__)
MODEL_HEADER, FALLBACK_HEADER = "X-Lightcone-Model", "X-Lightcone-Fallback"
AWAY_CODES = frozenset({"model_unloaded", "model_load_failed", "overloaded"})
"""Of errors for which another model may answer."""
UNFIT_CODE = "unsupported_parameter"
"""Of a fallback that does not take what the request has, such as its images."""
T = TypeVar("T")
P = TypeVar("P", bound=ParsedRequest)


@dataclass(frozen=True, slots=True)
class Accepted(Generic[P_co]):
    """A request that has passed all checks that need neither a model nor the limits of its key."""

    caller: Caller
    parsed: P_co
    trace: RequestTrace
    arrived_at: float
    """Unix seconds."""
    num_bytes: int
    request_id: str
    transcription: Mapping[str, Any] = field(default_factory=dict)
    """What writing down the sound of the messages took, if they had some (JSON)."""
    hearing: Hearing = nullcontext
    """Entered while that is done: the run is not there yet, so a stop cannot reach it."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run on its way to a worker. Its holder must call `reader.leave()`."""

    generation: GenerationRequest
    reader: RunReader
    head: AnswerHead
    """Of the answer, before the admission."""
    caller: Caller
    model: ModelEntry


async def request_start(
    request: HttpRequest,
    dialect: RequestReader[P],
    start: Callable[[Accepted[P]], Awaitable[T]],
    *,
    read: Callable[[bytes], dict[str, Any]] = json_object_read,
) -> tuple[Accepted[P], T]:
    """Check a request that computes, then call `start`. Raises ApiError. `read`: what makes fields of its body.

    A failure is logged. Once the caller is known, its answer says what is left of the limits.
    """
    arrived_at = time.time()
    known_request: ParsedRequest | None = None
    try:
        caller = await caller_require(request, dialect)
        caller.require_right(str(Right.INFERENCE))
        body = body_read(request)
        known_request = parsed = await run_in_thread_if_large(len(body), _parse, body, request, dialect, read)
        trace = _trace(request, dialect.name, parsed)
        accepted = Accepted(caller, parsed, trace, arrived_at, len(body), request_id(request))
        return accepted, await start(accepted)
    except Exception as error:
        known: Caller | None = getattr(request, "lightcone_caller", None)
        if known is None and isinstance(error, ApiError):
            raise  # a request without a key writes nothing into the database; it is counted (chat.relay.web.chores)
        rejection_record(error, caller=known, trace=_trace(request, dialect.name, known_request), arrived_at=arrived_at)
        if known is not None and not (isinstance(error, ApiError) and error.extra_headers):
            request.lightcone_headers = await limits_look(caller=known)
        raise


def _parse(body: bytes, request: HttpRequest, dialect: RequestReader[P], read: Callable[[bytes], dict[str, Any]]) -> P:
    parsed = dialect.parse(read(body))
    request.lightcone_field_names = parsed.field_names
    if parsed.delivery.request_id is not None and getattr(request, "lightcone_request_id", None) is None:
        request.lightcone_request_id = parsed.delivery.request_id
    line = ignored_line(parsed.delivery.ignored)
    if line:
        request.lightcone_ignored = line
        logger.info("Request %s: passed over %s", request_id(request), line)
    return parsed


def _trace(request: HttpRequest, dialect: str, parsed: ParsedRequest | None) -> RequestTrace:
    """Return what the log keeps of the call, cut to its limits."""
    size = settings.LIGHTCONE_LOG_FIELD_CHARS
    retry_count, patience_s = client_hints(request)
    parsed = parsed or ParsedRequest()
    delivery = parsed.delivery
    return RequestTrace(
        dialect=dialect,
        route=request.path[:size],
        is_stream=parsed.response.stream,
        model_asked=(parsed.model or "")[:size],
        client_request_id=request_id(request)[:size],
        user_label=(delivery.user or delivery.safety_identifier or "")[:size],
        user_agent=request.headers.get("User-Agent", "")[:size],
        address=request_address(request)[:size],
        batch_id=getattr(request, "lightcone_batch_id", ""),
        retry_count=retry_count,
        patience_s=patience_s,
        metadata=delivery.metadata,
    )


def rejection_record(error: Exception, *, caller: Caller | None, trace: RequestTrace, arrived_at: float) -> str | None:
    """Log a request that never became a run. Return the id of its row, None if there is none."""
    known = api_error(error)
    if trace.batch_id and known.kind.should_retry:
        return None  # the batch sends it again
    run_id = run_id_create(at_s=arrived_at)
    request_rejected_record(
        run_id=run_id,
        caller=caller,
        trace=trace,
        status=known.status,
        code=known.code,
        message=known.message,
        arrived_at=arrived_at,
        limit_hit=known.limit_hit,
    )
    return run_id


async def run_start(
    accepted: Accepted[P],
    *,
    detach: Callable[[AnswerHead], DetachPolicy] | None = None,
    by_model: ModelEntry | None = None,
) -> StartedRun:
    """Start the run of an accepted request. Raises ApiError; then nothing was started.

    `detach` returns what becomes of the run once its reader has left; by default the run ends. A model that has no
    worker, or a full queue, is replaced by its fallback, which the reader's headers say. One that does not take what
    the request has is passed over. `by_model`: the one that answers, and no other.
    """
    if by_model is not None:
        return await _run_start(accepted, by_model, detach)
    model = await model_asked(accepted.parsed.model, accepted.parsed.model_names, accepted.caller)
    asked, reasons, tried = model.full_name, [], set[str]()
    away: ApiError | None = None
    while True:
        try:
            run = await _run_start(accepted, model, detach)
            break
        except ApiError as error:
            tried.add(model.full_name)
            is_unfit = away is not None and _is_unfit(error)
            goes_on = is_unfit or error.code in AWAY_CODES
            another = await model_fallback(model, accepted.caller) if goes_on else None
            if another is None or another.full_name in tried:
                if away is not None and is_unfit:
                    raise away from error
                raise
            away = away or error
            reasons.append(f"{model.full_name} {error.code}")
            model = another
    run.reader.headers |= _model_headers(model, asked, reasons)
    return run


def _is_unfit(error: ApiError) -> bool:
    """Return True if a fallback does not take what the request has: its media, or options of media."""
    return error.code == UNFIT_CODE or (error.param or "").split(".")[0] in MEDIA_OPTIONS


def _model_headers(model: ModelEntry, asked: str, reasons: list[str]) -> dict[str, str]:
    """Return the lines of the answer's head about the model, if it is not simply the one that was asked for."""
    lines = {}
    if model.alias or model.full_name != asked:
        lines[MODEL_HEADER] = header_text(model.full_name)
    if reasons:
        lines[FALLBACK_HEADER] = header_text(", ".join(reasons))
    if model.deprecated_at is not None:
        lines["Deprecation"] = f"@{model.deprecated_at}"
    return lines


async def _run_start(
    accepted: Accepted[P], model: ModelEntry, detach: Callable[[AnswerHead], DetachPolicy] | None
) -> StartedRun:
    """Start the run with one model. The bytes of files that messages name count until its reader leaves."""
    placement = rights_check(accepted.parsed, model=model.name, caller=accepted.caller)
    start = partial(_transcribing_start, accepted)
    budget = media_fetcher().budget()
    heard = await sounds_heard(accepted.parsed, model, accepted.caller, start, accepted.hearing, budget)
    if heard is not None:
        read = replace(accepted.parsed, messages=heard.messages)
        accepted = replace(accepted, parsed=read, transcription=heard.usage)
    fetched = await files_attached(accepted.parsed.messages, accepted.caller)
    try:
        remote = await files_fetched(accepted.parsed.messages, accepted.caller, budget)
        files = {**(fetched.files if fetched else {}), **remote}
        run = await _run_start_with(files, accepted, model, placement, detach, budget)
    except BaseException:
        if fetched is not None:
            fetched.give_back()
        raise
    if fetched is not None:
        run.reader.when_left(fetched.give_back)
    return replace(run, generation=replace(run.generation, messages=attachments_forgotten(run.generation.messages)))


async def _transcribing_start(accepted: Accepted[P], parsed: ParsedRequest, model: ModelEntry) -> RunReader:
    """Start a run that writes down a sound of the request's messages. Raises ApiError."""
    assert parsed.generation.speech is not None
    num_bytes = len(parsed.generation.speech.data)
    whole: Accepted[ParsedRequest] = accepted
    trace = replace(accepted.trace, is_stream=False, model_asked=model.full_name)
    run = await _run_start(replace(whole, parsed=parsed, num_bytes=num_bytes, trace=trace), model, None)
    return run.reader


async def _run_start_with(
    files: AttachedFiles,
    accepted: Accepted[P],
    model: ModelEntry,
    placement: QueuePlacement,
    detach: Callable[[AnswerHead], DetachPolicy] | None,
    budget: MediaBudget,
) -> StartedRun:
    parsed, caller = accepted.parsed, accepted.caller
    media = await media_rules(parsed.messages, model, caller, budget)
    build = partial(
        generation_request,
        model=model.name,
        sampling_defaults=model.sampling_defaults,
        caller=caller,
        priority=placement.priority,
        arrived_at=accepted.arrived_at,
        system_prompt=model.system_prompt,
        chat_template=model.chat_template,
        adapter=model.adapter,
        media=media,
        files=files,
    )
    metering = await metering_of(caller=caller, model=model, is_batch=bool(accepted.trace.batch_id))
    num_bytes = accepted.num_bytes + num_file_bytes(files) + media.num_fetched_bytes
    try:
        generation = await run_in_thread_if_large(num_bytes, build, parsed)
    except MessagesRefused as error:
        ending = completion_refuse(
            request=error.request,
            messages=parsed.messages,
            caller=caller,
            trace=accepted.trace,
            metering=metering,
        )
        error.extra_headers = await _within_limits(ending)
        raise
    head = _head(accepted, model, generation, placement.tier)
    starting = completion_start(
        request=generation,
        caller=caller,
        trace=accepted.trace,
        is_further=parsed.delivery.is_further,
        detach=detach(head) if detach else None,
        metering=metering,
    )
    return StartedRun(generation, await _within_limits(starting), head, caller, model)


def _head(
    accepted: Accepted[ParsedRequest], model: ModelEntry, generation: GenerationRequest, tier: str | None
) -> AnswerHead:
    parsed, response = accepted.parsed, accepted.parsed.response
    last_role, last_text = "assistant", ""
    if generation.raw is None and generation.speech is None:
        last_role, last_text = last_message_text(generation.messages, parsed.messages)
    opens_turn = generation.prompt.add_generation_prompt and not generation.prompt.continue_final_message
    role = "assistant" if opens_turn else last_role
    return AnswerHead(
        request_id=accepted.request_id,
        created=int(generation.arrived_at),
        model=model.full_name,
        fingerprint=model.fingerprint,
        role=role,
        num_choices=generation.num_choices,
        has_logprobs=generation.logprobs.enabled,
        include_usage=response.include_usage,
        continuous_usage=response.continuous_usage,
        service_tier=tier,
        num_prompt_tokens=0,
        returns_token_ids=generation.prompt.returns_ids,
        names_tokens_by_id=response.names_tokens_by_id,
        includes_reasoning=response.includes_reasoning,
        echo=last_text if response.echo and last_role == role else "",
        stream_interval=response.stream_interval,
        answers_function_call=response.answers_function_call,
        is_call_forced=is_forced(generation.tool_choice),
        temperature=generation.sampling.temperature,
        top_p=generation.sampling.top_p,
        transcription=accepted.transcription,
        echo_fields=response.echo_fields,
    )


async def _within_limits(admission: Awaitable[T]) -> T:
    """Await a service that looks at limits first. Raises ApiError if one is exceeded."""
    try:
        return await admission
    except LimitExceeded as error:
        raise ApiError(
            error.code,
            error.message,
            retry_after_s=error.retry_after_s,
            headers=error.headers,
            limit_hit=error.limit_hit,
        ) from None
    except PublicIdInUse:
        message = "The request id stands for another resumable request of this project"
        raise ApiError("request_id_in_use", f"{message}; send another X-Request-Id, or none.", "request_id") from None
    except EngineError as error:
        raise engine_api_error(error) from None
