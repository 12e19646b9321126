"""The steps once the model is known: the rights of the key, the place in the queue, and the engine's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.request.fields import bad_value, echo
from chat.api.request.image_parts import MediaRules
from chat.api.request.messages import messages_walk
from chat.api.request.named_files import AttachedFiles
from chat.api.request.parse import choices_check
from chat.api.request.parsed import DeliveryOptions, GenerationParams, ParsedRequest
from chat.catalog.services import sampling_defaults_effective
from chat.errors import ApiError
from chat.relay.state.keys import run_id_create
from engine.api import GenerationRequest, PromptOptions, SamplingParams, StopRules, ToolMode

LOWEST_TEMPERATURE = 0.01
SYSTEM_ROLES = ("system", "developer")
EARLIER, LATER = -10, 10
"""Priorities of the service tiers `priority` and `flex`."""


@dataclass(frozen=True, slots=True)
class QueuePlacement:
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
    if generation.raw is not None and generation.raw.embeds is not None and (problem := embeds_problem(caller)):
        raise bad_value("prompt_embeds", problem, "unsupported_parameter")
    if generation.kv_transfer_params is not None:
        message = "cannot be used: this server has no KV connector; leave it out"
        raise bad_value("kv_transfer_params", message, "unsupported_parameter")
    for name in generation.media_options:
        _require(caller, str(Right.MM_KWARGS), name)
    placement = _placement(parsed.delivery, caller)
    if generation.tool_choice.mode == ToolMode.AUTO and settings.LIGHTCONE_TOOL_PARSER == "none":
        message = "cannot be auto: no tool parser is set for this model; name a function, or send none"
        raise bad_value("tool_choice", message, "unsupported_parameter")
    return placement


def embeds_problem(caller: Caller) -> str:
    """Return why a caller may not send vectors, as it continues behind the field's name; empty if they may."""
    if not settings.LIGHTCONE_EMBEDS:
        return "cannot be used: this server takes no vectors (LIGHTCONE_EMBEDS); leave it out"
    return _missing(caller, str(Right.EMBEDS))


def _require(caller: Caller, right: str, param: str, *, code: str = "unsupported_parameter") -> None:
    if problem := _missing(caller, right):
        raise bad_value(param, problem, code)


def _missing(caller: Caller, right: str) -> str:
    if caller.has_right(right):
        return ""
    label = Right(right).label
    return f"needs the right {label!r} on this API key; leave it out, or have the right given in the console"


def _check_media_options(generation: GenerationParams, model: str, media: MediaRules | None) -> None:
    """Refuse any media option where no media can be. Those of a model that takes some are its worker's to judge."""
    if generation.raw is None and media is not None and media.takes_media:
        return
    for name, options in generation.media_options.items():
        option = next(iter(options))
        message = (
            f"{name} has the unknown option {echo(option)}: {model} reads text only here and declares no media "
            "options; leave it out"
        )
        raise ApiError("invalid_value", message, f"{name}.{option[:200]}")


def _placement(delivery: DeliveryOptions, caller: Caller) -> QueuePlacement:
    """Return the place in the queue. A sent priority wins over the tier; a key's lowest priority is a floor."""
    asked, tier = delivery.priority, delivery.service_tier
    floor = caller.min_priority
    used = "default" if tier is not None else None
    if settings.LIGHTCONE_SCHEDULING_POLICY == "fcfs":
        if asked:
            raise bad_value("priority", "must be 0: this server handles requests in the order of their arrival")
        return QueuePlacement(0, used)
    if asked:
        if asked < floor:
            raise bad_value("priority", f"must be at least {floor} for this API key, got {asked}")
        return QueuePlacement(asked, used)
    if tier == "flex":
        return QueuePlacement(max(LATER, floor), tier)
    if tier == "priority" and floor < 0:
        return QueuePlacement(max(EARLIER, floor), tier)
    return QueuePlacement(max(0, floor), used)


class MessagesRefused(ApiError):
    """The messages are at fault. `request` is the rest: limits and the model's state answer first."""

    def __init__(self, error: ApiError, request: GenerationRequest) -> None:
        super().__init__(error.code, error.message, error.param, problems=error.problems)
        self.request = request


def generation_request(
    parsed: ParsedRequest,
    *,
    model: str,
    sampling_defaults: Mapping[str, Any],
    caller: Caller,
    priority: int,
    arrived_at: float,
    system_prompt: str = "",
    chat_template: str = "",
    adapter: str = "",
    files: AttachedFiles | None = None,
    media: MediaRules | None = None,
) -> GenerationRequest:
    """Build the engine's request. `arrived_at` is in unix seconds.

    The model has these values for what the request leaves out: `sampling_defaults`; `system_prompt`, the first message
    of conversations without one; `chat_template`, in place of the one in its files. `adapter`: of the model. `files`:
    those that messages name by id. `media`: what becomes of these; refused unless it is given. Raises MessagesRefused
    for faults of messages, and ApiError if the defaults do not go with the request.
    """
    limits = settings.LIGHTCONE_LIMITS
    wanted = parsed.generation
    _check_media_options(wanted, model, media)
    request = GenerationRequest(
        run_id=run_id_create(),
        model=model,
        messages=(),
        arrived_at=arrived_at,
        sampling=_sampling(wanted, sampling_defaults),
        stop=_stop(wanted, sampling_defaults),
        logprobs=wanted.logprobs,
        prompt=_prompt(wanted, chat_template),
        tools=wanted.tools,
        tool_choice=wanted.tool_choice,
        constraint=wanted.constraint,
        num_choices=wanted.num_choices,
        best_of=wanted.best_of,
        beam=wanted.beam,
        prediction=wanted.prediction,
        thinking_token_budget=wanted.thinking_token_budget,
        priority=priority,
        tenant=caller.tenant,
        cache_salt=wanted.cache_salt,
        group=wanted.group,
        deadline_at=arrived_at + min(limits.request_timeout, parsed.delivery.timeout_s or limits.request_timeout),
        task=wanted.task,
        raw=wanted.raw,
        embed=wanted.embed,
        speech=wanted.speech,
        adapter=adapter or None,
    )
    if (request.raw is not None or request.speech is not None) and not parsed.messages:
        return request
    try:
        messages = messages_walk(parsed.messages, model=model, max_parts=limits.max_parts, files=files, media=media)
    except ApiError as error:
        raise MessagesRefused(error, request) from None
    if request.raw is not None:
        return request
    has_own = bool(messages) and messages[0].get("role") in SYSTEM_ROLES
    if system_prompt and not has_own:
        messages = ({"role": "system", "content": system_prompt}, *messages)
    return replace(request, messages=messages)


def _prompt(wanted: GenerationParams, chat_template: str) -> PromptOptions:
    options: dict[str, Any] = {}
    if chat_template and wanted.prompt.chat_template is None:
        options["chat_template"] = chat_template
    if wanted.media_options:
        options["media_options"] = {name: dict(values) for name, values in wanted.media_options.items()}
    return replace(wanted.prompt, **options) if options else wanted.prompt


def _sampling(wanted: GenerationParams, defaults: Mapping[str, Any]) -> SamplingParams:
    used, top_k = sampling_defaults_effective(defaults), wanted.draw.top_k

    def chosen(name: str) -> float:
        sent = getattr(wanted.draw, name)
        return float(used[name] if sent is None else sent)

    sampling = replace(
        wanted.sampling,
        temperature=chosen("temperature"),
        top_k=max(0, int(used["top_k"]) if top_k is None else top_k),
        top_p=chosen("top_p"),
        min_p=chosen("min_p"),
        presence_penalty=chosen("presence_penalty"),
        frequency_penalty=chosen("frequency_penalty"),
        repetition_penalty=chosen("repetition_penalty"),
    )
    choices_check(wanted, sampling)
    if not sampling.is_greedy and sampling.temperature < LOWEST_TEMPERATURE:
        sampling = replace(sampling, temperature=LOWEST_TEMPERATURE)
    return sampling


def _stop(wanted: GenerationParams, defaults: Mapping[str, Any]) -> StopRules:
    """Add the limit of an answer without one: the model's, and at most `max_choice_tokens` for all choices."""
    limits = settings.LIGHTCONE_LIMITS
    most = max(1, limits.max_choice_tokens // wanted.max_choices)
    most = min(most, defaults.get("max_completion_tokens") or most)
    return replace(wanted.stop, absent_max_tokens=min(most, limits.max_output_tokens or most))
