"""Translate a Scale request into the Lightcone request, and add the fields that the latter does not have.

1. Scale's own fields.  2. Messages: their forms, then the cut of `memory_strategy`.  3. The other fields, and behind
them those of `inference_extra_params`, through the checks of the Lightcone request.  4. Candidates, model names,
deadline, the text to fill in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from django.conf import settings
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import CONSTRAINT_KEYS, GUIDED, GUIDED_CONSTRAINTS
from chat.api.request.fields import bad_value, echo, field_problems
from chat.api.request.message_parts import TEXT_PARTS
from chat.api.request.parse import choices_check, request_parse, unknown_names
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.tools import is_forced, raw_choice
from chat.api.scale.fields import OWN, SHARED, own_values
from chat.api.scale.messages import has_single_part, last_messages, messages_formed
from chat.api.scale.names import EXTRA, ScaleNames, model_candidates
from chat.errors import ApiError, problems_error
from engine.api import RawPrompt, SamplingParams

logger = logging.getLogger(__name__)

P = TypeVar("P", bound=ParsedRequest)

LIMITS = settings.LIGHTCONE_LIMITS
NOT_EXTRA = ("model", "messages", "stream", "stream_options", *GUIDED)
JSON_FORMATS = ("json_object", "json_schema")
EXTRA_FIELDS = frozenset(ChatCompletionRequest().fields) - set(NOT_EXTRA)


def scale_parse(body: dict[str, Any]) -> ParsedRequest:
    """Check and translate the body of a chat completion. Raises ApiError."""
    given = {name: value for name, value in body.items() if value is not None}
    own = own_values(given, OWN)
    formed = messages_formed(own["messages"])
    places = (
        last_messages(formed, own["memory_strategy"])
        if own["memory_strategy"] is not None
        else list(range(len(formed)))
    )
    fields, names = fields_translated(given, own, shared=SHARED, extra_fields=EXTRA_FIELDS)
    names = replace(
        names,
        places=tuple(places),
        single_parts=frozenset(place for place in places if has_single_part(own["messages"][place])),
    )
    translated = {**fields, "messages": [formed[place] for place in places]}
    parsed = with_own(checked(request_parse, translated, names), own, names)
    if own["suffix"]:
        adds_special = fields.get("add_special_tokens") is None or parsed.generation.prompt.add_special_tokens
        prompt = replace(parsed.generation.prompt, add_special_tokens=adds_special)
        raw = raw_prompt(parsed, own["suffix"], fields)
        parsed = replace(parsed, generation=replace(parsed.generation, raw=raw, prompt=prompt))
    ignored = ignored_names(given, own, known={*OWN, *SHARED}, extra_fields=EXTRA_FIELDS)
    return replace(parsed, delivery=replace(parsed.delivery, ignored=ignored))


def with_own(parsed: P, own: Mapping[str, Any], names: ScaleNames, *, must_fit: bool = True) -> P:
    """Add the fields that the Lightcone request does not have. Raises ApiError.

    `must_fit`: prompt and token limit must fit into the context together.
    """
    generation = parsed.generation
    return replace(
        parsed,
        model_names=model_candidates(own["model"]),
        generation=replace(
            generation, best_of=best_of_read(own["best_of"], parsed), stop=replace(generation.stop, must_fit=must_fit)
        ),
        delivery=replace(parsed.delivery, timeout_s=own["inference_timeout"]),
        field_names=replace(names, inner=parsed.field_names),
    )


def fields_translated(
    given: Mapping[str, Any], own: Mapping[str, Any], *, shared: Collection[str], extra_fields: Collection[str]
) -> tuple[dict[str, Any], ScaleNames]:
    """Return all fields but the prompt as the Lightcone request has them. Raises ApiError.

    Those in `shared` mean the same there; those in `extra_fields` may come in `inference_extra_params`.
    """
    top = {name: given[name] for name in ("model", "stop", *shared) if name in given}
    extra = _extra(own["inference_extra_params"] or {}, top, extra_fields)
    if own["inference_extra_headers"]:
        logger.debug(
            "a request names %d headers for a server behind this one, which there is not",
            len(own["inference_extra_headers"]),
        )
    fields = {**extra, **top}
    if "tools" in fields:
        fields["tools"] = _tools(fields["tools"])
    guided = _guided(given, fields)
    if guided:
        sent = fields.get("structured_outputs")
        if not isinstance(sent, dict | None):
            path = f"{EXTRA}.structured_outputs"
            raise ApiError("invalid_type", f"{path} must be an object", path)
        fields["structured_outputs"] = {**(sent or {}), **{part: given[name] for part, name in guided.items()}}
    return fields, ScaleNames(extra=frozenset(extra), guided=guided)


def ignored_names(
    given: Mapping[str, Any], own: Mapping[str, Any], *, known: Collection[str], extra_fields: Collection[str]
) -> tuple[str, ...]:
    """Return the ignored fields of a body and of its `inference_extra_params`."""
    return unknown_names(given, known) + unknown_names(own["inference_extra_params"] or {}, extra_fields, f"{EXTRA}.")


def checked(parse: Callable[[dict[str, Any]], P], fields: dict[str, Any], names: ScaleNames) -> P:
    """Return `parse(fields)`. Raises ApiError in the client's names."""
    try:
        return parse(fields)
    except ApiError as error:
        error.rename_fields(names)
        raise


def _extra(sent: Mapping[str, Any], top: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the fields of `inference_extra_params` that have an effect."""
    extra = {name: value for name, value in sent.items() if value is not None and name in known and name not in top}
    if "stop" in extra:
        try:
            OWN["stop"].run_validation(extra["stop"])
        except ValidationError as error:
            raise problems_error(field_problems(error.detail, f"{EXTRA}.stop")) from None
    return extra


def _tools(tools: Any) -> Any:
    """Return the tools as functions: every tool with a function is one, whatever its type is called."""
    if not isinstance(tools, list):
        return tools
    return [
        {**tool, "type": "function"} if isinstance(tool, dict) and isinstance(tool.get("type"), str) else tool
        for tool in tools
    ]


def _guided(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of `structured_outputs` with the fields that they came in.

    Raises ApiError for two constraints.
    """
    guided = {GUIDED[name]: name for name in GUIDED_CONSTRAINTS if name in given}
    structured = fields.get("structured_outputs")
    structured = structured if isinstance(structured, dict) else {}
    constraints = list(guided.values())
    response_format = fields.get("response_format")
    format_type = response_format.get("type") if isinstance(response_format, dict) else None
    if format_type not in (None, "text"):
        constraints.append("response_format")
    extra = [part for part in CONSTRAINT_KEYS if structured.get(part) is not None]
    constraints += [f"{EXTRA}.structured_outputs.{part}" for part in extra]
    if len(constraints) > 1:
        message = (
            f"You can only use one kind of guided decoding but multiple are specified: {', '.join(constraints)}; "
            "send one of them"
        )
        raise ApiError("invalid_value", message, constraints[0])
    is_json = (
        "json" in guided
        or format_type in JSON_FORMATS
        or {"json", "json_object"} & set(extra)
        or is_forced(raw_choice(fields))
    )
    if "guided_whitespace_pattern" in given and is_json:
        guided["whitespace_pattern"] = "guided_whitespace_pattern"
    return guided


def best_of_read(best_of: int | None, parsed: ParsedRequest) -> int | None:
    """Return the number of candidates, None for one. Raises ApiError if other fields do not allow it."""
    generation = parsed.generation
    num_choices, limit = generation.num_choices, generation.stop.max_tokens
    if best_of is None or best_of == num_choices == 1:
        return None
    problem = ""
    if best_of < num_choices:
        problem = f"must be at least n, {num_choices}; got {best_of}"
    elif parsed.response.stream:
        problem = f"must be 1 or absent when stream is true, got {best_of}. Results cannot be streamed"
    elif generation.beam is not None:
        problem = f"must be 1 or absent with use_beam_search, which finds the n best by itself; got {best_of}"
    elif limit is not None and limit * best_of > LIMITS.max_choice_tokens:
        problem = f"times the token limit must be at most {LIMITS.max_choice_tokens}, got {best_of} x {limit}"
    if problem:
        raise bad_value("best_of", problem)
    if generation.draw.temperature is not None:
        sampling = SamplingParams(temperature=generation.draw.temperature)
        choices_check(replace(generation, best_of=best_of), sampling)
    return best_of


def raw_prompt(parsed: ParsedRequest, suffix: str, fields: Mapping[str, Any]) -> RawPrompt:
    """Return the prompt to fill in; the engine checks whether the model can. `fields` are as sent. Raises ApiError."""
    generation, prompt = parsed.generation, parsed.generation.prompt
    for_templates = {
        "tools": generation.tools,
        "chat_template": prompt.chat_template,
        "chat_template_kwargs": fields.get("chat_template_kwargs"),
        "documents": prompt.documents,
        "continue_final_message": prompt.continue_final_message,
        "echo": parsed.response.echo,
    }
    for name, is_used in for_templates.items():
        if is_used:
            problem = f"cannot be combined with {parsed.field_names(name)}, as no chat template is used then"
            raise bad_value("suffix", f"{problem}; leave one of them out")
    messages = parsed.messages
    users = [
        place for place, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "user"
    ]
    if not users:
        raise bad_value("messages", "must hold a message of the user with suffix: the answer goes between the two")
    path = parsed.field_names(f"messages.{users[-1]}.content")
    return RawPrompt(text=_text(messages[users[-1]].get("content"), path), suffix=suffix, param="messages")


def _text(content: Any, path: str) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        is_text = isinstance(part, dict) and part.get("type") in TEXT_PARTS
        text = part.get("text") if is_text else part
        if not isinstance(text, str):
            raise bad_value(path, f"must be text alone with suffix, got {echo(part)}")
        texts.append(text)
    return "".join(texts)
