"""From checked values to a run on its way to a worker: model, rights of the key, limits (steps 3 and 4 of completion.py)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from chat.api.answering.accepting import Accepted
from chat.api.answering.heads import head_begun
from chat.api.answering.sent_names import Reword, refusals_reworded
from chat.api.body import run_in_thread_if_large
from chat.api.dialect import AnswerHead
from chat.api.request.build import MessagesRefused, generation_request
from chat.catalog.named_models import model_asked
from chat.catalog.services import ModelEntry
from chat.errors import ApiError, engine_api_error
from chat.generation.completions import LimitExceeded, PublicIdInUse, RunReader, completion_refuse, completion_start
from engine.api import EngineError, GenerationRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that is on its way to a worker; whoever holds it leaves its reader. `head`: of its answer, before the admission."""

    model: ModelEntry
    generation: GenerationRequest
    reader: RunReader
    head: AnswerHead


async def start_reworded(accepted: Accepted, reword: Reword) -> StartedRun:
    """`run_start`, whose refusals name what was sent."""
    with refusals_reworded(reword, accepted.values):
        return await run_start(accepted)


async def run_start(accepted: Accepted) -> StartedRun:
    """Start what an accepted request asks for, also one of the playground. Raises ApiError; then nothing was started."""
    values, caller = accepted.values, accepted.caller
    model = await model_asked(values["model"], values["model_names"], caller)
    build = partial(
        generation_request,
        model=model.name,
        sampling_defaults=model.sampling_defaults,
        caller=caller,
        arrived_at=accepted.arrived_at,
    )
    try:
        generation = await run_in_thread_if_large(accepted.num_bytes, build, values)
    except MessagesRefused as error:
        ending = completion_refuse(
            request=error.request, messages=values["messages"], caller=caller, trace=accepted.trace
        )
        error.extra_headers = await _within_limits(ending)
        raise
    head = head_begun(accepted.request_id, values, model, generation)
    starting = completion_start(
        request=generation,
        caller=caller,
        trace=accepted.trace,
        detach_grace_s=values["detach_grace_s"],
        is_further=values["is_further"],
        detach=values["detach"](head) if values["detach"] else None,
    )
    return StartedRun(model, generation, await _within_limits(starting), head)


async def _within_limits(admission: Awaitable[T]) -> T:
    """What a service gives that looks at limits first; raises ApiError where one says no."""
    try:
        return await admission
    except LimitExceeded as error:
        raise ApiError(
            "rate_limit_exceeded", error.message, retry_after_s=error.retry_after_s, headers=error.headers
        ) from None
    except PublicIdInUse:
        message = (
            "The request id stands for another resumable request of this project; send another X-Request-Id, or none."
        )
        raise ApiError("request_id_in_use", message, "request_id") from None
    except EngineError as error:
        raise engine_api_error(error) from None
