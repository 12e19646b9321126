"""The last step of every dialect: a checked request and a known model become the engine's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from chat.access.keys import Caller
from chat.api.request.messages import messages_walk
from chat.api.request.parse import choices_check
from chat.api.request.parsed import GenerationParams, ParsedRequest
from chat.catalog.generation_defaults import sampling_defaults_effective
from chat.errors import ApiError
from chat.relay.state.run_id import run_id_create
from engine.api import GenerationRequest, SamplingParams, StopRules

LOWEST_TEMPERATURE = 0.01


class MessagesRefused(ApiError):
    """The messages are at fault. `request` is the rest: the key's limits and the model's state answer before them."""

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
) -> GenerationRequest:
    """Build the request to `model` (its served name).

    `sampling_defaults` are the model's values for fields that the request leaves out. `arrived_at` is in unix seconds.
    Raises MessagesRefused for faults of messages, and ApiError if the defaults do not go with the request.
    """
    limits = settings.LIGHTCONE_LIMITS
    wanted = parsed.generation
    request = GenerationRequest(
        run_id=run_id_create(),
        model=model,
        messages=(),
        arrived_at=arrived_at,
        sampling=_sampling(wanted, sampling_defaults),
        stop=_stop(wanted, sampling_defaults),
        logprobs=wanted.logprobs,
        prompt=wanted.prompt,
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
    )
    if request.raw is not None and not parsed.messages:
        return request
    try:
        messages = messages_walk(parsed.messages, model=model, max_parts=limits.max_parts)
    except ApiError as error:
        raise MessagesRefused(error, request) from None
    return replace(request, messages=messages) if request.raw is None else request


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
    """Add the limit of an answer without a token limit: the model's, at most that of a choice, and at most
    `max_choice_tokens` in all.
    """
    limits = settings.LIGHTCONE_LIMITS
    most = max(1, limits.max_choice_tokens // wanted.max_choices)
    most = min(most, defaults.get("max_completion_tokens") or most)
    return replace(wanted.stop, absent_max_tokens=min(most, limits.max_output_tokens or most))
