"""A Scale request in the words of the Lightcone request, with what that has no field for.

1. Scale's own fields.  2. Messages: their forms, then the cut of `memory_strategy`.  3. The other fields, and behind them those of
`inference_extra_params`, through the checks of the Lightcone request.  4. Candidates, model names, deadline, the text to fill in.

Whatever is refused, here or later, is named as it was sent (names.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import CONSTRAINT_KEYS, GUIDED, GUIDED_CONSTRAINTS
from chat.api.request.fields import field_problems
from chat.api.request.ignored import unknown_names
from chat.api.request.refusals import sentences_renamed
from chat.api.request.schema import ChatCompletionRequest, choices_check, request_check
from chat.api.request.tools import is_forced, raw_choice
from chat.api.scale.fields import OWN, SHARED, own_values
from chat.api.scale.memory import last_messages
from chat.api.scale.message_forms import has_single_part, messages_formed
from chat.api.scale.model_names import model_candidates
from chat.api.scale.names import EXTRA, SentNames
from chat.api.scale.suffix import raw_prompt
from chat.errors import ApiError, problems_error
from engine.api import SamplingParams

logger = logging.getLogger(__name__)

LIMITS = settings.LIGHTCONE_LIMITS
NOT_EXTRA = ("model", "messages", "stream", "stream_options", *GUIDED)
JSON_FORMATS = ("json_object", "json_schema")
EXTRA_FIELDS = frozenset(ChatCompletionRequest().fields) - set(NOT_EXTRA)


def scale_values(body: dict[str, Any]) -> dict[str, Any]:
    """The values of `schema.request_check` of a Scale body; raises ApiError."""
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
    values = values_checked(request_check, {**fields, "messages": [formed[place] for place in places]}, names)
    values["best_of"] = best_of_read(own["best_of"], values)
    if own["suffix"]:
        values["raw"] = raw_prompt(values, own["suffix"], names)
        values["add_special_tokens"] = fields.get("add_special_tokens") is None or values["add_special_tokens"]
    ignored = ignored_names(given, own, known={*OWN, *SHARED}, extra_fields=EXTRA_FIELDS)
    return {
        **values,
        "ignored": ignored,
        "model_names": model_candidates(own["model"]),
        "timeout_s": own["inference_timeout"],
    }


def fields_translated(
    given: Mapping[str, Any], own: Mapping[str, Any], *, shared: Collection[str], extra_fields: Collection[str]
) -> tuple[dict[str, Any], SentNames]:
    """All fields but the prompt as the Lightcone request has them; raises ApiError.

    `shared` mean the same there, `extra_fields` may come in `inference_extra_params`.
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
            raise ApiError(
                "invalid_type", f"{EXTRA}.structured_outputs must be an object", f"{EXTRA}.structured_outputs"
            )
        fields["structured_outputs"] = {**(sent or {}), **{part: given[name] for part, name in guided.items()}}
    return fields, SentNames(extra=frozenset(extra), guided=guided)


def ignored_names(
    given: Mapping[str, Any], own: Mapping[str, Any], *, known: Collection[str], extra_fields: Collection[str]
) -> tuple[str, ...]:
    """What was passed over of a body, and of its `inference_extra_params`."""
    return unknown_names(given, known) + unknown_names(own["inference_extra_params"] or {}, extra_fields, f"{EXTRA}.")


def values_checked(
    check: Callable[[dict[str, Any]], dict[str, Any]], fields: dict[str, Any], names: SentNames
) -> dict[str, Any]:
    """`check`, whose refusals name what was sent; prompt and token limit must fit into the context together."""
    try:
        values = check(fields)
    except ApiError as error:
        param = names.sent(error.param) if error.param is not None else None
        raise ApiError(error.code, sentences_renamed(error.message, names.sent), param) from None
    return {**values, "must_fit": True, "names": names}


def _extra(sent: Mapping[str, Any], top: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """What counts of `inference_extra_params`."""
    extra = {name: value for name, value in sent.items() if value is not None and name in known and name not in top}
    if "stop" in extra:
        try:
            OWN["stop"].run_validation(extra["stop"])
        except ValidationError as error:
            raise problems_error(field_problems(error.detail, f"{EXTRA}.stop")) from None
    return extra


def _tools(tools: Any) -> Any:
    """Every tool with a function is one, whatever its type is called."""
    if not isinstance(tools, list):
        return tools
    return [
        {**tool, "type": "function"} if isinstance(tool, dict) and isinstance(tool.get("type"), str) else tool
        for tool in tools
    ]


def _guided(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, str]:
    """Parts of `structured_outputs` that stand in fields of their own, and in which; raises ApiError for more than one constraint."""
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
        message = f"You can only use one kind of guided decoding but multiple are specified: {', '.join(constraints)}; send one of them"
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


def best_of_read(best_of: int | None, values: Mapping[str, Any]) -> int | None:
    """How many candidates there are to be, None where that is all of one; raises ApiError where other fields do not allow it."""
    if best_of is None or best_of == values["n"] == 1:
        return None
    limit = values["max_completion_tokens"] if values["max_completion_tokens"] is not None else values["max_tokens"]
    problem = ""
    if best_of < values["n"]:
        problem = f"must be at least n, {values['n']}; got {best_of}"
    elif values["stream"]:
        problem = f"must be 1 or absent when stream is true, got {best_of}. Results cannot be streamed"
    elif values["use_beam_search"]:
        problem = f"must be 1 or absent with use_beam_search, which finds the n best by itself; got {best_of}"
    elif limit is not None and limit * best_of > LIMITS.max_choice_tokens:
        problem = f"times the token limit must be at most {LIMITS.max_choice_tokens}, got {best_of} x {limit}"
    if problem:
        raise ApiError("invalid_value", f"best_of {problem}", "best_of")
    if values["temperature"] is not None:
        choices_check({**values, "best_of": best_of}, SamplingParams(temperature=values["temperature"]))
    return best_of
