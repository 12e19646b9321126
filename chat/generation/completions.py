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
from chat.generation.cost import request_cost
from chat.generation.kept_media import media_kept
from chat.generation.kept_parameters import parameters_kept
from chat.generation.limits import LimitExceeded, LimitKind, admission_error, rate_headers
from chat.generation.metering import Metering
from chat.relay.state.keys import model_slug
from chat.relay.state.records import pack_events, terminal_record
from chat.relay.state.runs import (
    AdmissionRequest,
    AdmissionResult,
    Decision,
    DetachPolicy,
    LogEntry,
    RunCompletion,
    RunInfo,
)
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
    metering: Metering | None = None,
) -> RunReader:
    """Admit the request and queue it for a worker of its model. Return before the worker sees it.

    `is_further`: another run of one HTTP request, which counts once as a request of the key. `metering`: the limits and
    budgets that hold, those of the caller alone if it is None.

    Raises LimitExceeded (a limit or budget of the key, its account, project or organisation, or of the model),
    EngineUnavailable (no worker, loading, full, Valkey away) or PublicIdInUse.
    Then nothing was started, and the caller writes the request's record. Every step has a time-out.
    """
    metering = metering or Metering(caller.scopes())
    admission = replace(
        _admission(request, caller, trace, request.messages, metering),
        project_id=caller.project_id,
        detach=detach or DetachPolicy(),
    )
    if is_further:
        admission = replace(admission, cost=replace(admission.cost, requests=0))
    return await _admitted(admission, metering)


async def completion_refuse(
    *,
    request: GenerationRequest,
    messages: Sequence[Any],
    caller: Caller,
    trace: RequestTrace,
    metering: Metering | None = None,
) -> dict[str, str]:
    """Admit a request with faulty `messages`, and end it at once: limits answer before messages.

    Reserved tokens come back. Return the answer's `x-ratelimit-*` lines. Raises as completion_start does.
    """
    metering = metering or Metering(caller.scopes())
    admission = replace(_admission(request, caller, trace, messages, metering), has_task=False)
    reader = await _admitted(admission, metering)
    reader.leave()
    return reader.headers


async def _admitted(admission: AdmissionRequest, metering: Metering) -> RunReader:
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
            result = await dispatcher.in_order(reader.run_id, _decide(dispatcher, admission, metering))
            reader.headers = rate_headers(result)
            reader.waits_for_model = admission.has_task and result.worker_state != READY
            if result.decision is not Decision.GO:
                reader.is_started = False
                if result.decision is Decision.IN_USE:
                    raise PublicIdInUse
                model, scopes, budgets = admission.request.model, admission.scopes, admission.budgets
                raise admission_error(model, result, reader.headers, scopes, budgets)
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


async def _decide(dispatcher: Dispatcher, admission: AdmissionRequest, metering: Metering) -> AdmissionResult:
    """Ask for admission, again each time that Valkey did not know what is spent of a budget."""
    runs = dispatcher.runs
    for _ in range(len(admission.budgets) + 1):
        result = await runs.admit(admission, web_id=dispatcher.web_id, channel=dispatcher.channel)
        if result.decision is not Decision.UNKNOWN:
            return result
        await metering.fill(runs.client, runs.keys, admission.budgets[result.scope - 1])
    raise TimeoutError("the counters of budgets were lost again while they were filled")


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
    scopes = caller.scopes()
    if not any(scope.rates for scope in scopes):
        return {}
    try:
        return rate_headers(await dispatcher_of_loop().runs.look(scopes))
    except (RedisError, OSError):
        return {}


def request_rejected_record(
    *,
    run_id: str,
    caller: Caller | None,
    trace: RequestTrace,
    status: int,
    code: ErrorCode | str,
    message: str,
    arrived_at: float,
    limit_hit: str = "",
) -> None:
    """Log a request that never became a run (401, 400, 429, 503 …). Do not wait; drop the record if Valkey is away."""
    dispatcher = dispatcher_of_loop()
    about = _about(trace, caller, model="", arrived_at=arrived_at)
    outcome = Outcome.REJECTED.value
    dispatcher.chores.add_record(
        {
            **about,
            "run_id": run_id,
            "status": status,
            "outcome": outcome,
            "error_code": str(code),
            "error_message": "" if caller and caller.stores_nothing else message,
        }
        | ({"limit_hit": limit_hit} if limit_hit else {})
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
            slug=model_slug(admission.request.model),
        )
    )
    return payload


def _admission(
    request: GenerationRequest,
    caller: Caller,
    trace: RequestTrace,
    messages: Sequence[Any],
    metering: Metering,
) -> AdmissionRequest:
    about = _about(trace, caller, model=request.model, arrived_at=request.arrived_at)
    if metering.stamps:
        about["budgets"] = metering.stamps
    context = min((size for size in (metering.max_context, metering.context) if size), default=None)
    return AdmissionRequest(
        request=replace(request, max_context=metering.max_context),
        about=about | _kept_of(request, caller),
        scopes=metering.scopes,
        cost=request_cost(request, messages, context=context),
        budgets=metering.budgets,
        max_waiting=settings.LIGHTCONE_MAX_WAITING,
    )


def _kept_of(request: GenerationRequest, caller: Caller) -> dict[str, Any]:
    """Return what the log keeps of the request itself, and how much of the texts its worker shall keep."""
    kept = {"parameters": parameters_kept(request), "media": media_kept(request)}
    if caller.stores_nothing:
        return {**kept, "error_message": ""}
    most = settings.LIGHTCONE_LOG_TEXT_BYTES if caller.keeps_texts and request.task is not Task.READ else 0
    return {**kept, **({"text_bytes": most} if most else {})}


def _about(trace: RequestTrace, caller: Caller | None, *, model: str, arrived_at: float) -> dict[str, Any]:
    """Return the fields of chat.usage.services.TerminalRecord that are known before the run."""
    if caller is not None and caller.stores_nothing:
        trace = replace(trace, address="", user_agent="", user_label="", metadata={})
    return {
        "arrived_at": arrived_at,
        "org_id": caller.org_id if caller else 0,
        "project_id": caller.project_id if caller else 0,
        "key_public_id": caller.public_id if caller else "",
        "account_id": caller.account_id if caller else None,
        "model": model,
        **asdict(trace),
    }
