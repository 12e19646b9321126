"""Starts, reads, leaves and stops runs, for every dialect and the playground.

    reader = await completion_start(request=…, caller=…, trace=…)  # LimitExceeded, EngineUnavailable: nothing started
    admitted = await reader.first()          # RequestError, EngineUnavailable, EngineFailure: answer 4xx / 5xx
    async for event in reader: …             # Delta*, ChoiceFinished…, and last Completed or Failed
    finally: reader.leave()                  # always; harmless after the end
    found = await run_find_public(public_id=…, caller=…)     # a run with a DetachPolicy, by its public id
    reader, found = await run_attach(run_id=…, caller=…)     # another reader, from the first event; never starts a run
    await completion_refuse(request=…, messages=…, …)        # instead, to refuse a request after its limits

It knows neither HTTP nor sockets nor SQL. chat.relay carries the events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from chat.access.keys import Caller
from chat.generation.limits import LimitExceeded, LimitKind, admission_error, rate_headers
from chat.relay.state.keys import model_slug
from chat.relay.state.records import pack_events, terminal_record
from chat.relay.state.runs import AdmissionRequest, Decision, DetachPolicy, LogEntry, RunCompletion, RunInfo
from chat.relay.web.dispatcher import Dispatcher, dispatcher_of_loop, dispatchers
from chat.relay.web.reader import RunReader
from engine.api import (
    EngineUnavailable,
    ErrorCode,
    Event,
    GenerationRequest,
    Outcome,
    Rejected,
    RequestError,
    Task,
    check_prompt_fits,
    is_long,
)

__all__ = ["DetachPolicy", "LimitExceeded", "LimitKind", "RunInfo", "RunReader"]  # for callers, who know no relay

logger = logging.getLogger(__name__)

AWAY_MESSAGE = "The server cannot take requests at the moment; please try again shortly."
CHARS_PER_TOKEN = 4
USUAL_OUTPUT_TOKENS = 512
SESSION_CALLER = "session"
READY = "ready"


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """The fields of the run's record that describe the call. Texts are already cut to the limits of the log."""

    dialect: str
    route: str
    is_stream: bool
    model_asked: str = ""
    client_request_id: str = ""
    user_label: str = ""
    user_agent: str = ""
    address: str = ""
    batch_id: str = ""
    retry_count: int = 0
    patience_s: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class PublicIdInUse(Exception):
    """The public id of the request belongs to another run of its project."""


async def completion_start(
    *,
    request: GenerationRequest,
    caller: Caller,
    trace: RequestTrace,
    is_further: bool = False,
    detach: DetachPolicy | None = None,
) -> RunReader:
    """Admit the request and queue it for a worker of its model. Return before the worker sees it.

    `is_further`: another run of one HTTP request, which counts once as a request of the key.

    Raises LimitExceeded (a limit of the key), EngineUnavailable (no worker, loading, full, Valkey away) or
    PublicIdInUse. Then nothing was started, and the caller writes the request's record. Every step has a time-out.
    """
    admission = replace(
        _admission(request, caller, trace, request.messages),
        project_id=caller.project_id,
        detach=detach or DetachPolicy(),
    )
    return await _admitted(replace(admission, requests_per_minute=0) if is_further else admission)


async def completion_refuse(
    *, request: GenerationRequest, messages: Sequence[Any], caller: Caller, trace: RequestTrace
) -> dict[str, str]:
    """Admit a request with faulty `messages`, and end it at once: limits answer before messages.

    Reserved tokens come back. Return the answer's `x-ratelimit-*` lines. Raises as completion_start does.
    """
    reader = await _admitted(replace(_admission(request, caller, trace, messages), has_task=False))
    reader.leave()
    return reader.headers


async def _admitted(admission: AdmissionRequest) -> RunReader:
    """Register the reader, so that it misses nothing, then admit. A run without a task has ended on return."""
    dispatcher = dispatcher_of_loop()
    try:
        await dispatcher.start()
        refusal = await _refusal_by_size(dispatcher, admission.request) if admission.has_task else None
        admission = replace(admission, has_task=admission.has_task and refusal is None)
        reader = dispatcher.reader(admission.request.run_id)
        try:
            # NOTE: set before the reply, as a cancelled or late admission may have created the run all the same.
            reader.is_started = True
            result = await dispatcher.in_order(
                reader.run_id,
                dispatcher.runs.admit(admission, web_id=dispatcher.web_id, channel=dispatcher.channel),
            )
            reader.headers = rate_headers(admission.requests_per_minute, admission.tokens_per_minute, result)
            reader.waits_for_model = admission.has_task and result.worker_state != READY
            if result.decision is not Decision.GO:
                reader.is_started = False
                if result.decision is Decision.IN_USE:
                    raise PublicIdInUse
                raise admission_error(admission.request.model, result, reader.headers)
            if not admission.has_task:
                payload = await _end(dispatcher, admission, refusal)
                if payload:
                    reader.offer(LogEntry(1, 0, payload))
        except BaseException:
            # A cancelled view has no reader yet, so it cannot leave the run itself.
            reader.leave()
            raise
    except (RedisError, OSError, TimeoutError) as error:
        logger.warning("request refused, Valkey does not answer: %s", error)
        raise EngineUnavailable(ErrorCode.OVERLOADED, AWAY_MESSAGE) from error
    return reader


async def run_attach(*, run_id: str, caller: Caller) -> tuple[RunReader, RunInfo] | None:
    """Attach another reader to a run, from its first event; None if the caller's project has no such run any more.

    Raises EngineUnavailable. The caller must `leave` the reader; a detached run goes on as long as it is read.
    """
    dispatcher = dispatcher_of_loop()
    with _valkey_or_unavailable():
        await dispatcher.start()
        attached = await dispatcher.attach(run_id)
    if attached is None:
        return None
    reader, found = attached
    if found.about["project_id"] != caller.project_id or not caller.project_id:
        reader.leave()
        return None
    return attached


async def run_find(*, run_id: str) -> RunInfo | None:
    """Return the state of a run; None if it no longer exists. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        return await dispatcher_of_loop().runs.find(run_id)


async def run_log(*, run_id: str) -> list[Event]:
    """Return all logged events of a run. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        entries = await dispatcher_of_loop().runs.read_whole_log(run_id)
    return [event for entry in entries for event in entry.events()]


async def run_find_public(*, public_id: str, caller: Caller) -> tuple[str, bytes] | None:
    """Return run id and resume context of the project's run with this public id, or None. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        return await dispatcher_of_loop().runs.find_public(caller.project_id, public_id)


async def run_stop(*, run_id: str) -> None:
    """End a run with the outcome `stopped`, unless it has ended. Raises EngineUnavailable."""
    await dispatcher_of_loop().stop(run_id)


@contextmanager
def _valkey_or_unavailable() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise EngineUnavailable(ErrorCode.OVERLOADED, AWAY_MESSAGE) from error


async def limits_look(*, caller: Caller) -> dict[str, str]:
    """Return the `x-ratelimit-*` lines of a response without admission; none without such limits or without Valkey."""
    requests, tokens = caller.limits.requests_per_minute or 0, caller.limits.tokens_per_minute or 0
    if not (requests or tokens):
        return {}
    runs = dispatcher_of_loop().runs
    try:
        result = await runs.look(_caller_name(caller), requests_per_minute=requests, tokens_per_minute=tokens)
    except (RedisError, OSError):
        return {}
    return rate_headers(requests, tokens, result)


def request_rejected_record(
    *, run_id: str, caller: Caller | None, trace: RequestTrace, status: int, code: ErrorCode | str, arrived_at: float
) -> None:
    """Log a request that never became a run (401, 400, 429, 503 …). Do not wait; drop the record if Valkey is away."""
    dispatcher = dispatcher_of_loop()
    about = _about(trace, caller, model="", arrived_at=arrived_at)
    outcome = Outcome.REJECTED.value
    dispatcher.chores.add_record(
        {**about, "run_id": run_id, "status": status, "outcome": outcome, "error_code": str(code)}
    )


def readers_cut() -> None:
    """Note that this process is about to close its clients' connections: readers that leave now were cut off."""
    for dispatcher in dispatchers():
        dispatcher.is_cutting = True


async def readers_settle() -> None:
    """Wait until Valkey knows of every reader that has left, or the reaper would report them as cut off."""
    await dispatcher_of_loop().chores.settle()


async def _refusal_by_size(dispatcher: Dispatcher, request: GenerationRequest) -> Rejected | None:
    """Return the rejection of a prompt with more characters than the model's context can hold, or None."""
    if not is_long(request):
        return None
    leases = [lease for lease in await dispatcher.workers() if lease.model == request.model]
    known = [lease for lease in leases if lease.max_model_len and lease.longest_token_chars]
    if not known:
        return None
    widest = max(known, key=lambda lease: lease.max_model_len)
    try:
        check_prompt_fits(request, widest.longest_token_chars, widest.max_model_len)
    except RequestError as error:
        return Rejected.by(error)
    return None


async def _end(dispatcher: Dispatcher, admission: AdmissionRequest, refusal: Rejected | None) -> bytes:
    """End a run that no worker has. Write the record of a refusal and return its packed event.

    Without a refusal the caller writes the record.
    """
    run_id = admission.request.run_id
    payload, record = b"", None
    if refusal is not None:
        payload = pack_events([Event(0, 1, refusal)])
        record = terminal_record(
            admission.about, refusal, run_id=run_id, attempts=0, worker="", ended_at=dispatcher.runs.clock()
        )
    await dispatcher.runs.finish(
        RunCompletion(
            run_id=run_id,
            attempt=1,
            payload=payload,
            record=record,
            caller=admission.caller,
            slug=model_slug(admission.request.model),
            tokens_per_minute=admission.tokens_per_minute,
        )
    )
    return payload


def _admission(
    request: GenerationRequest, caller: Caller, trace: RequestTrace, messages: Sequence[Any]
) -> AdmissionRequest:
    limits = caller.limits
    return AdmissionRequest(
        request=request,
        caller=_caller_name(caller),
        about=_about(trace, caller, model=request.model, arrived_at=request.arrived_at),
        requests_per_minute=limits.requests_per_minute or 0,
        tokens_per_minute=limits.tokens_per_minute or 0,
        reserved_tokens=_reserved_tokens(request, messages),
        max_live=limits.live_runs,
        max_waiting=settings.LIGHTCONE_MAX_WAITING,
    )


def _reserved_tokens(request: GenerationRequest, messages: Sequence[Any]) -> int:
    """Estimate the tokens of a request, which only the worker can count. The end of the run settles the difference."""
    if request.task is Task.READ:
        return 0
    chars = sum(len(str(message.get("content") or "")) for message in messages if isinstance(message, dict))
    raw, stop = request.raw, request.stop
    if raw is not None:
        chars = len(raw.text) + len(raw.suffix or "") + CHARS_PER_TOKEN * len(raw.token_ids or ())
        chars += min(len(raw.document or ""), CHARS_PER_TOKEN * (raw.max_document_tokens or len(raw.document or "")))
    if request.task in (Task.EMBED, Task.SCORE):
        return chars // CHARS_PER_TOKEN
    output = stop.absent_max_tokens or USUAL_OUTPUT_TOKENS if stop.max_tokens is None else stop.max_tokens
    return chars // CHARS_PER_TOKEN + min(output, USUAL_OUTPUT_TOKENS) * request.num_sequences


def _about(trace: RequestTrace, caller: Caller | None, *, model: str, arrived_at: float) -> dict[str, Any]:
    """Return the fields of chat.usage.services.TerminalRecord that are known before the run."""
    return {
        "arrived_at": arrived_at,
        "org_id": caller.org_id if caller else 0,
        "project_id": caller.project_id if caller else 0,
        "key_public_id": caller.public_id if caller else "",
        "user_id": caller.user_id if caller else 0,
        "model": model,
        **asdict(trace),
    }


def _caller_name(caller: Caller) -> str:
    """Return the name under which limits are counted."""
    return caller.public_id or f"{SESSION_CALLER}:{caller.tenant}"
