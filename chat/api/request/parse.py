"""Make a `ParsedRequest` of the body of a chat completion; what other routes share of that.

1. Rules between fields (cross_field.py).  2. Each field for itself (schema.py).  3. The typed request.  4. Rules that
need several coerced values.  The model, the key's rights and the messages come later (build.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import constraint_of, constraint_options, guided_places, with_guided
from chat.api.request.cross_field import cross_field_check, foreign_check
from chat.api.request.fields import bad_value, field_problems
from chat.api.request.parsed import DeliveryOptions, DrawFields, GenerationParams, ParsedRequest, ResponseOptions
from chat.api.request.schema import CHAT_SCHEMA, LIMITS
from chat.api.request.tools import is_forced
from chat.errors import problems_error
from engine.api import (
    BeamOptions,
    Json,
    LogprobOptions,
    PromptOptions,
    SamplingParams,
    StopRules,
    ToolChoice,
    ToolMode,
)

DRAW_NAMES = tuple(DrawFields.__dataclass_fields__)
MEDIA_OPTIONS = ("mm_processor_kwargs", "media_io_kwargs")
MAX_NAMES = 512
"""More than a header line can hold, so that a line which leaves some out always says so."""


def request_parse(body: Mapping[str, Any]) -> ParsedRequest:
    """Check the body of a chat completion. Raises ApiError that names the first problem's field."""
    cross_field_check(body)
    foreign_check(body)
    values = fields_read(CHAT_SCHEMA, body)
    parsed = values_parse(values, ignored=unknown_names(body, CHAT_SCHEMA.fields))
    together_check(parsed)
    return parsed


def fields_read(schema: serializers.Serializer, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every field of `schema`. Raises ApiError that names the first problem's field."""
    try:
        return dict(schema.run_validation(body))
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None


def unknown_names(body: Mapping[str, Any], known: Container[str], prefix: str = "") -> tuple[str, ...]:
    """Return the unknown fields of a body, in order, at most `MAX_NAMES`. Null counts as absent."""
    names = (prefix + name for name, value in body.items() if name not in known and value is not None)
    return tuple(islice(names, MAX_NAMES))


def values_parse(given: Mapping[str, Any], *, ignored: tuple[str, ...] = ()) -> ParsedRequest:
    """Make the typed request from the coerced values of fields. A field that is not given counts as absent."""
    values = {**CHAT_SCHEMA.absent, **given}
    values["structured_outputs"] = with_guided(values)
    tool_choice = _tool_choice(values)
    constraint = None
    if not is_forced(tool_choice):
        constraint = constraint_of(values["structured_outputs"], values["response_format"], guided_places(values))
    newer_limit = values["max_completion_tokens"]
    budget, seed, allowed = values["thinking_token_budget"], values["seed"], values["allowed_token_ids"]
    stream_options = values["stream_options"] or {}
    return ParsedRequest(
        model=values["model"],
        messages=values["messages"] or (),
        generation=GenerationParams(
            draw=DrawFields(*(values[name] for name in DRAW_NAMES)),
            sampling=SamplingParams(
                seed=None if seed == -1 else seed,
                logit_bias=values["logit_bias"] or (),
                allowed_token_ids=tuple(allowed) if allowed is not None else None,
                bad_words=tuple(values["bad_words"] or ()),
                processors=tuple(values["logits_processors"] or ()),
                processor_args=values["vllm_xargs"] or {},
            ),
            stop=StopRules(
                max_tokens=values["max_tokens"] if newer_limit is None else newer_limit,
                min_tokens=values["min_tokens"],
                stop=tuple(values["stop"] or ()),
                stop_token_ids=tuple(values["stop_token_ids"] or ()),
                ignore_eos=values["ignore_eos"],
                include_stop_str_in_output=values["include_stop_str_in_output"],
                skip_special_tokens=values["skip_special_tokens"],
                spaces_between_special_tokens=values["spaces_between_special_tokens"],
                repetition=values["repetition_detection"],
            ),
            logprobs=LogprobOptions(
                enabled=values["logprobs"],
                top=values["top_logprobs"],
                token_ids=tuple(values["logprob_token_ids"] or ()),
                prompt=values["prompt_logprobs"],
                max_all=LIMITS.max_logprobs,
            ),
            prompt=PromptOptions(
                add_generation_prompt=values["add_generation_prompt"] and not values["continue_final_message"],
                add_special_tokens=values["add_special_tokens"],
                continue_final_message=values["continue_final_message"],
                chat_template=values["chat_template"],
                template_kwargs=_template_variables(values),
                documents=tuple(values["documents"] or ()),
                truncate_to=values["truncate_prompt_tokens"],
                truncation_side=values["truncation_side"],
                returns_ids=bool(values["return_token_ids"]),
                returns_text=bool(values["return_prompt_text"]),
            ),
            tools=tuple(values["tools"] or values["functions"] or ()),
            tool_choice=tool_choice,
            constraint=constraint,
            num_choices=values["n"],
            beam=BeamOptions(values["length_penalty"]) if values["use_beam_search"] else None,
            prediction=values["prediction"],
            thinking_token_budget=None if budget == -1 else budget,
            cache_salt=values["cache_salt"] or "",
            group=values["prompt_cache_key"] or "",
            kv_transfer_params=values["kv_transfer_params"],
            media_options={name: values[name] for name in MEDIA_OPTIONS if values[name]},
        ),
        response=ResponseOptions(
            stream=bool(values["stream"]),
            include_usage=bool(stream_options.get("include_usage")),
            continuous_usage=bool(stream_options.get("continuous_usage_stats")),
            stream_interval=values["stream_interval"] or 1,
            echo=bool(values["echo"]),
            includes_reasoning=values["include_reasoning"] is not False,
            names_tokens_by_id=bool(values["return_tokens_as_token_ids"]),
            answers_function_call=bool(values["functions"]),
            parallel_tool_calls=values["parallel_tool_calls"],
        ),
        delivery=DeliveryOptions(
            priority=values["priority"],
            service_tier=values["service_tier"],
            request_id=values["request_id"],
            user=values["user"],
            safety_identifier=values["safety_identifier"],
            metadata=values["metadata"] or {},
            prompt_cache_key=values["prompt_cache_key"],
            store=values["store"],
            ignored=ignored,
        ),
        field_names=ChatNames(newer_limit is not None, bool(values["functions"])),
    )


@dataclass(frozen=True, slots=True)
class ChatNames:
    """The field names of a chat completion: the token limit and the tools have a newer and an older name."""

    has_newer_limit: bool = False
    has_functions: bool = False

    def __call__(self, path: str) -> str:
        if self.has_newer_limit and path == "max_tokens":
            return "max_completion_tokens"
        if self.has_functions and path == "tool_choice":
            return "function_call"
        first, *steps = path.split(".")
        if self.has_functions and first == "tools":
            return ".".join(("functions", *steps[:1], *(steps[2:] if steps[1:2] == ["function"] else steps[1:])))
        return path


def _tool_choice(values: Mapping[str, Any]) -> ToolChoice:
    if not (values["tools"] or values["functions"]):
        return ToolChoice()
    chosen = values["tool_choice"] or values["function_call"] or ToolChoice(ToolMode.AUTO)
    is_parallel = values["parallel_tool_calls"] and not values["functions"]
    return replace(chosen, is_parallel=is_parallel, **constraint_options(values["structured_outputs"]))


def _template_variables(values: Mapping[str, Any]) -> dict[str, Json]:
    """Return the template's variables. Those that the caller sets by name win over those that other fields imply."""
    variables: dict[str, Json] = {}
    if values["verbosity"] is not None:
        variables["verbosity"] = values["verbosity"]
    if values["reasoning_effort"] is not None:
        variables["reasoning_effort"] = values["reasoning_effort"]
        variables["enable_thinking"] = values["reasoning_effort"] != "none"
    return variables | (values["chat_template_kwargs"] or {})


def together_check(parsed: ParsedRequest) -> None:
    """Check rules between coerced values, in the order of the fields that they name. Raises ApiError."""
    generation = parsed.generation
    limit, num_choices = generation.stop.max_tokens, generation.num_choices
    if limit is not None and limit * num_choices > LIMITS.max_choice_tokens:
        message = f"times the token limit must be at most {LIMITS.max_choice_tokens}, got {num_choices} x {limit}"
        raise bad_value("n", message)
    if generation.draw.temperature is not None:
        choices_check(generation, SamplingParams(temperature=generation.draw.temperature))
    if generation.beam is not None:
        _check_beam_search(generation)
    if limit is not None and generation.stop.min_tokens > limit:
        raise bad_value("min_tokens", f"must be at most the token limit {limit}, got {generation.stop.min_tokens}")


def _check_beam_search(generation: GenerationParams) -> None:
    choice = generation.tool_choice
    others = {
        "a constraint (structured_outputs, response_format)": generation.constraint,
        "a tool_choice that forces a call": is_forced(choice),
        "strict tools": choice.mode == ToolMode.AUTO and any(tool.is_strict for tool in generation.tools),
        "logprob_token_ids": generation.logprobs.token_ids,
    }
    for other, is_used in others.items():
        if is_used:
            raise bad_value("use_beam_search", f"cannot be combined with {other}; leave one of them out")


def choices_check(generation: GenerationParams, sampling: SamplingParams) -> None:
    """Refuse several answers without a draw or beams. Called again once the model's defaults are known."""
    num_choices, name = max((generation.num_choices, "n"), (generation.best_of or 0, "best_of"))
    if num_choices > 1 and sampling.is_greedy and generation.beam is None:
        message = "must be 1 when temperature is 0, as all answers would be equal; use_beam_search gives different ones"
        raise bad_value(name, message)
