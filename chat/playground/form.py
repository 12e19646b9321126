"""The form of a request: every field of the request schema in one group, with a title, its help and its JSON Schema.

The names, limits and help are those of the request schema. Only groups, their order and titles are written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from chat.api.openapi.notation import one_of, shape
from chat.api.request.fields import fields_schema
from chat.api.request.schema import CHAT_SCHEMA
from chat.playground.requests import FIELDS_TAKEN

Titles = Mapping[str, Promise]

GROUPS: Mapping[str, tuple[Promise, Titles]] = {
    "sampling": (
        _("Sampling"),
        {
            "temperature": _("Temperature"),
            "top_p": _("Top p"),
            "top_k": _("Top k"),
            "min_p": _("Min p"),
            "seed": _("Seed"),
            "logit_bias": _("Token biases"),
            "allowed_token_ids": _("Allowed token ids"),
            "bad_words": _("Forbidden words"),
            "logits_processors": _("Logits processors"),
            "vllm_xargs": _("Arguments of logits processors"),
        },
    ),
    "length": (
        _("Length and stopping"),
        {
            "max_completion_tokens": _("Longest answer"),
            "max_tokens": _("Longest answer (older name)"),
            "min_tokens": _("Shortest answer"),
            "stop": _("Stop strings"),
            "stop_token_ids": _("Stop token ids"),
            "include_stop_str_in_output": _("Keep the stop string"),
            "ignore_eos": _("Ignore the end token"),
            "repetition_detection": _("End repetitions"),
        },
    ),
    "penalties": (
        _("Penalties"),
        {
            "frequency_penalty": _("Frequency penalty"),
            "presence_penalty": _("Presence penalty"),
            "repetition_penalty": _("Repetition penalty"),
        },
    ),
    "choices": (
        _("Choices"),
        {
            "n": _("Number of answers"),
            "use_beam_search": _("Beam search"),
            "length_penalty": _("Length penalty of beams"),
        },
    ),
    "reasoning": (
        _("Reasoning"),
        {
            "reasoning_effort": _("Effort"),
            "thinking_token_budget": _("Longest reasoning"),
            "include_reasoning": _("Show the reasoning"),
        },
    ),
    "output": (
        _("Output form"),
        {
            "response_format": _("Format of the answer"),
            "structured_outputs": _("Constraint"),
            "verbosity": _("Verbosity"),
            "modalities": _("Modalities"),
            "audio": _("Audio"),
            "skip_special_tokens": _("Leave out special tokens"),
            "spaces_between_special_tokens": _("Spaces between special tokens"),
            "guided_json": _("JSON Schema (older name)"),
            "guided_regex": _("Regular expression (older name)"),
            "guided_choice": _("Choice list (older name)"),
            "guided_grammar": _("Grammar (older name)"),
            "guided_whitespace_pattern": _("White space of JSON (older name)"),
        },
    ),
    "tools": (
        _("Tools"),
        {
            "tools": _("Tools"),
            "tool_choice": _("Choice of tools"),
            "parallel_tool_calls": _("Several calls at once"),
            "functions": _("Functions (older form)"),
            "function_call": _("Choice of functions (older form)"),
            "web_search_options": _("Web search"),
        },
    ),
    "prompt": (
        _("Prompt and template"),
        {
            "model": _("Model"),
            "messages": _("Messages"),
            "documents": _("Documents"),
            "continue_final_message": _("Continue the last message"),
            "add_generation_prompt": _("Add the assistant's header"),
            "echo": _("Repeat the last message"),
            "chat_template": _("Chat template"),
            "chat_template_kwargs": _("Variables of the template"),
            "add_special_tokens": _("Add the tokenizer's own tokens"),
            "truncate_prompt_tokens": _("Longest prompt"),
            "truncation_side": _("Cut the prompt at"),
            "prediction": _("Predicted answer"),
            "mm_processor_kwargs": _("Options of the media processor"),
            "media_io_kwargs": _("Options of media decoding"),
        },
    ),
    "logprobs": (
        _("Log probabilities"),
        {
            "logprobs": _("Log probabilities"),
            "top_logprobs": _("Alternatives"),
            "prompt_logprobs": _("Alternatives in the prompt"),
            "logprob_token_ids": _("Of these token ids"),
            "return_token_ids": _("Token ids"),
            "return_tokens_as_token_ids": _("Tokens by their ids"),
            "return_prompt_text": _("Rendered prompt"),
        },
    ),
    "service": (
        _("Advanced"),
        {
            "priority": _("Priority"),
            "service_tier": _("Service tier"),
            "metadata": _("Labels"),
            "cache_salt": _("Salt of the prefix cache"),
            "prompt_cache_key": _("Key of the prompt cache"),
            "prompt_cache_retention": _("Retention of the prompt cache"),
            "kv_transfer_params": _("Transfer of the cache"),
            "stream": _("Stream"),
            "stream_options": _("Options of the stream"),
            "stream_interval": _("Tokens per chunk"),
            "store": _("Store the answer"),
            "user": _("User"),
            "safety_identifier": _("Safety identifier"),
            "request_id": _("Request id"),
        },
    ),
}
"""The fields of each group, in the order of the form. The page's lists leave out those that it does not take."""
COMMON = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed", "max_completion_tokens", "stop", "n", "tools"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "reasoning_effort", "response_format"),
    }
)
MESSAGE = shape(
    """
    {
        role: role;
        content?: string | [object] | null "The text, or a list of parts.";
        name?: string "Who of several it is.";
        tool_calls?: [{id, type: string; function: {name, arguments: string}}] "The calls of an answer.";
        tool_call_id?: string "The call whose result this is."
    }
    """,
    # Any role may be one of the model's own; an editor offers the usual ones.
    role={
        "anyOf": [one_of("system", "developer", "user", "assistant", "tool"), {"type": "string"}],
        "description": "Who says it.",
    },
)


def form() -> dict[str, Any]:
    """Return the groups, the fields that the page takes, and the JSON Schema of a whole request."""
    groups: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    for name, (title, titles) in GROUPS.items():
        taken = [field for field in titles if field in FIELDS_TAKEN]
        groups.append({"name": name, "title": str(title), "fields": taken})
        fields |= {field: _field(field, titles[field], name) for field in taken}
    return {"groups": groups, "fields": fields, "schema": request_schema()}


def request_schema() -> dict[str, Any]:
    """Return the JSON Schema of a request as the page sends it, for an editor."""
    schema = fields_schema({name: field for name, field in CHAT_SCHEMA.fields.items() if name in FIELDS_TAKEN})
    properties = schema["properties"]
    definitions = {"message": MESSAGE, "tool": properties["tools"]["items"]}
    properties["messages"] = {**properties["messages"], "items": {"$ref": "#/$defs/message"}}
    properties["tools"] = {**properties["tools"], "items": {"$ref": "#/$defs/tool"}}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Request"}
    return {**head, **schema, "additionalProperties": False, "$defs": definitions}


def help_texts() -> list[str]:
    """Return the English help of the form's fields, for the catalogues."""
    fields = (CHAT_SCHEMA.fields[name] for name in FIELDS_TAKEN)
    return [field.help_text for field in fields if field.help_text]


def _field(name: str, title: Promise, group: str) -> dict[str, Any]:
    field = CHAT_SCHEMA.fields[name]
    return {
        "title": str(title),
        "help": gettext(field.help_text) if field.help_text else "",
        "schema": _without_null(field.schema_object()),
        "group": group,
        "is_common": name in COMMON,
    }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field that is set: null stands for an absent one. The help is beside it."""
    kept = {word: value for word, value in schema.items() if word != "description"}
    if isinstance(kept.get("type"), list):
        types = [name for name in kept["type"] if name != "null"]
        kept["type"] = types[0] if len(types) == 1 else types
    if "enum" in kept:
        kept["enum"] = [value for value in kept["enum"] if value is not None]
    if "oneOf" in kept:
        kept["oneOf"] = [one for one in kept["oneOf"] if one != {"type": "null"}]
    return kept
