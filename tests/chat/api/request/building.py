"""The engine's request as the pipeline builds it from a parsed one."""

from __future__ import annotations

from typing import Any

from chat.access.keys import Caller
from chat.api.request.build import generation_request, rights_check
from chat.api.request.parsed import ParsedRequest
from engine.api import GenerationRequest


def generation_built(
    parsed: ParsedRequest, caller: Caller, *, defaults: dict[str, Any] | None = None
) -> GenerationRequest:
    placement = rights_check(parsed, model="m", caller=caller)
    return generation_request(
        parsed, model="m", sampling_defaults=defaults or {}, caller=caller, priority=placement.priority, arrived_at=0.0
    )
