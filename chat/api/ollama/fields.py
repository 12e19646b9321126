"""The fields of the routes that compute; conversation.py reads the messages.

A field that this server cannot honour is refused by name; unknown fields are ignored and named.
"""

from __future__ import annotations

import re
from typing import Any

from django.conf import settings
from rest_framework import serializers

from chat.api.ollama.options import Options
from chat.api.request.fields import Array, Boolean, Integer, RequestField, Text, echo, refuse
from chat.api.request.parse import fields_read
from chat.api.request.schema import EFFORTS, RequestBody
from chat.api.request.text_schema import Prompts
from chat.errors import ApiError

LIMITS = settings.LIGHTCONE_LIMITS
ZERO = re.compile(r"0+(\.0*)?(ns|us|µs|ms|s|m|h)?")


GO_ACTION = re.compile(r"\{\{-?\s*([.$]|(if|range|with|end|else|block|define)\b)")
"""An action of Go's templates that is no expression of Jinja."""


class Refused(RequestField):
    """A field that this server cannot honour: any value but null and an empty one is refused."""

    def __init__(self, reason: str) -> None:
        super().__init__("Refused, unless it is empty.")
        self.reason = reason

    def to_internal_value(self, data: Any) -> None:
        if data not in ("", [], {}) and data is not False:
            raise refuse("unsupported_parameter", self.reason)


def jinja_read(text: str) -> str:
    """Return a template. Raises ValidationError for one in Go's language, which Ollama's models have."""
    if GO_ACTION.search(text):
        message = "must be a Jinja template, as models of the hub have it; this one is in the language of Go"
        raise refuse("invalid_value", message)
    return text


class Format(RequestField):
    """What the text must be: `json`, any JSON object, or a JSON Schema. Reads to a `response_format`; "": none."""

    json_schema = {"oneOf": [{"type": "string", "enum": ["", "json"]}, {"type": "object"}]}

    def to_internal_value(self, data: Any) -> dict[str, Any] | None:
        if isinstance(data, dict):
            return {"type": "json_schema", "json_schema": {"name": "format", "schema": data}}
        if data not in ("", "json"):
            raise refuse("invalid_value", f"must be json or a JSON Schema, got {echo(data)}")
        return {"type": "json_object"} if data else None


class Think(RequestField):
    """Whether the model thinks, or with how much effort."""

    json_schema = {"oneOf": [{"type": "boolean"}, {"type": "string", "enum": [*EFFORTS]}]}

    def to_internal_value(self, data: Any) -> bool | str:
        if not isinstance(data, bool) and data not in EFFORTS:
            raise refuse("invalid_value", f"must be true, false or one of {', '.join(EFFORTS)}; got {echo(data)}")
        return bool(data) if isinstance(data, bool) else str(data)


class KeepAlive(RequestField):
    """How long a model stays loaded, which is the operator's to say. Reads to True if that is no time at all."""

    json_schema = {"oneOf": [{"type": "number"}, {"type": "string"}]}

    def to_internal_value(self, data: Any) -> bool:
        if isinstance(data, bool) or not isinstance(data, int | float | str):
            raise refuse("invalid_type", f"must be a number of seconds or a duration such as 5m, got {echo(data)}")
        return ZERO.fullmatch(data) is not None if isinstance(data, str) else data == 0


def model_field() -> Text:
    return Text(
        "A served name or alias, with or without :latest; absent or empty: the default.",
        max_chars=LIMITS.max_label_chars,
        is_label=True,
    )


class ModelFields(RequestBody):
    """The fields of all routes that compute."""

    model = model_field()
    options = Options("How the answer is drawn.")
    keep_alive = KeepAlive("Ignored: the operator says how long a model stays loaded. 0 without a prompt: unload it.")


class AnswerFields(ModelFields):
    """The fields of chats and of generated texts."""

    stream = Boolean("False: one JSON object; else one a line.", default=True)
    format = Format("json, or a JSON Schema to which the answer is held.")
    think = Think("Whether the model thinks. Absent: as its template does.")
    logprobs = Boolean("Return the log-probability of every generated token.", default=False)
    top_logprobs = Integer("Alternatives per token; needs logprobs: true.", minimum=0, maximum=LIMITS.max_logprobs)


class OllamaChatRequest(AnswerFields):
    messages = Array(
        item_schema={"type": "object", "additionalProperties": True},
        max_items=LIMITS.max_messages,
        help_text="The conversation so far. Absent or empty: the model is only loaded.",
    )
    tools = Array(
        item_schema={"type": "object"}, max_items=LIMITS.max_tools, help_text="Functions that the model may call."
    )


class OllamaGenerateRequest(AnswerFields):
    prompt = Text(
        "A message of the user, or, with raw, a text to go on with. Absent or empty: the model is only loaded."
    )
    suffix = Text("What follows the answer: the model fills in the middle, without a template.")
    system = Text("What the model is told before the prompt.")
    raw = Boolean("Take the prompt as it is, without a template.", default=False)
    template = Refused(
        "cannot be used: templates here are those of the models, in Jinja; leave it out, or send raw: true"
    )
    context = Refused("cannot be used: conversations are not kept as tokens; send the messages to /api/chat")
    images = Array(
        item_schema={"type": "string"}, max_items=LIMITS.max_parts, help_text="Images in base64, for models that see."
    )


class OllamaEmbedRequest(ModelFields):
    input = Prompts(max_items=LIMITS.max_inputs, help_text="One text or several.")
    truncate = Boolean("False: refuse an input that is longer than the context; else its end is cut off.", default=True)
    dimensions = Integer("Only the first dimensions, made of length 1 again. Absent: all.", minimum=1)


class OllamaEmbeddingsRequest(ModelFields):
    prompt = Text("A text. Absent or empty: the model is only loaded.")


CHAT, GENERATE = OllamaChatRequest(), OllamaGenerateRequest()
EMBED, EMBEDDINGS = OllamaEmbedRequest(), OllamaEmbeddingsRequest()


class Naming(RequestBody):
    """A body that names a model, as `model` or, as older clients do, as `name`."""

    model = model_field()
    name = model_field()


class OllamaShowRequest(RequestBody):
    model = model_field()
    verbose = Boolean("Without effect: all that is known is said.")


class OllamaPullRequest(RequestBody):
    model = Text(
        "A repository of the Hugging Face hub: OWNER/NAME, with :FORMAT behind it where not the best is wanted.",
        max_chars=LIMITS.max_label_chars,
        is_label=True,
    )
    stream = Boolean("False: one JSON object at the end; else one a line.", default=True)
    insecure = Boolean("Without effect: HF_ENDPOINT names the hub.")


class OllamaDeleteRequest(RequestBody):
    model = model_field()


class OllamaCopyRequest(RequestBody):
    source = Text("A served name or alias.", max_chars=LIMITS.max_label_chars, is_label=True, is_required=True)
    destination = Text(
        "The further name.", max_chars=LIMITS.max_label_chars, is_label=True, is_filled=True, is_required=True
    )


NO_PLACE = "cannot be kept: a model here has no place for it; leave it out, and send it with requests"
ONLY_FROM = "cannot be used: a model is created from one that is served; send from, or pull it"


class OllamaCreateRequest(RequestBody):
    model = model_field()
    stream = Boolean("False: one JSON object at the end; else one a line.", default=True)
    parameters = Options("Values of options that requests leave out.")
    system = Text(
        "What it is told first in conversations without a system message.", max_bytes=LIMITS.max_template_bytes
    )
    messages = Refused(NO_PLACE)
    template = Text(
        "A Jinja template in place of that in its files.", max_bytes=LIMITS.max_template_bytes, read=jinja_read
    )
    license = Refused("cannot be kept: the licence is that of the files; leave it out")
    adapters = Refused("cannot be used: leave it out")
    files = Refused(ONLY_FROM)
    modelfile = Refused("cannot be used: send from and parameters, as newer clients do")
    path = Refused(ONLY_FROM)
    quantize = Refused("cannot be used: pull the model in the format that you want; leave it out")

    def get_fields(self) -> dict[str, serializers.Field]:
        source = Text("The served model whose files it has.", max_chars=LIMITS.max_label_chars, is_label=True)
        return {**super().get_fields(), "from": source}


PULL, COPY, CREATE = OllamaPullRequest(), OllamaCopyRequest(), OllamaCreateRequest()
NAMING = Naming()


def model_name_read(body: dict[str, Any]) -> str:
    """Return the model that a body names. Raises ApiError."""
    fields = fields_read(NAMING, body)
    name: str = fields["model"] or fields["name"] or ""
    if not name:
        raise ApiError("missing_required_parameter", "model is required: name a model", "model")
    return name
