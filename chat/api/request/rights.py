"""What a caller may ask for: powers that the operator gives to single keys, and the place in the queue.

Checked once the model is known, for every dialect and for the playground, whose users have no such powers.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.fields import echo
from chat.api.request.parsed import DeliveryOptions, GenerationParams, ParsedRequest
from chat.errors import ApiError
from engine.api import ToolMode

EARLIER, LATER = -10, 10
"""Priorities of the service tiers `priority` and `flex`."""


@dataclass(frozen=True, slots=True)
class QueuePlacement:
    """The place of a request in the queue."""

    priority: int
    tier: str | None
    """The service tier used; None if the request names none."""


def rights_check(parsed: ParsedRequest, *, model: str, caller: Caller) -> QueuePlacement:
    """Check every right in order and return the place in the queue. Raises ApiError for the first that is missing."""
    generation = parsed.generation
    if generation.prompt.chat_template is not None:
        _require(caller, str(Right.CHAT_TEMPLATE), "chat_template", code="untrusted_chat_template")
    if generation.sampling.processors:
        _require(caller, str(Right.LOGITS_PROCESSORS), "logits_processors")
    if generation.kv_transfer_params is not None:
        message = "kv_transfer_params cannot be used: this server has no KV connector; leave it out"
        raise ApiError("unsupported_parameter", message, "kv_transfer_params")
    _check_media_options(generation, model, caller)
    placement = _placement(parsed.delivery, caller)
    if generation.tool_choice.mode == ToolMode.AUTO and settings.LIGHTCONE_TOOL_PARSER == "none":
        message = "tool_choice cannot be auto: no tool parser is set for this model; name a function, or send none"
        raise ApiError("unsupported_parameter", message, "tool_choice")
    return placement


def _require(caller: Caller, right: str, param: str, *, code: str = "unsupported_parameter") -> None:
    if not caller.has_right(right):
        message = (
            f"{param} needs the right {Right(right).label!r} on this API key; leave it out, "
            "or have the right given in the console"
        )
        raise ApiError(code, message, param)


def _check_media_options(generation: GenerationParams, model: str, caller: Caller) -> None:
    """Refuse any media option: no model of this engine has a media processor that could declare it."""
    for name, options in generation.media_options.items():
        _require(caller, str(Right.MM_KWARGS), name)
        option = next(iter(options))
        message = (
            f"{name} has the unknown option {echo(option)}: {model} reads text only and declares no media options; "
            "leave it out"
        )
        raise ApiError("invalid_value", message, f"{name}.{option[:200]}")


def _placement(delivery: DeliveryOptions, caller: Caller) -> QueuePlacement:
    """Return the place in the queue.

    A sent priority wins over the tier; a key with a lowest priority above 0 starts there.
    """
    asked, tier = delivery.priority, delivery.service_tier
    floor = caller.min_priority
    used = "default" if tier is not None else None
    if settings.LIGHTCONE_SCHEDULING_POLICY == "fcfs":
        if asked:
            message = "priority must be 0: this server handles requests in the order of their arrival"
            raise ApiError("invalid_value", message, "priority")
        return QueuePlacement(0, used)
    if asked:
        if asked < floor:
            message = f"priority must be at least {floor} for this API key, got {asked}"
            raise ApiError("invalid_value", message, "priority")
        return QueuePlacement(asked, used)
    if tier == "flex":
        return QueuePlacement(max(LATER, floor), tier)
    if tier == "priority" and floor < 0:
        return QueuePlacement(max(EARLIER, floor), tier)
    return QueuePlacement(max(0, floor), used)
