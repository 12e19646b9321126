"""The one door to a completion: every dialect and the playground start, read, leave and stop runs here.

    reader = await completion_start(request=…, caller=…, trace=…)   # LimitExceeded, EngineUnavailable: nothing was started
    admitted = await reader.first()                                 # RequestError, EngineUnavailable, EngineFailure: answer 4xx / 5xx
    async for event in reader: …                                    # Delta*, ChoiceFinished…, and last Completed or Failed
    finally: reader.leave()                                         # always; harmless after the end
    found = await run_find_public(public_id=…, caller=…)            # a run that was started with an DetachPolicy, by its client's id
    reader, found = await run_attach(run_id=…, caller=…)            # another reader of a run, from its first event; never starts one
    await completion_refuse(request=…, messages=…, …)               # instead, for a request that is to be refused behind its limits

Refuses to know HTTP, sockets and SQL. The path of the events is chat.relay.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from chat.access.keys import Caller
from chat.generation.limits import Bucket, LimitExceeded, LimitKind, rate_headers
from chat.relay.state.codec import pack_events
from chat.relay.state.keys import model_slug
from chat.relay.state.records import terminal_record
from chat.relay.state.runs import AdmissionRequest, AdmissionResult, Decision, LogEntry, RunCompletion, RunInfo
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

__all__ = [
    "DetachPolicy",
    "RunInfo",
    "LimitExceeded",
    "LimitKind",
    "PublicIdInUse",
    "RequestTrace",
    "RunReader",
    "completion_refuse",
    "completion_start",
    "limits_look",
    "readers_cut",
    "readers_settle",
    "request_rejected_record",
    "run_attach",
    "run_find",
    "run_find_public",
    "run_log",
    "run_stop",
]

logger = logging.getLogger(__name__)

AWAY_MESSAGE = "The server cannot take requests at the moment; please try again shortly."
MEMORY_MESSAGE = "The server holds as many requests as its memory allows; please try again shortly."
CHARS_PER_TOKEN = 4
USUAL_OUTPUT_TOKENS = 512
SESSION_CALLER = "session"


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """What the request log keeps of a call beside its tokens. Texts are already cut to the limits of the log."""

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


@dataclass(frozen=True, slots=True)
class DetachPolicy:
    """What becomes of a run without its first reader.

    `detach_grace_s`: how long it goes on; `log_ttl_s`: how long its log stays after its end,
    where longer than usual. `public_id`: by which its project may pick it up, with `resume_context`, JSON of whoever started it.
    """

    detach_grace_s: float
    log_ttl_s: float = 0.0
    public_id: str = ""
    resume_context: bytes = b""


class PublicIdInUse(Exception):
    """The public id of a request stands for another run of its project."""


async def completion_start(
    *,
    request: GenerationRequest,
    caller: Caller,
    trace: RequestTrace,
    detach_grace_s: float = 0.0,
    is_further: bool = False,
    detach: DetachPolicy | None = None,
) -> RunReader:
    """Admit the request and hand it to a worker of its model; returns before the worker has looked at it.

    `detach_grace_s`: how long the run goes
    on without a reader, where no `detach` says more. `is_further`: another run of one HTTP request, which counts as a request of the key
    once.

    1. Register the reader, so that nothing is missed.  2. Admission: all limits in one script, which also creates the run and queues
    its task.
    Raises LimitExceeded (a limit of the key), EngineUnavailable (no worker, loading, full, Valkey away) or PublicIdInUse; then nothing was
    started and the caller writes the request's record. Never hangs: every step has a time-out.
    """
    after = detach or DetachPolicy(detach_grace_s)
    admission = replace(
        _admission(request, caller, trace, request.messages),
        detach_grace_s=after.detach_grace_s,
        log_ttl_s=after.log_ttl_s,
        project_id=caller.project_id,
        public_id=after.public_id,
        resume_context=after.resume_context,
    )
    return await _admitted(replace(admission, requests_per_minute=0) if is_further else admission)


async def completion_refuse(
    *, request: GenerationRequest, messages: Sequence[Any], caller: Caller, trace: RequestTrace
) -> dict[str, str]:
    """Admit a request whose `messages`, as they were sent, are at fault, and end it at once: limits answer before messages do.

    Charged like a run that the worker refuses: the reserved tokens come back. Gives the `x-ratelimit-*` lines of the answer.
    Raises as completion_start does.
    """
    reader = await _admitted(replace(_admission(request, caller, trace, messages), has_task=False))
    reader.leave()
    return reader.headers


async def _admitted(admission: AdmissionRequest) -> RunReader:
    """The reader of a run that was admitted; one without a task is over already."""
    dispatcher = dispatcher_of_loop()
    try:
        await dispatcher.start()
        refusal = await _refusal_by_size(dispatcher, admission.request) if admission.has_task else None
        admission = replace(admission, has_task=admission.has_task and refusal is None)
        reader = dispatcher.reader(admission.request.run_id)
        try:
            # NOTE: before the answer, as a cancelled or late admission may have made the run all the same, and has to be left.
            reader.is_started = True
            verdict = await dispatcher.runs.admit(admission, web_id=dispatcher.web_id, channel=dispatcher.channel)
            reader.headers = _headers(admission.requests_per_minute, admission.tokens_per_minute, verdict)
            if verdict.decision is not Decision.GO:
                reader.is_started = False
                if verdict.decision is Decision.IN_USE:
                    raise PublicIdInUse
                raise _refusal(admission.request.model, verdict, reader.headers)
            if not admission.has_task:
                payload = await _end(dispatcher, admission, refusal)
                if payload:
                    reader.offer(LogEntry(1, 0, payload))
        except BaseException:
            # A cancelled view has not got its reader yet, so nobody else would leave the run.
            reader.leave()
            raise
    except (RedisError, OSError, TimeoutError) as error:
        logger.warning("request refused, Valkey does not answer: %s", error)
        raise EngineUnavailable(ErrorCode.OVERLOADED, AWAY_MESSAGE) from error
    return reader


async def run_attach(*, run_id: str, caller: Caller) -> tuple[RunReader, RunInfo] | None:
    """Another reader of a run, from its first event, and what is known of it; None where the caller's project has none of that id any more.

    Raises EngineUnavailable. The reader is left like any other; a run that lingers goes on as long as it is read.
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
    """What is known of a run; None where there is none any more. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        return await dispatcher_of_loop().runs.find(run_id)


async def run_log(*, run_id: str) -> list[Event]:
    """Everything that a run has said, as far as its log is there. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        entries = await dispatcher_of_loop().runs.read_whole_log(run_id)
    return [event for entry in entries for event in entry.events()]


async def run_find_public(*, public_id: str, caller: Caller) -> tuple[str, bytes] | None:
    """The run id, and what was kept, of a run that the caller's project started with this public id. Raises EngineUnavailable."""
    with _valkey_or_unavailable():
        return await dispatcher_of_loop().runs.find_public(caller.project_id, public_id)


async def run_stop(*, run_id: str) -> None:
    """End a run (outcome `stopped`), whoever reads it; nothing happens where it is over. Raises EngineUnavailable."""
    await dispatcher_of_loop().stop(run_id)


@contextmanager
def _valkey_or_unavailable() -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError, TimeoutError) as error:
        raise EngineUnavailable(ErrorCode.OVERLOADED, AWAY_MESSAGE) from error


async def limits_look(*, caller: Caller) -> dict[str, str]:
    """The `x-ratelimit-*` lines of an answer that no admission has come before; none for who has no such limits, or without Valkey."""
    requests, tokens = caller.limits.requests_per_minute or 0, caller.limits.tokens_per_minute or 0
    if not (requests or tokens):
        return {}
    runs = dispatcher_of_loop().runs
    try:
        verdict = await runs.look(_caller_name(caller), requests_per_minute=requests, tokens_per_minute=tokens)
    except (RedisError, OSError):
        return {}
    return _headers(requests, tokens, verdict)


def request_rejected_record(
    *, run_id: str, caller: Caller | None, trace: RequestTrace, status: int, code: ErrorCode | str, arrived_at: float
) -> None:
    """Log a request that never became a run (401, 400, 429, 503 …). Does not wait; drops the record when Valkey is away."""
    dispatcher = dispatcher_of_loop()
    about = _about(trace, caller, model="", arrived_at=arrived_at)
    outcome = Outcome.REJECTED.value
    dispatcher.record({**about, "run_id": run_id, "status": status, "outcome": outcome, "error_code": str(code)})


def readers_cut() -> None:
    """This process is about to hang up on its clients: runs that are left from now on were broken off by the server."""
    for dispatcher in dispatchers():
        dispatcher.is_cutting = True


async def readers_settle() -> None:
    """Wait until Valkey knows of every reader that has left: of a process that ends before, it is believed to have cut its clients off."""
    await dispatcher_of_loop().settle()


async def _refusal_by_size(dispatcher: Dispatcher, request: GenerationRequest) -> Rejected | None:
    """Refuse a prompt that has more characters than the model's context can hold, before it goes to a worker. Raises as Valkey."""
    if not is_long(request):
        return None
    known = [
        lease
        for lease in await dispatcher.workers()
        if lease.model == request.model and lease.max_model_len * lease.longest_token_chars
    ]
    if not known:
        return None
    widest = max(known, key=lambda lease: lease.max_model_len)
    try:
        check_prompt_fits(request, widest.longest_token_chars, widest.max_model_len)
    except RequestError as error:
        return Rejected(error.code, error.message, error.param)
    return None


async def _end(dispatcher: Dispatcher, admission: AdmissionRequest, refusal: Rejected | None) -> bytes:
    """End a run of which no worker knows: it has used nothing. Without a refusal whoever asked for it writes the record.

    Gives the packed event for the reader of a refusal.
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
            position=0,
            payload=payload,
            record=record,
            used_tokens=0,
            caller=admission.caller,
            slug=model_slug(admission.request.model),
            worker_id="",
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
        max_live=min(
            limits.max_concurrency or settings.LIGHTCONE_MAX_LIVE_PER_KEY, settings.LIGHTCONE_MAX_LIVE_PER_KEY
        ),
        max_waiting=settings.LIGHTCONE_MAX_WAITING,
    )


def _reserved_tokens(request: GenerationRequest, messages: Sequence[Any]) -> int:
    """An estimate, as only the worker can count; the end of the run settles the difference."""
    if request.task is Task.READ:
        return 0
    chars = sum(len(str(message.get("content") or "")) for message in messages if isinstance(message, dict))
    if request.raw is not None:
        chars = (
            len(request.raw.text) + len(request.raw.suffix or "") + CHARS_PER_TOKEN * len(request.raw.token_ids or ())
        )
    if request.task is Task.EMBED:
        return chars // CHARS_PER_TOKEN
    output = (
        request.stop.absent_max_tokens or USUAL_OUTPUT_TOKENS
        if request.stop.max_tokens is None
        else request.stop.max_tokens
    )
    return chars // CHARS_PER_TOKEN + min(output, USUAL_OUTPUT_TOKENS) * request.num_sequences


def _about(trace: RequestTrace, caller: Caller | None, *, model: str, arrived_at: float) -> dict[str, Any]:
    """The fields of the terminal record that are known at the door (chat.usage.services.TerminalRecord)."""
    return {
        "arrived_at": arrived_at,
        "org_id": caller.org_id if caller else 0,
        "project_id": caller.project_id if caller else 0,
        "key_public_id": caller.public_id if caller else "",
        "dialect": trace.dialect,
        "route": trace.route,
        "is_stream": trace.is_stream,
        "model_asked": trace.model_asked,
        "model": model,
        "client_request_id": trace.client_request_id,
        "user_label": trace.user_label,
        "user_agent": trace.user_agent,
        "address": trace.address,
        "batch_id": trace.batch_id,
        "retry_count": trace.retry_count,
        "patience_s": trace.patience_s,
        "metadata": dict(trace.metadata),
    }


def _caller_name(caller: Caller) -> str:
    """Under which limits are kept: those of the key, or of the person who is signed in."""
    return caller.public_id or f"{SESSION_CALLER}:{caller.tenant}"


def _headers(requests_per_minute: int, tokens_per_minute: int, verdict: AdmissionResult) -> dict[str, str]:
    return rate_headers(
        Bucket(requests_per_minute, verdict.requests_left, verdict.requests_reset_s),
        Bucket(tokens_per_minute, verdict.tokens_left, verdict.tokens_reset_s),
    )


LIMIT_MESSAGES = {
    LimitKind.REQUESTS: "This API key has used its requests for this minute.",
    LimitKind.TOKENS: "This API key has used its tokens for this minute.",
    LimitKind.CONCURRENCY: "This API key has as many requests running as it may have at once.",
}


def _refusal(model: str, verdict: AdmissionResult, headers: dict[str, str]) -> LimitExceeded | EngineUnavailable:
    if verdict.decision is Decision.UNAVAILABLE:
        return _unavailable(model, verdict)
    if verdict.decision is Decision.MEMORY:
        return EngineUnavailable(ErrorCode.OVERLOADED, MEMORY_MESSAGE)
    if verdict.decision is Decision.FULL:
        message = f"The model '{model}' has too many requests waiting, and this project has its share of them; please try again shortly."
        return EngineUnavailable(ErrorCode.OVERLOADED, message)
    kind = LimitKind(verdict.decision.value)
    wait_s = min(60, max(1, math.ceil(verdict.wait_s)))
    return LimitExceeded(
        kind, f"{LIMIT_MESSAGES[kind]} Please try again in {wait_s} s.", retry_after_s=wait_s, headers=headers
    )


def _unavailable(model: str, verdict: AdmissionResult) -> EngineUnavailable:
    """No worker is ready. The reason of a failed load is for the console, not for clients."""
    if verdict.worker_state == "loading":
        return EngineUnavailable(
            ErrorCode.MODEL_LOADING, f"The model '{model}' is loading ({verdict.worker_progress:.0%})."
        )
    if verdict.worker_state == "failed":
        return EngineUnavailable(
            ErrorCode.MODEL_LOAD_FAILED, f"The model '{model}' could not be loaded; the administrator can see why."
        )
    if verdict.worker_state == "draining":
        return EngineUnavailable(
            ErrorCode.OVERLOADED, f"The model '{model}' is being restarted; please try again shortly."
        )
    return EngineUnavailable(
        ErrorCode.MODEL_UNLOADED,
        f"No worker serves the model '{model}' at the moment; GET /v1/models tells which models are ready.",
    )
