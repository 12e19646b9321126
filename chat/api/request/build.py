"""The last step of every dialect: checked values and a known model become the engine's request. For answering/starting.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings

from chat.access.keys import Caller
from chat.api.request.gates import gates_check
from chat.api.request.messages import messages_walk
from chat.api.request.schema import choices_check
from chat.catalog.generation_defaults import sampling_defaults_effective
from chat.errors import ApiError
from chat.relay.state.run_id import run_id_create
from engine.api import BeamOptions, GenerationRequest, Json, LogprobOptions, PromptOptions, SamplingParams, StopRules

LOWEST_TEMPERATURE = 0.01


class MessagesRefused(ApiError):
    """The messages are at fault. `request` is all the rest: the limits of the key and the state of the model answer before them."""

    def __init__(self, error: ApiError, request: GenerationRequest) -> None:
        super().__init__(error.code, error.message, error.param)
        self.request = request


def generation_request(
    values: dict[str, Any],
    *,
    model: str,
    sampling_defaults: Mapping[str, Any],
    caller: Caller,
    arrived_at: float | None = None,
) -> GenerationRequest:
    """Build the request of `model` (its served name) from the values of `schema.request_check`.

    `sampling_defaults` are the model's own values for fields that the request leaves out. `values["service_tier"]` becomes the tier used,
    None for who sent none. Raises ApiError for what the caller may not ask for, MessagesRefused for whatever is wrong with the messages.
    """
    limits = settings.LIGHTCONE_LIMITS
    arrived_at = time.time() if arrived_at is None else arrived_at
    placement = gates_check(values, model=model, caller=caller)
    values["service_tier"] = placement.tier
    budget = values["thinking_token_budget"]
    request = GenerationRequest(
        run_id=run_id_create(),
        model=model,
        messages=(),
        arrived_at=arrived_at,
        sampling=_sampling(values, sampling_defaults),
        stop=_stop(values, sampling_defaults),
        logprobs=_logprobs(values),
        prompt=_prompt(values),
        tools=values["tools"],
        tool_choice=values["tool_choice"],
        constraint=values["constraint"],
        num_choices=values["n"],
        best_of=values["best_of"],
        beam=BeamOptions(values["length_penalty"]) if values["use_beam_search"] else None,
        prediction=values["prediction"],
        thinking_token_budget=None if budget == -1 else budget,
        priority=placement.priority,
        tenant=caller.tenant,
        cache_salt=values["cache_salt"] or "",
        group=values["prompt_cache_key"] or "",
        deadline_at=arrived_at + min(limits.request_timeout, values["timeout_s"] or limits.request_timeout),
        task=values["task"],
        raw=values["raw"],
        embed=values["embed"],
    )
    if request.raw is not None and not values["messages"]:
        return request
    try:
        messages = messages_walk(values["messages"], model=model, max_parts=limits.max_parts)
    except ApiError as error:
        raise MessagesRefused(error, request) from None
    return replace(request, messages=messages) if request.raw is None else request


def _sampling(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> SamplingParams:
    used = sampling_defaults_effective(defaults)

    def chosen(name: str) -> Any:
        return used[name] if values[name] is None else values[name]

    seed, allowed = values["seed"], values["allowed_token_ids"]
    sampling = SamplingParams(
        temperature=float(chosen("temperature")),
        top_k=max(0, int(chosen("top_k"))),
        top_p=float(chosen("top_p")),
        min_p=float(chosen("min_p")),
        presence_penalty=float(chosen("presence_penalty")),
        frequency_penalty=float(chosen("frequency_penalty")),
        repetition_penalty=float(chosen("repetition_penalty")),
        seed=None if seed == -1 else seed,
        logit_bias=values["logit_bias"] or (),
        allowed_token_ids=tuple(allowed) if allowed is not None else None,
        bad_words=tuple(values["bad_words"] or ()),
        processors=tuple(values["logits_processors"] or ()),
        processor_args=values["vllm_xargs"] or {},
    )
    choices_check(values, sampling)
    if not sampling.is_greedy and sampling.temperature < LOWEST_TEMPERATURE:
        sampling = replace(sampling, temperature=LOWEST_TEMPERATURE)
    return sampling


def _stop(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> StopRules:
    """An absent token limit is the model's own, at most that of a choice, and such that all choices stay within `max_choice_tokens`."""
    limits = settings.LIGHTCONE_LIMITS
    most = max(1, limits.max_choice_tokens // max(values["n"], values["best_of"] or 0))
    most = min(most, defaults.get("max_completion_tokens") or most)
    return StopRules(
        max_tokens=values["max_completion_tokens"]
        if values["max_completion_tokens"] is not None
        else values["max_tokens"],
        absent_max_tokens=min(most, limits.max_output_tokens or most),
        must_fit=values["must_fit"],
        min_tokens=values["min_tokens"],
        stop=tuple(values["stop"] or ()),
        stop_token_ids=tuple(values["stop_token_ids"] or ()),
        ignore_eos=values["ignore_eos"],
        include_stop_str_in_output=values["include_stop_str_in_output"],
        skip_special_tokens=values["skip_special_tokens"],
        spaces_between_special_tokens=values["spaces_between_special_tokens"],
        repetition=values["repetition_detection"],
    )


def _logprobs(values: Mapping[str, Any]) -> LogprobOptions:
    return LogprobOptions(
        enabled=values["logprobs"],
        top=values["top_logprobs"],
        token_ids=tuple(values["logprob_token_ids"] or ()),
        prompt=values["prompt_logprobs"],
        max_all=settings.LIGHTCONE_LIMITS.max_logprobs,
    )


def _prompt(values: Mapping[str, Any]) -> PromptOptions:
    return PromptOptions(
        add_generation_prompt=values["add_generation_prompt"],
        add_special_tokens=values["add_special_tokens"],
        continue_final_message=values["continue_final_message"],
        chat_template=values["chat_template"],
        template_kwargs=_template_variables(values),
        documents=tuple(values["documents"] or ()),
        truncate_to=values["truncate_prompt_tokens"],
        truncation_side=values["truncation_side"],
        returns_ids=values["return_token_ids"],
        returns_text=values["return_prompt_text"],
        returns_tokens=values["returns_tokens"],
    )


def _template_variables(values: Mapping[str, Any]) -> dict[str, Json]:
    """What the caller sets by name goes before what other fields imply."""
    variables: dict[str, Json] = {}
    if values["verbosity"] is not None:
        variables["verbosity"] = values["verbosity"]
    if values["reasoning_effort"] is not None:
        variables["reasoning_effort"] = values["reasoning_effort"]
        variables["enable_thinking"] = values["reasoning_effort"] != "none"
    return variables | (values["chat_template_kwargs"] or {})
