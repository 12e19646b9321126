"""The last step of every dialect: checked values and a known model become the engine's request. Called by view.py and the playground."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from chat.dialects.request.messages import messages_walk
from chat.dialects.request.schema import choices_check
from chat.errors import ApiError
from chat.run_id import run_id_create
from chat.services.keys import Caller
from engine.api import GenerationRequest, LogprobOptions, PromptOptions, SamplingParams, StopRules

LOWEST_TEMPERATURE = 0.01


def generation_request(
    values: Mapping[str, Any],
    *,
    model: str,
    sampling_defaults: Mapping[str, Any],
    caller: Caller,
    arrived_at: float | None = None,
) -> GenerationRequest:
    """Build the request of `model` (its served name) from the values of `schema.request_check`.

    `sampling_defaults` are the model's own values for fields that the request leaves out. Raises ApiError: a priority above the
    caller's rights, then whatever is wrong with the messages.
    """
    limits = settings.LIGHTCONE_LIMITS
    arrived_at = time.time() if arrived_at is None else arrived_at
    if values["priority"] < caller.min_priority:
        message = f"priority must be at least {caller.min_priority} for this API key, got {values['priority']}"
        raise ApiError("invalid_value", message, "priority")
    messages = messages_walk(values["messages"], model=model, max_parts=limits.max_parts)
    return GenerationRequest(
        run_id=run_id_create(),
        model=model,
        messages=messages,
        arrived_at=arrived_at,
        sampling=_sampling(values, sampling_defaults),
        stop=_stop(values, limits.max_choice_tokens),
        logprobs=LogprobOptions(enabled=values["logprobs"], top=values["top_logprobs"]),
        prompt=PromptOptions(add_generation_prompt=values["add_generation_prompt"], add_special_tokens=values["add_special_tokens"]),
        num_choices=values["n"],
        priority=values["priority"],
        tenant=caller.tenant,
        cache_salt=values["cache_salt"] or "",
        deadline_at=arrived_at + limits.request_timeout,
    )


def _sampling(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    def chosen(name: str, default: Any) -> Any:
        value = values[name] if values[name] is not None else defaults.get(name)
        return default if value is None else value

    seed = values["seed"]
    sampling = SamplingParams(
        temperature=float(chosen("temperature", 1.0)),
        top_k=max(0, int(chosen("top_k", 0))),
        top_p=float(chosen("top_p", 1.0)),
        min_p=float(chosen("min_p", 0.0)),
        presence_penalty=float(chosen("presence_penalty", 0.0)),
        frequency_penalty=float(chosen("frequency_penalty", 0.0)),
        repetition_penalty=float(chosen("repetition_penalty", 1.0)),
        seed=None if seed == -1 else seed,
    )
    choices_check(values["n"], sampling)
    if not sampling.is_greedy and sampling.temperature < LOWEST_TEMPERATURE:
        sampling = replace(sampling, temperature=LOWEST_TEMPERATURE)
    return sampling


def _stop(values: Mapping[str, Any], max_choice_tokens: int) -> StopRules:
    """An absent token limit is lowered so that all choices together stay within `max_choice_tokens`."""
    max_tokens = values["max_completion_tokens"] if values["max_completion_tokens"] is not None else values["max_tokens"]
    if max_tokens is None and values["n"] > 1:
        max_tokens = max(1, max_choice_tokens // values["n"])
    return StopRules(
        max_tokens=max_tokens,
        min_tokens=values["min_tokens"],
        stop=tuple(values["stop"] or ()),
        stop_token_ids=tuple(values["stop_token_ids"] or ()),
        ignore_eos=values["ignore_eos"],
        include_stop_str_in_output=values["include_stop_str_in_output"],
        skip_special_tokens=values["skip_special_tokens"],
    )
