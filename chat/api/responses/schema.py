"""The fields of `POST /v1/responses`, translated into those of a chat completion and checked there.

Fields that both have, and those of the Lightcone request that shape the answer, go on as they are. What a response has no place for is
refused with the name that it has here; refusals of the chat's schema are put into the names that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from chat.api.request.constraints import GUIDED
from chat.api.request.cross_field import FOREIGN_CONSTRAINTS
from chat.api.request.fields import Array, Boolean, Integer, Object, Record, RequestField, Text, field_problems, refuse
from chat.api.request.ignored import unknown_names
from chat.api.request.refusals import sentences_renamed
from chat.api.request.schema import MAX_TOKENS, request_check
from chat.api.responses.ids import response_id_create
from chat.api.responses.items import InputReader
from chat.api.responses.messages import Origin, sent_path
from chat.api.responses.tools import OfferedTools, choice_echo, choice_read, tools_read
from chat.errors import ApiError, problems_error

LIMITS = settings.LIGHTCONE_LIMITS
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    *(
        LOGPROBS,
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
    ),
    *(
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
    ),
)
ALIKE = (
    *(
        "model",
        "stream",
        "temperature",
        "top_p",
        "metadata",
        "parallel_tool_calls",
        "user",
        "safety_identifier",
        "service_tier",
    ),
    *("prompt_cache_key", "prompt_cache_retention"),
)
FURTHER = (
    *(
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "seed",
        "stop",
        "stop_token_ids",
    ),
    *(
        "include_stop_str_in_output",
        "ignore_eos",
        "min_tokens",
        "skip_special_tokens",
        "spaces_between_special_tokens",
        "bad_words",
    ),
    *(
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "truncation_side",
        "add_special_tokens",
        "documents",
        "chat_template",
    ),
    *(
        "chat_template_kwargs",
        "mm_processor_kwargs",
        "media_io_kwargs",
        "structured_outputs",
        "priority",
        "request_id",
        "cache_salt",
    ),
    *(
        "logits_processors",
        "vllm_xargs",
        "return_tokens_as_token_ids",
        "logprob_token_ids",
        "kv_transfer_params",
        "include_reasoning",
    ),
    *("thinking_token_budget", "repetition_detection", "prediction", "web_search_options"),
)
"""Of the Lightcone request: they mean here what they mean there (docs/api/lightcone.md)."""
MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
    "function_call": "tool_choice",
    "logprobs": f"include with {LOGPROBS}",
    **{name: f"structured_outputs.{part}" for name, part in GUIDED.items()},
    **{name: instead.replace("response_format", "text.format") for name, instead in FOREIGN_CONSTRAINTS.items()},
}
FORMAT_KEYS = ("type", "name", "description", "schema", "strict")
ABSENT = (
    *(
        "n",
        "use_beam_search",
        "length_penalty",
        "prompt_logprobs",
        "echo",
        "return_token_ids",
        "return_prompt_text",
        "stream_interval",
    ),
    *("add_generation_prompt", "continue_final_message", "modalities", "audio"),
)
"""Of the Lightcone request: a response has no place for what they give."""


class Refused(RequestField):
    """A known field that this server cannot honour: any value but null is refused."""

    json_schema = {"const": None}

    def __init__(self, reason: str) -> None:
        super().__init__(help_text="Refused.")
        self.reason = reason

    def to_internal_value(self, data: Any) -> Any:
        raise refuse("unsupported_parameter", self.reason)


class Reasoning(Record):
    """`effort` is checked with the chat's field."""

    parts = {
        "effort": Text(help_text="As reasoning_effort of chat completions."),
        "summary": Text(choices=("auto",), help_text="Reasoning is returned as it is, never summarised."),
        "generate_summary": Text(choices=("auto",), help_text="Older name of summary."),
    }


class TextOptions(Record):
    parts = {
        "format": Object(help_text="text, json_object or json_schema."),
        "verbosity": Text(help_text="low, medium or high."),
    }


class StreamChoices(Record):
    parts = {"include_obfuscation": Boolean(help_text="Without effect: streams are never padded.")}


class ResponseRequest(serializers.Serializer):
    """The fields that chat completions do not have, or have in another form."""

    instructions = Text(help_text="A system message before the input; never carried over from a previous response.")
    previous_response_id = Text(
        max_chars=LIMITS.max_label_chars, is_label=True, help_text="The response that this one goes on from."
    )
    max_output_tokens = Integer(
        minimum=1, maximum=MAX_TOKENS, help_text="Limit of generated tokens, reasoning included."
    )
    max_tool_calls = Integer(
        minimum=1, help_text="Bounds calls of tools that the server runs, of which there are none."
    )
    tools = Array(
        max_items=LIMITS.max_tools,
        help_text="Functions that the model may call, and namespaces of them; others are left out and named.",
    )
    text = TextOptions(help_text="What the text must be, and how long-winded.")
    reasoning = Reasoning(help_text="How much the model thinks.")
    include = Array(Text(choices=INCLUDABLE, nullable=False).run_validation, help_text="Further output.")
    top_logprobs = Integer(
        minimum=0, maximum=LIMITS.max_logprobs, accepts_strings=False, help_text="Alternatives per token."
    )
    store = Boolean(help_text="Keep the response; absent: true.")
    background = Boolean(default=False, help_text="Answer at once, and go on without the client.")
    stream_options = StreamChoices(help_text="Only with stream: true.")
    truncation = Text(
        choices=("auto", "disabled"),
        default="disabled",
        help_text="auto: oldest items give way to the context's limit.",
    )
    conversation = Refused("is not supported: use previous_response_id, or send all items as input")
    prompt = Refused("is not supported: there are no prompt templates; send instructions and input")
    context_management = Refused("is not supported: use truncation")
    moderation = Refused("is not supported: this server moderates nothing; leave it out")


_SCHEMA = ResponseRequest()
KNOWN = frozenset((*_SCHEMA.fields, *ALIKE, *FURTHER, *ABSENT, "input", "tool_choice"))


def response_check(body: dict[str, Any]) -> dict[str, Any]:
    """Return the values of `request_check` for the chat that the body stands for. Raises ApiError in the body's names.

    Further values: `echo_fields`, what the response repeats of its request; `items`, the new ones; `given`, the values of
    this schema; `tool_paths`, the places of its functions. Messages and their origin (`names`) are known only with the
    earlier items (history.py).
    """
    _refuse_foreign(body)
    try:
        given: dict[str, Any] = _SCHEMA.run_validation(body)
    except ValidationError as error:
        raise problems_error(field_problems(error.detail)) from None
    response_id = response_id_create()
    items = _items(body, given, response_id)
    offered = tools_read(given["tools"] or ())
    try:
        values = request_check({**_chat_body(body, given, offered), "messages": [{"role": "user", "content": ""}]})
    except ApiError as error:
        raise renamed(error, (), offered.paths) from None
    values.update(names=(), tool_paths=offered.paths, items=items, given=given, messages=[])
    values["echo_fields"] = _echo_fields(body, given, values, offered, response_id)
    values["ignored"] = (*offered.ignored, *unknown_names(body, KNOWN))
    values["store"] = given["store"] is not False
    return values


def renamed(error: ApiError, origins: Sequence[Origin], tool_paths: Sequence[str]) -> ApiError:
    """The same error in the names that were sent."""
    error.param = None if error.param is None else sent_name(error.param, origins, tool_paths)
    error.message = sentences_renamed(error.message, lambda path: sent_name(path, origins, tool_paths))
    error.args = (error.message,)
    return error


def sent_name(path: str, origins: Sequence[Origin], tool_paths: Sequence[str]) -> str:
    """What the request calls the field that a chat calls `path`."""
    place = sent_path(path, origins)
    if place is not None:
        return place
    if path == "messages":
        return "input"
    path = re.sub(r"^(?:max_completion_tokens|max_tokens)$", "max_output_tokens", path)
    path = re.sub(r"^reasoning_effort$", "reasoning.effort", path)
    path = re.sub(r"^verbosity$", "text.verbosity", path)
    path = re.sub(r"^response_format(?:\.json_schema)?(?=\.|$)", "text.format", path)
    tool = re.match(r"tools\.(\d+)(?:\.function)?(?=\.|$)", path)
    if tool and int(tool[1]) < len(tool_paths):
        return tool_paths[int(tool[1])] + path[tool.end() :]
    return re.sub(r"^tool_choice(?:\.allowed_tools)?(\.tools\.\d+)?(?:\.function)?(?=\.|$)", r"tool_choice\1", path)


def _refuse_foreign(body: Mapping[str, Any]) -> None:
    """Fields of chat completions that clients bring along: silence would be a lie."""
    for name, place in MOVED.items():
        if body.get(name) is not None:
            raise ApiError("unsupported_parameter", f"{name} is not a field of responses; use {place}", name)
    for name in ABSENT:
        value = body.get(name)
        if value is not None and value is not False and not (name == "n" and value == 1):
            message = f"{name} has no effect on responses; leave it out, or use /v1/chat/completions"
            raise ApiError("unsupported_parameter", message, name)


def _items(body: Mapping[str, Any], given: Mapping[str, Any], response_id: str) -> list[dict[str, Any]]:
    if body.get("input") is None:
        if given["previous_response_id"] is None:
            raise ApiError("missing_required_parameter", "input is required: a string, or a list of items", "input")
        return []
    return InputReader(response_id).read(body["input"])


def _chat_body(body: Mapping[str, Any], given: Mapping[str, Any], offered: OfferedTools) -> dict[str, Any]:
    """The body of the chat completion, without its messages."""
    chat = {name: body[name] for name in (*ALIKE, *FURTHER) if name in body}
    reasoning, text = given["reasoning"] or {}, given["text"] or {}
    chat["max_completion_tokens"] = given["max_output_tokens"]
    chat["reasoning_effort"] = reasoning.get("effort")
    chat["verbosity"] = text.get("verbosity")
    chat["response_format"] = _response_format(text.get("format"))
    chat["tools"] = offered.functions or None
    chat["tool_choice"] = choice_read(body.get("tool_choice"))
    if given["top_logprobs"] or LOGPROBS in (given["include"] or ()) or chat.get("logprob_token_ids"):
        chat["logprobs"], chat["top_logprobs"] = True, given["top_logprobs"] or 0
    return chat


def _response_format(form: Any) -> Any:
    if form is None or form.get("type") != "json_schema":
        return form
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}


def _echo_fields(
    body: Mapping[str, Any],
    given: Mapping[str, Any],
    values: Mapping[str, Any],
    offered: OfferedTools,
    response_id: str,
) -> dict[str, Any]:
    """What the response object says of its request."""
    text, reasoning = given["text"] or {}, given["reasoning"] or {}
    form = text.get("format") or {"type": "text"}
    return {
        "id": response_id,
        "background": given["background"],
        "instructions": given["instructions"],
        "max_output_tokens": given["max_output_tokens"],
        "max_tool_calls": given["max_tool_calls"],
        "metadata": values["metadata"] or {},
        "parallel_tool_calls": values["parallel_tool_calls"],
        "previous_response_id": given["previous_response_id"],
        "prompt_cache_key": values["prompt_cache_key"],
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        "safety_identifier": values["safety_identifier"],
        "store": given["store"] is not False,
        "text": {
            "format": {name: form[name] for name in FORMAT_KEYS if name in form},
            "verbosity": text.get("verbosity") or "medium",
        },
        "tool_choice": choice_echo(body.get("tool_choice")),
        "tools": offered.echoed,
        "top_logprobs": given["top_logprobs"] or 0,
        "truncation": given["truncation"],
        "user": values["user"],
    }
