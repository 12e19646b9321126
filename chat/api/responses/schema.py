"""Check the fields of `POST /v1/responses` and translate them into those of a chat completion.

Fields that both have go on as they are. One that a response has no place for is refused by the name that it has here.
Errors of the chat's schema get the names that were sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from rest_framework import serializers

from chat.api.request.constraints import GUIDED
from chat.api.request.cross_field import FOREIGN_CONSTRAINTS
from chat.api.request.fields import Array, Boolean, Integer, Object, Record, RequestField, Text, refuse
from chat.api.request.parse import fields_read, request_parse, unknown_names
from chat.api.request.parsed import ParsedRequest
from chat.api.request.schema import MAX_TOKENS
from chat.api.responses.ids import response_id_create
from chat.api.responses.items import InputReader
from chat.api.responses.messages import Item, Origin, sent_path
from chat.api.responses.tools import OfferedTools, choice_echo, choice_read, tools_read
from chat.errors import ApiError

LIMITS = settings.LIGHTCONE_LIMITS
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    LOGPROBS,
    *"""
    reasoning.encrypted_content message.input_image.image_url computer_call_output.output.image_url
    file_search_call.results web_search_call.results web_search_call.action.sources code_interpreter_call.outputs
    """.split(),
)
ALIKE = tuple(
    """
    model stream temperature top_p metadata parallel_tool_calls user safety_identifier service_tier
    prompt_cache_key prompt_cache_retention
    """.split()
)
FURTHER = tuple(
    """
    top_k min_p presence_penalty frequency_penalty repetition_penalty logit_bias seed stop stop_token_ids
    include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
    bad_words allowed_token_ids truncate_prompt_tokens truncation_side add_special_tokens documents
    chat_template chat_template_kwargs mm_processor_kwargs media_io_kwargs structured_outputs priority
    request_id cache_salt logits_processors vllm_xargs return_tokens_as_token_ids logprob_token_ids
    kv_transfer_params include_reasoning thinking_token_budget repetition_detection prediction
    web_search_options
    """.split()
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
RENAMED = {
    name: MOVED[name] for name in ("messages", "max_completion_tokens", "max_tokens", "reasoning_effort", "verbosity")
}
"""From whole paths of the one request schema to those that a response has."""
FORMAT_KEYS = ("type", "name", "description", "schema", "strict")
ABSENT = tuple(
    """
    n use_beam_search length_penalty prompt_logprobs echo return_token_ids return_prompt_text
    stream_interval add_generation_prompt continue_final_message modalities audio
    """.split()
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
        "effort": Text("As reasoning_effort of chat completions."),
        "summary": Text("Reasoning is returned as it is, never summarised.", choices=("auto",)),
        "generate_summary": Text("Older name of summary.", choices=("auto",)),
    }


class TextOptions(Record):
    parts = {
        "format": Object("text, json_object or json_schema."),
        "verbosity": Text("low, medium or high."),
    }


class StreamChoices(Record):
    parts = {"include_obfuscation": Boolean("Without effect: streams are never padded.")}


class ResponseRequest(serializers.Serializer):
    """The fields that chat completions do not have, or have in another form."""

    instructions = Text("A system message before the input; never carried over from a previous response.")
    previous_response_id = Text(
        "The response that this one goes on from.", max_chars=LIMITS.max_label_chars, is_label=True
    )
    max_output_tokens = Integer("Limit of generated tokens, reasoning included.", minimum=1, maximum=MAX_TOKENS)
    max_tool_calls = Integer("Bounds calls of tools that the server runs, of which there are none.", minimum=1)
    tools = Array(
        max_items=LIMITS.max_tools,
        help_text="Functions that the model may call, and namespaces of them; others are left out and named.",
    )
    text = TextOptions("What the text must be, and how long-winded.")
    reasoning = Reasoning("How much the model thinks.")
    include = Array(Text(choices=INCLUDABLE, nullable=False).run_validation, help_text="Further output.")
    top_logprobs = Integer("Alternatives per token.", minimum=0, maximum=LIMITS.max_logprobs, accepts_strings=False)
    store = Boolean("Keep the response; absent: true.")
    background = Boolean("Answer at once, and go on without the client.", default=False)
    stream_options = StreamChoices("Only with stream: true.")
    truncation = Text(
        "auto: oldest items give way to the context's limit.", choices=("auto", "disabled"), default="disabled"
    )
    conversation = Refused("is not supported: use previous_response_id, or send all items as input")
    prompt = Refused("is not supported: there are no prompt templates; send instructions and input")
    context_management = Refused("is not supported: use truncation")
    moderation = Refused("is not supported: this server moderates nothing; leave it out")


_SCHEMA = ResponseRequest()
KNOWN = frozenset((*_SCHEMA.fields, *ALIKE, *FURTHER, *ABSENT, "input", "tool_choice"))


@dataclass(slots=True)
class ResponseNames:
    """The names that a request used. Call it with a path of the one request schema."""

    tool_paths: Sequence[str]
    origins: Sequence[Origin] = ()
    """The origin of each message. It is known only with the earlier items (history.py)."""

    def __call__(self, path: str) -> str:
        place = sent_path(path, self.origins)
        if place is not None:
            return place
        first, *steps = path.split(".")
        if path in RENAMED:
            return RENAMED[path]
        if first == "response_format":
            return ".".join(("text.format", *(steps[1:] if steps[:1] == ["json_schema"] else steps)))
        if first == "tools" and steps and steps[0].isdecimal() and int(steps[0]) < len(self.tool_paths):
            inner = steps[2:] if steps[1:2] == ["function"] else steps[1:]
            return ".".join((self.tool_paths[int(steps[0])], *inner))
        if first == "tool_choice":
            return ".".join((first, *(step for step in steps if step not in ("allowed_tools", "function"))))
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedResponse(ParsedRequest):
    """A checked request of the Responses API. Its messages are known only with the earlier items (history.py)."""

    items: Sequence[Item]
    """The new ones; with `with_history` those before them too."""
    instructions: str | None
    previous_response_id: str | None
    is_background: bool
    insists_on_store: bool | None
    """`store` as it was sent."""
    truncates: bool
    names: ResponseNames

    def with_messages(self, messages: Sequence[Any], origins: Sequence[Origin]) -> ParsedResponse:
        """Return the request with these messages; `names` learns where they came from."""
        self.names.origins = origins
        return replace(self, messages=messages)


def response_parse(body: dict[str, Any]) -> ParsedResponse:
    """Check and translate the body of a response. Raises ApiError."""
    _refuse_foreign(body)
    given = fields_read(_SCHEMA, body)
    response_id = response_id_create()
    items = _items(body, given, response_id)
    offered = tools_read(given["tools"] or ())
    names = ResponseNames(offered.paths)
    try:
        parsed = request_parse({**_chat_body(body, given, offered), "messages": [{"role": "user", "content": ""}]})
    except ApiError as error:
        error.rename_fields(names)
        raise
    echo_fields = _echo_fields(body, given, parsed, offered, response_id)
    ignored = (*offered.ignored, *unknown_names(body, KNOWN))
    return ParsedResponse.extending(
        parsed,
        messages=(),
        response=replace(parsed.response, echo_fields=echo_fields),
        delivery=replace(parsed.delivery, ignored=ignored, store=given["store"] is not False),
        field_names=names,
        items=items,
        instructions=given["instructions"],
        previous_response_id=given["previous_response_id"],
        is_background=given["background"],
        insists_on_store=given["store"],
        truncates=given["truncation"] == "auto",
        names=names,
    )


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
    parsed: ParsedRequest,
    offered: OfferedTools,
    response_id: str,
) -> dict[str, Any]:
    delivery = parsed.delivery
    text, reasoning = given["text"] or {}, given["reasoning"] or {}
    form = text.get("format") or {"type": "text"}
    return {
        "id": response_id,
        "background": given["background"],
        "instructions": given["instructions"],
        "max_output_tokens": given["max_output_tokens"],
        "max_tool_calls": given["max_tool_calls"],
        "metadata": delivery.metadata,
        "parallel_tool_calls": parsed.response.parallel_tool_calls,
        "previous_response_id": given["previous_response_id"],
        "prompt_cache_key": delivery.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        "safety_identifier": delivery.safety_identifier,
        "store": given["store"] is not False,
        "text": {
            "format": {name: form[name] for name in FORMAT_KEYS if name in form},
            "verbosity": text.get("verbosity") or "medium",
        },
        "tool_choice": choice_echo(body.get("tool_choice")),
        "tools": offered.echoed,
        "top_logprobs": given["top_logprobs"] or 0,
        "truncation": given["truncation"],
        "user": delivery.user,
    }
