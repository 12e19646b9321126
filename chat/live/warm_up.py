"""The warm-up of a model: five real tokens, which also show that it computes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from chat.access.accounts import playground_caller
from chat.access.authentication import configuration_refresh
from chat.access.keys import Caller
from chat.api.answering.pipeline import Accepted, rejection_record, run_start
from chat.api.answering.streaming import ending_check
from chat.api.request.parse import request_parse
from chat.api.request.parsed import ParsedRequest
from chat.audit.services import audit_record
from chat.catalog.models import ServedModel
from chat.catalog.named_models import model_asked
from chat.catalog.services import model_subject
from chat.errors import ApiError, api_error
from chat.generation.completions import RequestTrace
from engine.api import Completed

TOKENS = 5
PATIENCE_S = 120.0
"""For the load of the model, if it is not loaded."""
BODY = {"messages": [{"role": "user", "content": "Count to five."}], "max_tokens": TOKENS, "temperature": 0}


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What came of it."""

    num_tokens: int
    seconds: float


def model_warm_up(*, user: Any, model: ServedModel, route: str) -> WarmUp:
    """Have a model generate five tokens, by the ordinary way of a request, and record that. Blocks.

    They count as usage of the user's own project. Raises KeyInvalid for a user who may not chat, ApiError or
    EngineError for a request that fails.
    """
    caller = playground_caller(user=user)
    audit_record(action="model.warm", on=model_subject(model))
    trace = RequestTrace(dialect="playground", route=route, is_stream=False, user_label=user.get_username()[:64])
    return async_to_sync(_warm_up)(caller, model.name, trace)


async def _warm_up(caller: Caller, name: str, trace: RequestTrace) -> WarmUp:
    await configuration_refresh()
    began_at = time.time()
    parsed: ParsedRequest = request_parse(BODY | {"model": name})
    accepted = Accepted(caller, parsed, trace, began_at, num_bytes=0, request_id="")
    try:
        entry = await model_asked(name, None, caller)
        started = await run_start(accepted, by_model=entry)
    except Exception as error:
        rejection_record(error, caller=caller, trace=trace, arrived_at=began_at)
        raise api_error(error) from error
    reader = started.reader
    try:
        await reader.first(timeout_s=PATIENCE_S)
        async for event in reader:
            ending_check(event)
            if isinstance(event.payload, Completed):
                return WarmUp(event.payload.usage.completion_tokens, time.time() - began_at)
        raise ApiError("internal_error", "The run ended without a result.")
    finally:
        reader.leave()
