"""The request schema: every field of `POST /v1/chat/completions` with its type, range and default, in the order of the checks.

Checks types and ranges of one field at a time, on CPU alone: no database, no model. What fields forbid each other is in
cross_field.py; what a message may hold in messages.py; what needs the model or its vocabulary is checked by the engine.
Meaning of every field: docs/api/chat-completions.md.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from chat.dialects.request.cross_field import cross_field_check
from chat.dialects.request.fields import (
    AnyJson,
    Array,
    Boolean,
    Integer,
    NotYet,
    Number,
    Object,
    RequestField,
    Text,
    echo,
    integer_read,
    refuse,
)
from chat.errors import MAX_PROBLEMS, ApiError, Problem, problems_error
from engine.api import SamplingParams

LIMITS = settings.LIGHTCONE_LIMITS
REQUEST_ID = f"[A-Za-z0-9._:-]{{1,{LIMITS.max_id_chars}}}"
SAMPLING_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
MAX_METADATA_PAIRS, MAX_METADATA_KEY_CHARS, MAX_METADATA_VALUE_CHARS = 16, 64, 512
ROLES_TEXT = "a chat message: role (system, developer, user, assistant, tool, …) and content (text, or a list of text parts)"


class Messages(Array):
    """The conversation: a list with at least one message. Messages themselves are walked once the model is known."""

    def __init__(self, **kwargs: Any) -> None:
        item = {"type": "object", "required": ["role"], "description": ROLES_TEXT, "additionalProperties": True}
        item["properties"] = {"role": {"type": "string"}, "content": {}, "name": {"type": "string"}}
        super().__init__(item_schema=item, max_items=LIMITS.max_messages, nullable=False, **kwargs)
        self.required = True

    def run_validation(self, data: Any = serializers.empty) -> list[Any]:
        if data is serializers.empty:
            raise refuse("missing_required_parameter", "is required: send a list with at least one message")
        messages: list[Any] = super().run_validation(data)
        if not messages:
            raise refuse("invalid_value", "must hold at least one message")
        return messages


class Stop(RequestField):
    """One stop string or several; always read as a list."""

    json_schema = {
        "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": LIMITS.max_stop_strings}, {"type": "null"}]
    }

    def to_internal_value(self, data: Any) -> list[str]:
        strings = [data] if isinstance(data, str) else data
        if not isinstance(strings, list):
            raise refuse("invalid_type", f"must be a string or an array of strings, got {echo(data)}")
        if len(strings) > LIMITS.max_stop_strings:
            raise refuse("invalid_value", f"must have at most {LIMITS.max_stop_strings} strings, got {len(strings)}")
        for index, string in enumerate(strings):
            path = "" if isinstance(data, str) else str(index)
            if not isinstance(string, str):
                raise refuse("invalid_type", f"must be a string, got {echo(string)}", path)
            if not 1 <= len(string) <= LIMITS.max_stop_chars:
                raise refuse("invalid_value", f"must have 1 to {LIMITS.max_stop_chars} characters, got {len(string)}", path)
        return strings


class StreamOptions(Object):
    """`include_usage` and `continuous_usage_stats`; the second switches the first on where it is absent."""

    json_schema = {
        "type": "object",
        "properties": {"include_usage": {"type": ["boolean", "null"]}, "continuous_usage_stats": {"type": ["boolean", "null"]}},
    }

    def to_internal_value(self, data: Any) -> dict[str, bool]:
        options = super().to_internal_value(data)
        read = {}
        for name in ("include_usage", "continuous_usage_stats"):
            try:
                read[name] = Boolean().run_validation(options.get(name))
            except ValidationError as error:
                raise ValidationError({name: error.detail}) from None
        continuous = bool(read["continuous_usage_stats"]) and read["include_usage"] is not False
        return {"include_usage": bool(read["include_usage"]) or continuous, "continuous_usage_stats": continuous}


class Metadata(Object):
    """At most 16 labels of the caller's own; kept with the usage record, never returned."""

    json_schema = {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE_CHARS},
        "maxProperties": MAX_METADATA_PAIRS,
    }

    def to_internal_value(self, data: Any) -> dict[str, str]:
        labels = super().to_internal_value(data)
        if len(labels) > MAX_METADATA_PAIRS:
            raise refuse("invalid_value", f"must have at most {MAX_METADATA_PAIRS} pairs, got {len(labels)}")
        for name, value in labels.items():
            if len(name) > MAX_METADATA_KEY_CHARS or "\0" in name:
                raise refuse("invalid_value", f"keys must have at most {MAX_METADATA_KEY_CHARS} characters and no NUL")
            if not isinstance(value, str):
                raise refuse("invalid_type", f"must be a string, got {echo(value)}", name)
            if len(value) > MAX_METADATA_VALUE_CHARS or "\0" in value:
                raise refuse("invalid_value", f"must have at most {MAX_METADATA_VALUE_CHARS} characters and no NUL", name)
        return labels


class Modalities(Array):
    """Text is the only kind of answer."""

    def to_internal_value(self, data: Any) -> list[str]:
        if super().to_internal_value(data) != ["text"]:
            raise refuse(
                "unsupported_parameter" if "audio" in data else "invalid_value", 'must be ["text"]: the server answers in text only'
            )
        return data


class ExtraArguments(Object):
    """Arguments for logits processors: strings, numbers, or arrays of these. Without a processor they have no effect."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        arguments = super().to_internal_value(data)
        for name, value in arguments.items():
            items = value if isinstance(value, list) else [value]
            if not all(isinstance(item, str | int | float) for item in items):
                raise refuse("invalid_type", "must be a string, a number, or an array of these", name)
        return arguments


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise refuse("invalid_type", f"must be a string, got {echo(value)}")
    return value


def _token_id(value: Any) -> int:
    number = integer_read(value)
    if number < 0:
        raise refuse("invalid_value", f"must be a token id, at least 0, got {number}")
    return number


TOKEN_ID = {"type": "integer", "minimum": 0}


class ChatCompletionRequest(serializers.Serializer):
    """The body of a chat completion. Unknown fields are ignored; known ones do what they say or are refused."""

    messages = Messages(help_text="The conversation so far.")
    model = Text(max_chars=LIMITS.max_label_chars, is_label=True, help_text="A served name or alias; absent or empty: the default.")
    frequency_penalty = Number(minimum=-2, maximum=2, help_text="Subtracted from a token's logit once per occurrence in the answer so far.")
    logit_bias = NotYet(Object())
    logprobs = Boolean(default=False, help_text="Return the log-probability of every generated token.")
    top_logprobs = Integer(
        minimum=0, maximum=LIMITS.max_logprobs, accepts_strings=False, default=0, help_text="Alternatives per token; needs logprobs: true."
    )
    max_tokens = Integer(minimum=1, help_text="Limit of generated tokens; used when max_completion_tokens is absent. Deprecated.")
    max_completion_tokens = Integer(minimum=1, help_text="Limit of generated tokens of each choice. Absent: the rest of the context.")
    n = Integer(minimum=1, maximum=LIMITS.max_n, default=1, help_text="Number of independent answers.")
    presence_penalty = Number(minimum=-2, maximum=2, help_text="Subtracted from the logit of every token that the answer already has.")
    response_format = NotYet(Object(), lambda value: value.get("type") == "text")
    seed = Integer(help_text="Makes the draw repeatable; answer i uses seed + i. -1 or absent: a random one.")
    stop = Stop(help_text="Strings that end the answer; the text is cut before them.")
    stream = Boolean(default=False, help_text="Send the answer as server-sent events.")
    stream_options = StreamOptions(help_text="Only with stream: true.")
    temperature = Number(minimum=0, maximum=2, help_text="0 is greedy; higher is more random.")
    top_p = Number(above=0, maximum=1, help_text="Draw from the smallest set of tokens whose probability reaches this.")
    tools = NotYet(Array())
    tool_choice = NotYet(AnyJson(), lambda value: value in ("none", "auto"))
    reasoning_effort = NotYet(Text(choices=("none", "minimal", "low", "medium", "high", "xhigh", "max")))
    include_reasoning = NotYet(Boolean(default=True, nullable=False))
    parallel_tool_calls = Boolean(default=True, help_text="Concerns tools only.")
    user = Text(max_chars=LIMITS.max_label_chars, is_label=True, help_text="A label for the usage record; never affects the answer.")
    use_beam_search = NotYet(Boolean(default=False, nullable=False))
    top_k = Integer(minimum=-1, help_text="Draw from the k most likely tokens; 0 or -1: off.")
    min_p = Number(minimum=0, maximum=1, help_text="Drop tokens less likely than this share of the most likely one.")
    repetition_penalty = Number(above=0, help_text="Divides the logits of tokens that the prompt or the answer already has.")
    length_penalty = Number(default=1.0, nullable=False, help_text="Concerns beam search only.")
    stop_token_ids = Array(
        _token_id,
        item_schema=TOKEN_ID,
        max_items=LIMITS.max_stop_token_ids,
        help_text="Token ids that end the answer; their text is dropped.",
    )
    include_stop_str_in_output = Boolean(default=False, nullable=False, help_text="Keep the stop string in the text.")
    ignore_eos = Boolean(default=False, nullable=False, help_text="Go on after the model's end token.")
    min_tokens = Integer(minimum=0, default=0, nullable=False, help_text="Nothing ends the answer before it has this many tokens.")
    skip_special_tokens = Boolean(default=True, nullable=False, help_text="Leave special tokens out of the text.")
    spaces_between_special_tokens = NotYet(Boolean(default=True, nullable=False))
    truncate_prompt_tokens = NotYet(Integer(minimum=-1))
    prompt_logprobs = NotYet(Integer(minimum=-1, maximum=LIMITS.max_logprobs, accepts_strings=False))
    allowed_token_ids = NotYet(Array(_token_id, item_schema=TOKEN_ID))
    bad_words = NotYet(Array(_string, item_schema={"type": "string"}, nullable=False))
    echo = NotYet(Boolean(default=False, nullable=False))
    add_generation_prompt = Boolean(default=True, nullable=False, help_text="End the prompt with the header of the assistant's turn.")
    continue_final_message = NotYet(Boolean(default=False, nullable=False))
    add_special_tokens = Boolean(default=False, nullable=False, help_text="Let the tokenizer add its own tokens to the template's.")
    documents = NotYet(Array())
    chat_template = NotYet(Text())
    chat_template_kwargs = NotYet(Object())
    mm_processor_kwargs = NotYet(Object())
    structured_outputs = NotYet(Object())
    priority = Integer(default=0, nullable=False, help_text="Lower is served first; a key has a lowest value it may ask for, normally 0.")
    request_id = Text(pattern=REQUEST_ID, nullable=False, help_text="Becomes the answer's id; the header X-Request-Id wins.")
    logits_processors = NotYet(Array())
    return_tokens_as_token_ids = NotYet(Boolean(default=False))
    return_token_ids = NotYet(Boolean(default=False))
    cache_salt = Text(max_chars=LIMITS.max_id_chars, help_text="Requests with different salts share no cached prefix.")
    kv_transfer_params = NotYet(Object(), lambda value: not any(value.values()))
    vllm_xargs = ExtraArguments(help_text="Arguments of logits processors; ignored without one.")

    thinking_token_budget = NotYet(Integer(minimum=-1, accepts_strings=False), lambda value: value == -1)
    stream_interval = NotYet(Integer(minimum=1), lambda value: value == 1)
    logprob_token_ids = NotYet(Array(_token_id, item_schema=TOKEN_ID))
    return_prompt_text = NotYet(Boolean(default=False))
    truncation_side = NotYet(Text(choices=("left", "right")), lambda value: value == "left")
    repetition_detection = NotYet(Object(), lambda value: not value.get("max_pattern_size"))
    media_io_kwargs = NotYet(Object())

    store = Boolean(help_text="Accepted, without effect: answers are not kept.")
    metadata = Metadata(help_text="Labels kept with the usage record.")
    service_tier = NotYet(Text(choices=("auto", "default", "flex", "scale", "priority")), lambda value: value in ("auto", "default"))
    prediction = NotYet(Object())
    modalities = Modalities(item_schema={"type": "string", "enum": ["text"]}, help_text="Text only.")
    audio = Object(help_text="Accepted, without effect: answers are text.")
    functions = NotYet(Array())
    function_call = NotYet(AnyJson(), lambda value: value == "none")
    verbosity = NotYet(Text(choices=("low", "medium", "high")))
    web_search_options = NotYet(Object(), reason="is not supported: the server cannot search the web")
    prompt_cache_key = Text(max_chars=256, is_label=True, help_text="A hint, without effect on the answer.")
    prompt_cache_retention = Text(help_text="Accepted, without effect.")
    safety_identifier = Text(max_chars=256, is_label=True, help_text="Treated like user.")


_SCHEMA = ChatCompletionRequest()


def request_check(body: dict[str, Any]) -> dict[str, Any]:
    """The value of every field (None where absent and without a default); raises ApiError that names the first problem's field."""
    cross_field_check(body, max_id_chars=LIMITS.max_id_chars)
    try:
        values: dict[str, Any] = _SCHEMA.run_validation(body)
    except ValidationError as error:
        raise problems_error(list(_problems(error.detail))[:MAX_PROBLEMS]) from None
    values["service_tier"] = "default" if body.get("service_tier") is not None else None
    _check_together(values)
    return values


def _check_together(values: dict[str, Any]) -> None:
    """Rules between values that need their coerced types."""
    limit = values["max_completion_tokens"] if values["max_completion_tokens"] is not None else values["max_tokens"]
    num_choices = values["n"]
    if limit is not None and values["min_tokens"] > limit:
        raise _conflict("min_tokens", f"must be at most the token limit {limit}, got {values['min_tokens']}")
    if limit is not None and num_choices > 1 and limit * num_choices > LIMITS.max_choice_tokens:
        raise _conflict("n", f"times the token limit must be at most {LIMITS.max_choice_tokens}, got {num_choices} x {limit}")
    if values["temperature"] is not None:
        choices_check(num_choices, SamplingParams(temperature=values["temperature"]))


def choices_check(num_choices: int, sampling: SamplingParams) -> None:
    """Several answers need a draw. Called again once the model's own defaults are known."""
    if num_choices > 1 and sampling.is_greedy:
        raise _conflict("n", "must be 1 when temperature is 0: all answers would be equal")


def sampling_defaults_check(defaults: dict[str, Any]) -> None:
    """A model's own values for fields that requests leave out; raises ApiError that names the first that no request could have."""
    for name, value in defaults.items():
        if name not in SAMPLING_DEFAULTS:
            raise ApiError("invalid_value", f"{name} cannot have a default; {', '.join(SAMPLING_DEFAULTS)} can", name)
        try:
            _SCHEMA.fields[name].run_validation(value)
        except ValidationError as error:
            raise problems_error(list(_problems(error.detail, name))) from None


def _conflict(param: str, message: str) -> ApiError:
    return ApiError("invalid_value", f"{param} {message}", param)


def _problems(detail: Any, path: str = "") -> list[Problem]:
    """The leaves of a ValidationError's detail, in order, with their dotted paths."""
    if isinstance(detail, ErrorDetail):
        return [Problem(detail.code, f"{path} {detail}", path)]
    if isinstance(detail, list):
        return [problem for item in detail for problem in _problems(item, path)]
    return [problem for name, item in detail.items() for problem in _problems(item, f"{path}.{name}".lstrip("."))]
