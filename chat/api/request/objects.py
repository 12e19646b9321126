"""The fields of the request that are objects or lists with rules of their own, read into what the engine needs."""

from __future__ import annotations

from typing import Any

import orjson
from django.conf import settings

from chat.api.openapi.notation import TEXT, array, one_of
from chat.api.request.fields import (
    INT64_MAX,
    Array,
    Boolean,
    Integer,
    Object,
    Record,
    RequestField,
    Text,
    echo,
    integer_read,
    number_read,
    read_at,
    refuse,
    text_read,
)
from engine.api import Json, ProcessorCall, RepetitionRule

LIMITS = settings.LIGHTCONE_LIMITS
MAX_METADATA_PAIRS, MAX_METADATA_KEY_CHARS, MAX_METADATA_VALUE_CHARS = 16, 64, 512
MAX_BIAS = 100.0
MAX_PATTERN_TOKENS = 1_024
TOKEN_ID = {"type": "integer", "minimum": 0}
ROLES_TEXT = "a chat message: role (system, developer, user, assistant, tool, …) and content (text, or a list of parts)"
CONTENT_TEXT = (
    "A text, or a list of parts: {type: text, text}; {type: file, file: {file_data, filename}} with the content in "
    "base64; {type: file, file: {file_id}} for an uploaded file of purpose user_data, assistants or "
    "vision; {type: image_url, image_url: {url}} or {file_id} for an image."
)
RESERVED_VARIABLES = (
    *("tokenize", "return_dict", "return_tensors", "self", "messages", "conversation", "tools", "documents"),
    *("add_generation_prompt", "continue_final_message"),
)


def token_id_read(value: Any) -> int:
    number = integer_read(value)
    if number < 0:
        raise refuse("invalid_value", f"must be a token id, at least 0, got {number}")
    return number


class Messages(Array):
    """The conversation: a list with at least one message. messages.py checks the messages once the model is known."""

    missing = "is required: send a list with at least one message"

    def __init__(self, **kwargs: Any) -> None:
        item = {"type": "object", "description": ROLES_TEXT, "additionalProperties": True}
        item["properties"] = {
            "role": {"type": "string"},
            "content": {"description": CONTENT_TEXT},
            "name": {"type": "string"},
        }
        super().__init__(
            item_schema=item,
            max_items=LIMITS.max_messages,
            if_empty="must hold at least one message",
            is_required=True,
            **kwargs,
        )


class Stop(RequestField):
    """One stop string or several, at most `max_strings`. Reads to a list."""

    def __init__(self, help_text: str = "", *, max_strings: int = LIMITS.max_stop_strings) -> None:
        super().__init__(help_text)
        self.max_strings = max_strings
        self.json_schema = {"oneOf": [TEXT, {**array(TEXT), "maxItems": max_strings}]}

    def to_internal_value(self, data: Any) -> list[str]:
        strings = [data] if isinstance(data, str) else data
        if not isinstance(strings, list):
            raise refuse("invalid_type", f"must be a string or an array of strings, got {echo(data)}")
        if len(strings) > self.max_strings:
            raise refuse("invalid_value", f"must have at most {self.max_strings} strings, got {len(strings)}")
        for index, string in enumerate(strings):
            if isinstance(data, str):
                _stop_string(string)
            else:
                read_at(index, _stop_string, string)
        return strings


def _stop_string(value: Any) -> str:
    return _text_of(value, LIMITS.max_stop_chars)


def _text_of(value: Any, max_chars: int) -> str:
    text = text_read(value)
    if not 1 <= len(text) <= max_chars:
        raise refuse("invalid_value", f"must have 1 to {max_chars} characters, got {len(text)}")
    return text


class StreamOptions(Record):
    """`include_usage` and `continuous_usage_stats`. The second is the default of the first."""

    parts = {
        "include_usage": Boolean("A last chunk with the usage."),
        "continuous_usage_stats": Boolean("The usage on every chunk.", default=False),
    }

    def to_internal_value(self, data: Any) -> dict[str, bool]:
        options = super().to_internal_value(data)
        continuous, include = options["continuous_usage_stats"], options["include_usage"]
        include = continuous if include is None else include
        return {"include_usage": include, "continuous_usage_stats": continuous and include}


class LogitBias(Object):
    """From token ids, as strings, to the biases of their logits. Reads to pairs with clamped biases."""

    json_schema = {
        "type": "object",
        "additionalProperties": {"type": "number"},
        "propertyNames": {"pattern": "^[0-9]+$"},
        "maxProperties": LIMITS.max_logit_bias,
    }

    def to_internal_value(self, data: Any) -> tuple[tuple[int, float], ...]:
        given = super().to_internal_value(data)
        if len(given) > LIMITS.max_logit_bias:
            raise refuse("invalid_value", f"must have at most {LIMITS.max_logit_bias} entries, got {len(given)}")
        biases: dict[int, float] = {}
        for key, value in given.items():
            if not (key.isascii() and key.isdigit() and len(key) <= 64 and int(key) <= INT64_MAX):
                raise refuse("invalid_value", f"must have token ids, at least 0, as its keys, got {echo(key)}")
            bias = read_at(key, number_read, value)
            biases[int(key)] = max(-MAX_BIAS, min(MAX_BIAS, bias))
        return tuple(biases.items())


def bad_word_read(value: Any) -> str:
    return _text_of(value, LIMITS.max_bad_word_chars)


class Processor(Record):
    """A logits processor by name, or as an object with its arguments. Reads to a ProcessorCall."""

    parts = {
        "qualname": Text(max_chars=LIMITS.max_label_chars, is_filled=True, is_label=True, is_required=True),
        "args": Array(),
        "kwargs": Object(),
    }

    def schema_object(self) -> dict[str, Any]:
        return {"oneOf": [TEXT, {**self.json_schema, "additionalProperties": False}]}

    def to_internal_value(self, data: Any) -> ProcessorCall:
        if isinstance(data, str):
            return ProcessorCall(self.parts["qualname"].to_internal_value(data))
        if not isinstance(data, dict):
            raise refuse("invalid_type", f"must be a name or an object with qualname, got {echo(data)}")
        unknown = next((key for key in data if key not in self.parts), None)
        if unknown is not None:
            raise refuse("invalid_value", f"is no key of a processor; there are {', '.join(self.parts)}", unknown)
        values = super().to_internal_value(data)
        return ProcessorCall(values["qualname"], tuple(values["args"] or ()), values["kwargs"] or {})


class ExtraArguments(Object):
    """Arguments for logits processors: strings, numbers, or arrays of these. Booleans become numbers."""

    json_schema = {
        "type": "object",
        "additionalProperties": {"oneOf": [{"type": ["string", "number", "boolean"]}, {"type": "array"}]},
        "maxProperties": LIMITS.max_xargs,
    }

    def to_internal_value(self, data: Any) -> dict[str, Json]:
        arguments = super().to_internal_value(data)
        if len(arguments) > LIMITS.max_xargs:
            raise refuse("invalid_value", f"must have at most {LIMITS.max_xargs} entries, got {len(arguments)}")
        read = {name: read_at(name, _extra_argument, value) for name, value in arguments.items()}
        num_bytes = len(orjson.dumps(read))
        if num_bytes > LIMITS.max_xargs_bytes:
            raise refuse("invalid_value", f"must be at most {LIMITS.max_xargs_bytes} bytes long, got {num_bytes}")
        return read


def _extra_argument(value: Any) -> Json:
    if isinstance(value, list):
        return [read_at(index, _scalar, item) for index, item in enumerate(value)]
    return _scalar(value)


def _scalar(value: Any) -> Json:
    if not isinstance(value, str | int | float):
        raise refuse("invalid_type", f"must be a string, a number, or an array of these; got {echo(value)}")
    return int(value) if isinstance(value, bool) else value


def document_read(value: Any) -> dict[str, str]:
    document: dict[str, str] = Object().to_internal_value(value)
    for name, text in document.items():
        read_at(name, text_read, text)
    return document


class TemplateVariables(Object):
    """Variables for the chat template. The server's own names are refused."""

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        variables = super().to_internal_value(data)
        if "chat_template" in variables:
            message = "is reserved; use the field chat_template, for which the key needs a right"
            raise refuse("untrusted_chat_template", message, "chat_template")
        for name in RESERVED_VARIABLES:
            if name in variables:
                raise refuse("invalid_value", "is reserved; use the field of the request, if there is one", name)
        return dict(variables)


class MediaOptions(Object):
    json_schema = {"type": "object", "additionalProperties": {"type": "object"}}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        options: dict[str, Any] = super().to_internal_value(data)
        for name, value in options.items():
            read_at(name, Object().to_internal_value, value)
        return options


class TransferParams(Object):
    """Parameters of a KV transfer. An object of false and null asks for nothing and reads to None."""

    def to_internal_value(self, data: Any) -> dict[str, Any] | None:
        params = super().to_internal_value(data)
        return params if any(value is not None and value is not False for value in params.values()) else None


class RepetitionDetection(Record):
    """The rule that ends an answer which repeats itself. Reads to a RepetitionRule, or None for off."""

    parts = {
        "max_pattern_size": Integer("Tokens; 0 is off.", minimum=0, maximum=MAX_PATTERN_TOKENS, default=0),
        "min_pattern_size": Integer("Tokens; 0 is 1.", minimum=0, maximum=MAX_PATTERN_TOKENS, default=0),
        "min_count": Integer("Repeats; at least 2 where a size is given.", minimum=0, default=0),
    }

    def to_internal_value(self, data: Any) -> RepetitionRule | None:
        values = super().to_internal_value(data)
        largest, smallest, count = values["max_pattern_size"], values["min_pattern_size"], values["min_count"]
        if smallest > largest:
            message = f"must be at most max_pattern_size, {largest}; got {smallest}"
            raise refuse("invalid_value", message, "min_pattern_size")
        if largest and count < 2:
            raise refuse("invalid_value", f"must be at least 2, got {count}", "min_count")
        return RepetitionRule(largest, max(1, smallest), count) if largest else None


class PredictedText(RequestField):
    json_schema = {"oneOf": [TEXT, {"type": "array"}]}
    missing = "is required: a string or an array of text parts"

    def to_internal_value(self, data: Any) -> str:
        if isinstance(data, str):
            return data
        if not isinstance(data, list):
            raise refuse("invalid_type", f"must be a string or an array of text parts, got {echo(data)}")
        return "".join(Array(_predicted_part, max_items=LIMITS.max_parts).to_internal_value(data))


class Prediction(Record):
    """Text that the answer is expected to repeat. Reads to that text."""

    parts = {
        "type": Text(choices=("content",), is_required=True),
        "content": PredictedText(is_required=True, null_is_absent=True),
    }

    def to_internal_value(self, data: Any) -> str | None:
        return super().to_internal_value(data)["content"] or None


def _predicted_part(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise refuse("invalid_type", f"must be a text part, got {echo(value)}")
    if value.get("type") != "text":
        raise refuse("invalid_value", f"must be text, got {echo(value.get('type'))}", "type")
    return read_at("text", text_read, value.get("text"))


class Metadata(Object):
    """At most 16 labels of the caller. They are kept with the usage record."""

    json_schema = {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE_CHARS},
        "propertyNames": {"maxLength": MAX_METADATA_KEY_CHARS},
        "maxProperties": MAX_METADATA_PAIRS,
    }

    def to_internal_value(self, data: Any) -> dict[str, str]:
        labels = super().to_internal_value(data)
        if len(labels) > MAX_METADATA_PAIRS:
            raise refuse("invalid_value", f"must have at most {MAX_METADATA_PAIRS} pairs, got {len(labels)}")
        for name, value in labels.items():
            if len(name) > MAX_METADATA_KEY_CHARS or "\0" in name:
                raise refuse("invalid_value", f"keys must have at most {MAX_METADATA_KEY_CHARS} characters and no NUL")
            read_at(name, text_read, value)
            if len(value) > MAX_METADATA_VALUE_CHARS or "\0" in value:
                message = f"must have at most {MAX_METADATA_VALUE_CHARS} characters and no NUL"
                raise refuse("invalid_value", message, name)
        return dict(labels)


class Modalities(RequestField):
    """The kinds of answer, of which text is the only one."""

    json_schema = {**array(one_of("text")), "minItems": 1, "maxItems": 1}

    def to_internal_value(self, data: Any) -> list[str]:
        modalities: list[str] = Array().to_internal_value(data)
        if modalities != ["text"]:
            code = "unsupported_parameter" if "audio" in data else "invalid_value"
            raise refuse(code, 'must be ["text"]: the server answers in text only')
        return modalities


class Unsupported(Object):
    """A known object that this server cannot honour. Any value but null is refused."""

    json_schema = {"type": ["object", "null"], "maxProperties": 0}

    def __init__(self, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason

    def to_internal_value(self, data: Any) -> Any:
        super().to_internal_value(data)
        raise refuse("unsupported_parameter", self.reason)
