"""Bad requests and their exact errors: each field, pair of fields and limit, for the schema and a live server."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

MESSAGES = [{"role": "user", "content": "hi"}]
TYPE, VALUE, MISSING, UNSUPPORTED = (
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "unsupported_parameter",
)
INT64 = "must fit into 64 bits"


@dataclass(frozen=True)
class Bad:
    """A bad request: fields beside `messages`, and code, param and message words of the error.

    `drops`: removed fields.
    """

    fields: dict[str, Any]
    param: str
    code: str = VALUE
    says: str = ""
    drops: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        text = ",".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.param}:{text if len(text) < 60 else text[:50] + f'…{zlib.crc32(text.encode()):08x}'}"

    @property
    def may_stream(self) -> bool:
        """Return whether the answer is the same with `stream: true`; not so if the fault is about streams."""
        return not {"stream", "stream_options", "prompt_logprobs"} & set(self.fields)

    def body(self) -> dict[str, Any]:
        return {name: value for name, value in {"messages": MESSAGES, **self.fields}.items() if name not in self.drops}


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth - 1):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def lists(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


NOT_NULL = (
    "include_reasoning",
    "length_penalty",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "bad_words",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "priority",
    "request_id",
    "use_beam_search",
    "messages",
)
BOOLEANS = (
    "logprobs",
    "stream",
    "include_reasoning",
    "parallel_tool_calls",
    "use_beam_search",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "return_prompt_text",
    "store",
)
INTEGERS = {
    "max_tokens": (0, "from 1 to 262144"),
    "max_completion_tokens": (-1, "from 1 to 262144"),
    "n": (129, "from 1 to 128"),
    "top_k": (-2, "at least -1"),
    "min_tokens": (-1, "at least 0"),
    "truncate_prompt_tokens": (-2, "at least -1"),
    "stream_interval": (0, "at least 1"),
    "seed": (2**63, INT64),
    "priority": (-(2**63) - 1, INT64),
}
NUMBERS = {
    "temperature": (2.01, "at least 0 and at most 2"),
    "top_p": (0, "greater than 0 and at most 1"),
    "min_p": (1.5, "at least 0 and at most 1"),
    "presence_penalty": (2.5, "at least -2 and at most 2"),
    "frequency_penalty": (-2.5, "at least -2 and at most 2"),
    "repetition_penalty": (0, "greater than 0"),
}
TEXTS = (
    "model",
    "user",
    "request_id",
    "chat_template",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
)
LABELS = ("model", "user", "prompt_cache_key", "safety_identifier")
CHOICES = {
    "reasoning_effort": "none, minimal, low, medium, high, xhigh, max",
    "truncation_side": "left, right",
    "service_tier": "auto, default, flex, scale, priority",
    "verbosity": "low, medium, high",
}
OBJECTS = (
    "logit_bias",
    "stream_options",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "structured_outputs",
    "kv_transfer_params",
    "vllm_xargs",
    "repetition_detection",
    "metadata",
    "prediction",
    "audio",
    "response_format",
)
ARRAYS = (
    "tools",
    "functions",
    "documents",
    "logits_processors",
    "stop_token_ids",
    "allowed_token_ids",
    "logprob_token_ids",
    "bad_words",
    "modalities",
    "messages",
)
ID_LISTS = ("stop_token_ids", "allowed_token_ids", "logprob_token_ids")
