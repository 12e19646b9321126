"""What a caller may ask for: powers that the operator gives to single keys, and the place in the queue. After the model is known.

Every door goes through here (build.py): the API, whatever its dialect, and the playground, whose users have no such powers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.fields import echo
from chat.errors import ApiError
from engine.api import ToolMode

EARLIER, LATER = -10, 10
"""Priorities of the service tiers `priority` and `flex`."""


@dataclass(frozen=True, slots=True)
class QueuePlacement:
    """Where a request stands in the queue. `tier`: the service tier used, for those who sent one."""

    priority: int
    tier: str | None


def gates_check(values: Mapping[str, Any], *, model: str, caller: Caller) -> QueuePlacement:
    """Run every gate in order; raises ApiError of the first that is closed."""
    _check_template(values, caller)
    _check_processors(values, caller)
    _check_transfer(values)
    for name in ("mm_processor_kwargs", "media_io_kwargs"):
        _check_media_options(values, name, model, caller)
    placement = _placement(values, caller)
    _check_parser(values)
    return placement


def _check_template(values: Mapping[str, Any], caller: Caller) -> None:
    if values["chat_template"] is not None and not caller.has_right(str(Right.CHAT_TEMPLATE)):
        raise _closed("untrusted_chat_template", "chat_template", str(Right.CHAT_TEMPLATE))


def _check_processors(values: Mapping[str, Any], caller: Caller) -> None:
    if values["logits_processors"] and not caller.has_right(str(Right.LOGITS_PROCESSORS)):
        raise _closed("unsupported_parameter", "logits_processors", str(Right.LOGITS_PROCESSORS))


def _check_transfer(values: Mapping[str, Any]) -> None:
    if values["kv_transfer_params"] is not None:
        message = "kv_transfer_params cannot be used: this server has no KV connector; leave it out"
        raise ApiError("unsupported_parameter", message, "kv_transfer_params")


def _check_media_options(values: Mapping[str, Any], name: str, model: str, caller: Caller) -> None:
    """No model of this engine has a media processor, so none declares an option that a key with the right could set."""
    options = values[name]
    if not options:
        return
    if not caller.has_right(str(Right.MM_KWARGS)):
        raise _closed("unsupported_parameter", name, str(Right.MM_KWARGS))
    option = next(iter(options))
    message = f"{name} has the unknown option {echo(option)}: {model} reads text only and declares no media options; leave it out"
    raise ApiError("invalid_value", message, f"{name}.{option[:200]}")


def _closed(code: str, param: str, right: str) -> ApiError:
    message = f"{param} needs the right {Right(right).label!r} on this API key; leave it out, or have the right given in the console"
    return ApiError(code, message, param)


def _placement(values: Mapping[str, Any], caller: Caller) -> QueuePlacement:
    """An explicit priority wins over the tier; a key whose lowest priority is above 0 starts there."""
    asked, tier = values["priority"], values["service_tier"]
    floor = caller.min_priority
    used = "default" if tier is not None else None
    if settings.LIGHTCONE_SCHEDULING_POLICY == "fcfs":
        if asked:
            raise ApiError(
                "invalid_value",
                "priority must be 0: this server handles requests in the order of their arrival",
                "priority",
            )
        return QueuePlacement(0, used)
    if asked:
        if asked < floor:
            raise ApiError(
                "invalid_value", f"priority must be at least {floor} for this API key, got {asked}", "priority"
            )
        return QueuePlacement(asked, used)
    if tier == "flex":
        return QueuePlacement(max(LATER, floor), tier)
    if tier == "priority" and floor < 0:
        return QueuePlacement(max(EARLIER, floor), tier)
    return QueuePlacement(max(0, floor), used)


def _check_parser(values: Mapping[str, Any]) -> None:
    if values["tool_choice"].mode == ToolMode.AUTO and settings.LIGHTCONE_TOOL_PARSER == "none":
        param = "function_call" if values["functions"] else "tool_choice"
        message = f"{param} cannot be auto: no tool parser is set for this model; name a function, or send none"
        raise ApiError("unsupported_parameter", message, param)
