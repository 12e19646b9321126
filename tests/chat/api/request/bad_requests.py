"""Bad requests and their exact answers: what each field, each pair of fields and each limit says. For the schema, and for a live server."""

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
    """A body's fields beside `messages`, and the answer: code, param and words of the message. `drops`: fields left out of the body."""

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
        """Whether the answer is the same with `stream: true`; not where the fault is about streams."""
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

BAD = [
    *[Bad({name: None}, name, TYPE, "must not be null") for name in NOT_NULL],
    *[Bad({name: value}, name, TYPE, "must be true or false") for name in BOOLEANS for value in ("maybe", 2, [])],
    *[Bad({name: value}, name, VALUE, says) for name, (value, says) in INTEGERS.items()],
    *[Bad({name: value}, name, TYPE, "must be an integer") for name in INTEGERS for value in (2.5, "1e3", {})],
    *[Bad({name: 2**64}, name, VALUE, INT64) for name in INTEGERS],
    *[Bad({name: value}, name, VALUE, says) for name, (value, says) in NUMBERS.items()],
    *[
        Bad({name: value}, name, TYPE, "must be a number")
        for name in (*NUMBERS, "length_penalty")
        for value in ("1e3", "hot", [1])
    ],
    *[Bad({name: 5}, name, TYPE, "must be a string") for name in TEXTS],
    *[Bad({name: "a\0b"}, name, VALUE, "must not contain NUL") for name in LABELS],
    *[Bad({name: "x" * 257}, name, VALUE, "at most 256 characters") for name in LABELS],
    *[Bad({name: "other"}, name, VALUE, says) for name, says in CHOICES.items()],
    *[Bad({name: 1}, name, TYPE, "must be a string") for name in CHOICES],
    *[Bad({name: value}, name, TYPE, "must be an object") for name in OBJECTS for value in ([], "text")],
    *[Bad({name: {}}, name, TYPE, "must be an array") for name in ARRAYS],
    *[Bad({name: [1, -1], "logprobs": True}, f"{name}.1", VALUE, "at least 0, got -1") for name in ID_LISTS],
    *[Bad({name: [1, 2.5], "logprobs": True}, f"{name}.1", TYPE, "must be an integer") for name in ID_LISTS],
    *[Bad({name: [2**63], "logprobs": True}, f"{name}.0", VALUE, INT64) for name in ID_LISTS],
    # The conversation.
    Bad({}, "messages", MISSING, "at least one message", drops=("messages",)),
    Bad({"messages": []}, "messages", VALUE, "at least one message"),
    Bad({"messages": "hi"}, "messages", TYPE),
    Bad({"messages": [{}] * 10_001}, "messages", VALUE, "at most 10000"),
    # Ids and salts.
    Bad({"request_id": "a b"}, "request_id", VALUE, "must match"),
    Bad({"request_id": "x" * 129}, "request_id", VALUE, "{1,128}"),
    Bad({"request_id": ""}, "request_id", VALUE, "{1,128}"),
    Bad({"request_id": "line\n"}, "request_id"),
    Bad({"cache_salt": ""}, "cache_salt", VALUE, "1 to 128"),
    Bad({"cache_salt": "a" * 129}, "cache_salt", VALUE, "1 to 128"),
    Bad({"cache_salt": 5}, "cache_salt", TYPE, "must be a string, got 5"),
    Bad({"cache_salt": "a\x00"}, "cache_salt", VALUE, "control characters"),
    Bad({"cache_salt": "a\x85"}, "cache_salt", VALUE, "control characters"),
    # Numbers of answers and tokens.
    Bad({"n": 1_000_000_000}, "n", VALUE, "128"),
    Bad({"n": 2, "temperature": 0}, "n", VALUE, "use_beam_search"),
    Bad({"n": 2, "temperature": 0.000001}, "n"),
    Bad({"n": 128, "max_tokens": 10_000}, "n", VALUE, "262144"),
    Bad({"n": 2, "max_completion_tokens": 262_144}, "n", VALUE, "262144"),
    Bad({"max_completion_tokens": 262_145}, "max_completion_tokens", VALUE, "from 1 to 262144"),
    Bad({"max_tokens": 4, "min_tokens": 5}, "min_tokens", VALUE, "token limit 4"),
    Bad({"max_tokens": 9, "max_completion_tokens": 4, "min_tokens": 5}, "min_tokens", VALUE, "token limit 4"),
    Bad({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", VALUE, "must not be 0"),
    Bad({"thinking_token_budget": -2}, "thinking_token_budget", VALUE, "at least -1"),
    *[
        Bad({"thinking_token_budget": value}, "thinking_token_budget", TYPE, "JSON integer")
        for value in ("5", 5.0, True)
    ],
    # Log-probabilities.
    Bad({"logprobs": 5}, "logprobs", TYPE),
    Bad({"logprobs": -1}, "logprobs", TYPE),
    Bad({"top_logprobs": 2}, "top_logprobs", VALUE, "needs logprobs: true"),
    Bad({"top_logprobs": -1}, "top_logprobs", VALUE, "needs logprobs: true"),
    Bad({"logprobs": True, "top_logprobs": 21}, "top_logprobs", VALUE, "from -1 to 20"),
    Bad({"logprobs": True, "top_logprobs": -2}, "top_logprobs", VALUE, "from -1 to 20"),
    Bad({"logprobs": True, "top_logprobs": -1}, "top_logprobs", VALUE, "at most 20"),
    Bad({"logprobs": True, "top_logprobs": "5"}, "top_logprobs", TYPE),
    Bad({"prompt_logprobs": 21}, "prompt_logprobs", VALUE, "from -1 to 20"),
    Bad({"prompt_logprobs": -1}, "prompt_logprobs", VALUE, "at most 20"),
    Bad({"prompt_logprobs": "5"}, "prompt_logprobs", TYPE),
    Bad({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", VALUE, "stream"),
    Bad({"prompt_logprobs": -1, "stream": "yes"}, "prompt_logprobs", VALUE, "stream"),
    Bad({"logprob_token_ids": [1]}, "logprob_token_ids", VALUE, "needs logprobs: true"),
    Bad({"logprob_token_ids": [1] * 129, "logprobs": True}, "logprob_token_ids", VALUE, "at most 128"),
    # Masks and biases.
    Bad({"top_p": 1.0000001}, "top_p", VALUE, "at most 1, got 1.0000001"),
    Bad({"logit_bias": {"abc": 1}}, "logit_bias", VALUE, "token ids"),
    Bad({"logit_bias": {"5.0": 1}}, "logit_bias", VALUE, "token ids"),
    Bad({"logit_bias": {"٥": 1}}, "logit_bias", VALUE, "token ids"),
    Bad({"logit_bias": {"-5": 1}}, "logit_bias", VALUE, "at least 0"),
    Bad({"logit_bias": {str(2**63): 1}}, "logit_bias", VALUE, "token ids"),
    Bad({"logit_bias": {"5": "much"}}, "logit_bias.5", TYPE, "must be a number"),
    Bad({"logit_bias": {"5": None}}, "logit_bias.5", TYPE, "must be a number"),
    Bad({"logit_bias": {str(index): 1 for index in range(4097)}}, "logit_bias", VALUE, "at most 4096"),
    Bad({"allowed_token_ids": []}, "allowed_token_ids", VALUE, "at least one"),
    Bad({"allowed_token_ids": [1] * 262_145}, "allowed_token_ids", VALUE, "at most 262144"),
    Bad({"bad_words": [""]}, "bad_words.0", VALUE, "1 to 1024"),
    Bad({"bad_words": ["a", None]}, "bad_words.1", TYPE),
    Bad({"bad_words": ["x" * 1025]}, "bad_words.0", VALUE, "1 to 1024"),
    Bad({"bad_words": ["x"] * 129}, "bad_words", VALUE, "at most 128"),
    Bad({"bad_words": "word"}, "bad_words", TYPE),
    # Logits processors.
    Bad({"logits_processors": [5]}, "logits_processors.0", TYPE),
    Bad({"logits_processors": [None]}, "logits_processors.0", TYPE),
    Bad({"logits_processors": [""]}, "logits_processors.0"),
    Bad({"logits_processors": ["x" * 257]}, "logits_processors.0", VALUE, "at most 256"),
    Bad({"logits_processors": [{}]}, "logits_processors.0.qualname", MISSING),
    Bad({"logits_processors": [{"qualname": 5}]}, "logits_processors.0.qualname", TYPE),
    Bad({"logits_processors": [{"qualname": "a", "args": {}}]}, "logits_processors.0.args", TYPE),
    Bad({"logits_processors": [{"qualname": "a", "kwargs": []}]}, "logits_processors.0.kwargs", TYPE),
    Bad(
        {"logits_processors": [{"qualname": "a", "code": "b"}]},
        "logits_processors.0.code",
        VALUE,
        "qualname, args, kwargs",
    ),
    Bad({"logits_processors": ["a"] * 33}, "logits_processors", VALUE, "at most 32"),
    Bad({"vllm_xargs": {"a": {"b": 1}}}, "vllm_xargs.a", TYPE),
    Bad({"vllm_xargs": {"a": [1, [1]]}}, "vllm_xargs.a.1", TYPE),
    Bad({"vllm_xargs": {"a": None}}, "vllm_xargs.a", TYPE),
    Bad({"vllm_xargs": {str(index): 1 for index in range(65)}}, "vllm_xargs", VALUE, "at most 64"),
    Bad({"vllm_xargs": {"a": "x" * 65_536}}, "vllm_xargs", VALUE, "at most 65536"),
    # Stopping.
    Bad({"stop": ""}, "stop", VALUE, "1 to 1024"),
    Bad({"stop": 5}, "stop", TYPE),
    Bad({"stop": {}}, "stop", TYPE),
    Bad({"stop": ["a", 5]}, "stop.1", TYPE),
    Bad({"stop": ["a", ""]}, "stop.1", VALUE, "1 to 1024"),
    Bad({"stop": ["x" * 1025]}, "stop.0", VALUE, "1 to 1024"),
    Bad({"stop": ["x"] * 33}, "stop", VALUE, "at most 32"),
    Bad({"stop_token_ids": [1] * 1025}, "stop_token_ids", VALUE, "at most 1024"),
    Bad(
        {"repetition_detection": {"max_pattern_size": 1025, "min_count": 2}},
        "repetition_detection.max_pattern_size",
        VALUE,
        "1024",
    ),
    Bad({"repetition_detection": {"max_pattern_size": -1}}, "repetition_detection.max_pattern_size", VALUE, "1024"),
    Bad({"repetition_detection": {"max_pattern_size": "x"}}, "repetition_detection.max_pattern_size", TYPE),
    Bad({"repetition_detection": {"max_pattern_size": 4}}, "repetition_detection.min_count", VALUE, "at least 2"),
    Bad(
        {"repetition_detection": {"max_pattern_size": 4, "min_count": 1}},
        "repetition_detection.min_count",
        VALUE,
        "at least 2",
    ),
    Bad(
        {"repetition_detection": {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}},
        "repetition_detection.min_pattern_size",
    ),
    Bad({"repetition_detection": {"min_count": -1}}, "repetition_detection.min_count", VALUE, "at least 0"),
    # Streams.
    Bad({"stream_options": {"include_usage": True}}, "stream_options", VALUE, "stream is true"),
    Bad({"stream_options": {"include_usage": True}, "stream": "false"}, "stream_options", VALUE, "stream is true"),
    Bad({"stream_options": {"a": 1}, "stream": None}, "stream_options", VALUE, "stream is true"),
    Bad({"stream_options": {"include_usage": "maybe"}, "stream": True}, "stream_options.include_usage", TYPE),
    Bad(
        {"stream_options": {"continuous_usage_stats": 2}, "stream": True}, "stream_options.continuous_usage_stats", TYPE
    ),
    # The prompt.
    Bad(
        {"continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
        VALUE,
        "add_generation_prompt",
    ),
    Bad({"continue_final_message": "1", "add_generation_prompt": 1}, "continue_final_message"),
    Bad({"documents": ["a"]}, "documents.0", TYPE),
    Bad({"documents": [{"title": 5}]}, "documents.0.title", TYPE),
    Bad({"documents": [{}, {"text": None}]}, "documents.1.text", TYPE),
    Bad({"documents": [{}] * 1025}, "documents", VALUE, "at most 1024"),
    Bad({"chat_template": "x" * 65_537}, "chat_template", VALUE, "at most 65536 bytes"),
    Bad({"chat_template": "é" * 40_000}, "chat_template", VALUE, "at most 65536 bytes"),
    *[
        Bad({"chat_template_kwargs": {name: 1}}, f"chat_template_kwargs.{name}", VALUE, "reserved")
        for name in (
            "tokenize",
            "return_dict",
            "return_tensors",
            "self",
            "messages",
            "conversation",
            "tools",
            "documents",
            "add_generation_prompt",
            "continue_final_message",
        )
    ],
    Bad(
        {"chat_template_kwargs": {"chat_template": "{{ 1 }}"}},
        "chat_template_kwargs.chat_template",
        "untrusted_chat_template",
    ),
    Bad({"media_io_kwargs": {"image": 5}}, "media_io_kwargs.image", TYPE),
    Bad({"prediction": {}}, "prediction.type", MISSING),
    Bad({"prediction": {"type": "other", "content": "x"}}, "prediction.type", VALUE, "content"),
    Bad({"prediction": {"type": "content"}}, "prediction.content", MISSING),
    Bad({"prediction": {"type": "content", "content": 5}}, "prediction.content", TYPE),
    Bad({"prediction": {"type": "content", "content": [5]}}, "prediction.content.0", TYPE),
    Bad(
        {"prediction": {"type": "content", "content": [{"type": "image_url"}]}},
        "prediction.content.0.type",
        VALUE,
        "text",
    ),
    Bad({"prediction": {"type": "content", "content": [{"type": "text"}]}}, "prediction.content.0.text", TYPE),
    # Tools.
    Bad({"tools": [5]}, "tools.0", TYPE),
    Bad({"tools": [None]}, "tools.0", TYPE),
    Bad({"tools": [{}]}, "tools.0.function", MISSING),
    Bad({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type", VALUE, "function"),
    Bad({"tools": [{"type": "function", "function": None}]}, "tools.0.function", TYPE),
    Bad({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name", MISSING),
    Bad({"tools": [tool("")]}, "tools.0.function.name", VALUE, "must not be empty"),
    Bad({"tools": [tool("x" * 257)]}, "tools.0.function.name", VALUE, "at most 256"),
    Bad({"tools": [tool("a\0")]}, "tools.0.function.name", VALUE, "NUL"),
    Bad({"tools": [tool(), tool("g"), tool()]}, "tools.2.function.name", VALUE, "unique"),
    Bad({"tools": [tool(description=5)]}, "tools.0.function.description", TYPE),
    Bad({"tools": [tool(strict="perhaps")]}, "tools.0.function.strict", TYPE),
    Bad({"tools": [tool(parameters=[])]}, "tools.0.function.parameters", TYPE),
    Bad({"tools": [tool(parameters={"type": "string"})]}, "tools.0.function.parameters.type", VALUE, "must be object"),
    Bad({"tools": [tool(parameters={"type": 5})]}, "tools.0.function.parameters.type", TYPE),
    Bad(
        {"tools": [tool(parameters={"enum": [1, 2]})]},
        "tools.0.function.parameters.enum",
        VALUE,
        "must admit an object",
    ),
    Bad(
        {"tools": [tool(parameters={"$ref": "#/$defs/a"})]}, "tools.0.function.parameters.$ref", VALUE, "leads nowhere"
    ),
    Bad(
        {"functions": [{"name": "f", "parameters": {"const": 1}}]},
        "functions.0.parameters.const",
        VALUE,
        "must admit an object",
    ),
    Bad({"tools": [tool(parameters={"properties": []})]}, "tools.0.function.parameters.properties", TYPE),
    Bad({"tools": [tool(parameters={"properties": {"x": 5}})]}, "tools.0.function.parameters.properties.x", TYPE),
    Bad({"tools": [tool(parameters=nested(66))]}, "tools.0.function.parameters", VALUE, "at most 64 levels"),
    Bad({"tools": [tool(parameters={"enum": lists(70)})]}, "tools.0.function.parameters", VALUE, "at most 64 levels"),
    Bad({"tools": [tool(str(index)) for index in range(1025)]}, "tools", VALUE, "at most 1024"),
    Bad(
        {"tools": [tool(str(index), description="x" * 210_000) for index in range(5)]},
        "tools",
        VALUE,
        "at most 1048576 bytes",
    ),
    Bad({"tool_choice": 5}, "tool_choice", TYPE),
    Bad({"tool_choice": "sometimes"}, "tool_choice", VALUE, "none, auto, required"),
    Bad({"tool_choice": "sometimes", "tools": [tool()]}, "tool_choice", VALUE, "none, auto, required"),
    Bad({"tool_choice": "required"}, "tool_choice", VALUE, "needs tools"),
    Bad({"tool_choice": "required", "tools": []}, "tool_choice", VALUE, "needs tools"),
    Bad({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", VALUE, "needs tools"),
    Bad({"tool_choice": {"type": "function"}, "tools": [tool()]}, "tool_choice.function", MISSING),
    Bad({"tool_choice": {"type": "custom", "custom": {"name": "f"}}, "tools": [tool()]}, "tool_choice.type"),
    Bad({"tool_choice": {"function": {}}, "tools": [tool()]}, "tool_choice.function.name", MISSING),
    Bad({"tool_choice": {"type": "allowed_tools"}, "tools": [tool()]}, "tool_choice.allowed_tools", MISSING),
    Bad({"tool_choice": {"function": {"name": ""}}, "tools": [tool()]}, "tool_choice.function.name"),
    Bad(
        {"tool_choice": {"function": {"name": "g"}}, "tools": [tool()]},
        "tool_choice.function.name",
        VALUE,
        "one of tools",
    ),
    Bad(
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": None}, "tools": [tool()]},
        "tool_choice.allowed_tools",
        TYPE,
    ),
    Bad(
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tools": [tool()]},
        "tool_choice.allowed_tools.tools",
    ),
    Bad(
        {
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [tool()]}},
            "tools": [tool()],
        },
        "tool_choice.allowed_tools.mode",
    ),
    Bad(
        {
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("g")]}},
            "tools": [tool()],
        },
        "tool_choice.allowed_tools.tools.0.function.name",
    ),
    Bad({"functions": [{"name": "f"}], "tools": [tool()]}, "functions", VALUE, "use tools"),
    Bad({"functions": [{"name": "f"}], "tool_choice": "auto"}, "functions", VALUE, "use tools"),
    Bad({"function_call": "none", "tools": [tool()]}, "function_call", VALUE, "use tools"),
    Bad({"function_call": "auto"}, "function_call", VALUE, "needs functions"),
    Bad({"function_call": {"name": "f"}}, "function_call", VALUE, "needs functions"),
    Bad({"function_call": "required", "functions": [{"name": "f"}]}, "function_call", VALUE, "none, auto"),
    Bad(
        {"function_call": {"name": "g"}, "functions": [{"name": "f"}]}, "function_call.name", VALUE, "one of functions"
    ),
    Bad({"function_call": {}, "functions": [{"name": "f"}]}, "function_call.name", MISSING),
    Bad({"function_call": 5}, "function_call", TYPE),
    Bad({"functions": [{}]}, "functions.0.name", MISSING),
    Bad({"functions": [{"name": "f"}, {"name": "f"}]}, "functions.1.name", VALUE, "unique"),
    # Structured output.
    Bad({"structured_outputs": {}}, "structured_outputs", VALUE, "needs one of"),
    Bad({"structured_outputs": {"disable_any_whitespace": False}}, "structured_outputs", VALUE, "needs one of"),
    Bad({"structured_outputs": {"disable_fallback": True}, "response_format": {"type": "text"}}, "structured_outputs"),
    Bad({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", VALUE, "takes one constraint"),
    Bad(
        {"structured_outputs": {"json_object": False, "grammar": "root ::= 'a'"}},
        "structured_outputs",
        VALUE,
        "takes one constraint",
    ),
    Bad(
        {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "structured_outputs",
        VALUE,
        "response_format",
    ),
    Bad(
        {"structured_outputs": {"regex": "a"}, "tools": [tool()], "tool_choice": "required"},
        "structured_outputs",
        VALUE,
        "tool_choice",
    ),
    Bad(
        {"structured_outputs": {"regex": "a"}, "functions": [{"name": "f"}], "function_call": {"name": "f"}},
        "structured_outputs",
    ),
    Bad({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex", VALUE, "cannot be combined with guided_choice"),
    Bad(
        {"structured_outputs": {"regex": "a"}, "guided_json": {}}, "structured_outputs", VALUE, "regex and guided_json"
    ),
    Bad({"guided_json": {}, "response_format": {"type": "json_object"}}, "guided_json", VALUE, "response_format"),
    Bad({"guided_json": {}, "tools": [tool()], "tool_choice": "required"}, "guided_json", VALUE, "tool_choice"),
    Bad({"guided_json": "{"}, "guided_json", VALUE, "valid JSON"),
    Bad({"guided_regex": ""}, "guided_regex", VALUE, "must not be empty"),
    Bad({"guided_choice": []}, "guided_choice", VALUE, "at least one"),
    Bad({"guided_grammar": 5}, "guided_grammar", TYPE),
    Bad({"guided_whitespace_pattern": "x"}, "guided_whitespace_pattern", VALUE),
    *(
        Bad({name: "x"}, name, "unsupported_parameter", f"use {instead}")
        for name, instead in [
            ("format", "response_format"),
            ("json_schema", "response_format"),
            ("grammar", "structured_outputs.grammar"),
            ("ebnf", "structured_outputs.grammar"),
            ("regex", "structured_outputs.regex"),
            ("structural_tag", "structured_outputs.structural_tag"),
        ]
    ),
    Bad({"structured_outputs": {"json": ""}}, "structured_outputs.json", VALUE, "must not be empty"),
    Bad({"structured_outputs": {"json": "{"}}, "structured_outputs.json", VALUE, "valid JSON"),
    Bad({"structured_outputs": {"json": "[]"}}, "structured_outputs.json", TYPE, "JSON object"),
    Bad({"structured_outputs": {"json": 5}}, "structured_outputs.json", TYPE, "JSON object"),
    Bad({"structured_outputs": {"json": []}}, "structured_outputs.json", TYPE, "JSON object"),
    Bad({"structured_outputs": {"json": nested(65)}}, "structured_outputs.json", VALUE, "at most 64 levels"),
    Bad(
        {"structured_outputs": {"json": {"enum": ["x" * 300_000]}}},
        "structured_outputs.json",
        VALUE,
        "at most 262144 bytes",
    ),
    Bad({"structured_outputs": {"regex": ""}}, "structured_outputs.regex", VALUE, "must not be empty"),
    Bad({"structured_outputs": {"regex": 5}}, "structured_outputs.regex", TYPE),
    Bad({"structured_outputs": {"regex": "a\0"}}, "structured_outputs.regex", VALUE, "NUL"),
    Bad({"structured_outputs": {"regex": "a" * 16_385}}, "structured_outputs.regex", VALUE, "at most 16384 bytes"),
    Bad({"structured_outputs": {"choice": []}}, "structured_outputs.choice", VALUE, "at least one"),
    Bad({"structured_outputs": {"choice": [""]}}, "structured_outputs.choice.0", VALUE, "must not be empty"),
    Bad({"structured_outputs": {"choice": ["a", 5]}}, "structured_outputs.choice.1", TYPE),
    Bad({"structured_outputs": {"choice": "a"}}, "structured_outputs.choice", TYPE),
    Bad({"structured_outputs": {"choice": ["a"] * 10_001}}, "structured_outputs.choice", VALUE, "at most 10000"),
    Bad(
        {"structured_outputs": {"choice": ["a" * 600_000] * 2}},
        "structured_outputs.choice",
        VALUE,
        "at most 1048576 bytes",
    ),
    Bad({"structured_outputs": {"grammar": "  "}}, "structured_outputs.grammar", VALUE, "must not be empty"),
    Bad({"structured_outputs": {"grammar": {}}}, "structured_outputs.grammar", TYPE),
    Bad(
        {"structured_outputs": {"grammar": "a" * 262_145}}, "structured_outputs.grammar", VALUE, "at most 262144 bytes"
    ),
    Bad({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", VALUE, "must be true"),
    Bad({"structured_outputs": {"json_object": "maybe"}}, "structured_outputs.json_object", TYPE),
    Bad(
        {"structured_outputs": {"structural_tag": ""}}, "structured_outputs.structural_tag", VALUE, "must not be empty"
    ),
    Bad({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", VALUE, "valid JSON"),
    Bad({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag", TYPE),
    Bad({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag.format"),
    Bad(
        {"structured_outputs": {"json": {}, "disable_any_whitespace": True, "whitespace_pattern": " "}},
        "structured_outputs.disable_any_whitespace",
    ),
    Bad(
        {"structured_outputs": {"json": {}, "disable_any_whitespace": "x"}},
        "structured_outputs.disable_any_whitespace",
        TYPE,
    ),
    Bad(
        {"structured_outputs": {"json": {}, "disable_additional_properties": 5}},
        "structured_outputs.disable_additional_properties",
        TYPE,
    ),
    *[
        Bad(
            {"structured_outputs": {"json": {}, "whitespace_pattern": pattern}}, "structured_outputs.whitespace_pattern"
        )
        for pattern in (".", r"\s*", "[^a]", "a", "( ", " )", "*", " {2,1}", "\u00a0", r"\v")
    ],
    Bad({"structured_outputs": {"json": {}, "whitespace_pattern": 5}}, "structured_outputs.whitespace_pattern", TYPE),
    Bad({"response_format": {}}, "response_format.type", VALUE, "text, json_object"),
    Bad({"response_format": {"type": "xml"}}, "response_format.type", VALUE, "text, json_object"),
    Bad({"response_format": {"type": "json_schema"}}, "response_format.json_schema", MISSING),
    Bad({"response_format": {"type": "json_schema", "json_schema": 5}}, "response_format.json_schema", TYPE),
    Bad({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name", MISSING),
    Bad(
        {"response_format": {"type": "json_schema", "json_schema": {"name": 5}}},
        "response_format.json_schema.name",
        TYPE,
    ),
    Bad(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": True}}},
        "response_format.json_schema.schema",
        TYPE,
    ),
    Bad(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": nested(65)}}},
        "response_format.json_schema.schema",
        VALUE,
        "at most 64 levels",
    ),
    Bad(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": "x"}}},
        "response_format.json_schema.strict",
        TYPE,
    ),
    Bad({"response_format": {"type": "json_object", "schema": []}}, "response_format.schema", TYPE),
    Bad({"response_format": {"type": "structural_tag"}}, "response_format.format", VALUE, "structures and triggers"),
    Bad({"response_format": {"type": "structural_tag", "format": "x"}}, "response_format.format", TYPE),
    Bad({"response_format": {"type": "structural_tag", "structures": []}}, "response_format.triggers", MISSING),
    Bad({"response_format": {"type": "structural_tag", "triggers": ["<a"]}}, "response_format.structures", MISSING),
    Bad({"response_format": {"type": "structural_tag", "structures": [], "triggers": []}}, "response_format.triggers"),
    Bad(
        {"response_format": {"type": "structural_tag", "structures": [{"begin": "<a>"}], "triggers": ["<a"]}},
        "response_format.structures.0.end",
        MISSING,
    ),
    Bad(
        {
            "response_format": {
                "type": "structural_tag",
                "structures": [{"begin": "<b>", "end": "</b>"}],
                "triggers": ["<a"],
            }
        },
        "response_format.structures.0.begin",
        VALUE,
        "triggers",
    ),
    # Beam search.
    Bad(
        {"use_beam_search": True, "n": 2, "structured_outputs": {"regex": "a"}}, "use_beam_search", VALUE, "constraint"
    ),
    Bad({"use_beam_search": True, "response_format": {"type": "json_object"}}, "use_beam_search", VALUE, "constraint"),
    Bad(
        {"use_beam_search": True, "tools": [tool()], "tool_choice": "required"}, "use_beam_search", VALUE, "tool_choice"
    ),
    Bad({"use_beam_search": True, "tools": [tool(strict=True)]}, "use_beam_search", VALUE, "strict"),
    Bad(
        {"use_beam_search": True, "logprobs": True, "logprob_token_ids": [1]},
        "use_beam_search",
        VALUE,
        "logprob_token_ids",
    ),
    # Fields of other servers.
    Bad({"metadata": {"k": 5}}, "metadata.k", TYPE),
    Bad({"metadata": {"k" * 65: "v"}}, "metadata", VALUE, "64"),
    Bad({"metadata": {"k\0": "v"}}, "metadata", VALUE, "NUL"),
    Bad({"metadata": {"k": "v" * 513}}, "metadata.k", VALUE, "512"),
    Bad({"metadata": {"k": "\0"}}, "metadata.k", VALUE, "NUL"),
    Bad({"metadata": {str(index): "v" for index in range(17)}}, "metadata", VALUE, "at most 16"),
    Bad({"modalities": []}, "modalities", VALUE, "text only"),
    Bad({"modalities": ["text", "audio"]}, "modalities", UNSUPPORTED, "text only"),
    Bad({"modalities": ["smell"]}, "modalities", VALUE, "text only"),
    Bad({"web_search_options": {}}, "web_search_options", UNSUPPORTED, "cannot search"),
    Bad({"web_search_options": {"search_context_size": "low"}}, "web_search_options", UNSUPPORTED, "cannot search"),
    Bad({"web_search_options": 5}, "web_search_options", TYPE),
    # Several faults: the first step, and in it the first rule or field, answers.
    Bad({"cache_salt": "", "temperature": 5, "structured_outputs": {}}, "cache_salt"),
    Bad(
        {"continue_final_message": True, "add_generation_prompt": True, "function_call": "auto"},
        "continue_final_message",
    ),
    Bad({"function_call": "auto", "structured_outputs": {}, "messages": []}, "function_call"),
    Bad({"tool_choice": "required", "structured_outputs": {}, "top_logprobs": 5}, "tool_choice"),
    Bad({"structured_outputs": {}, "top_logprobs": 5, "stream_options": {"include_usage": True}}, "structured_outputs"),
    Bad(
        {"top_logprobs": 5, "stream_options": {"include_usage": True}, "response_format": {"type": "x"}}, "top_logprobs"
    ),
    Bad(
        {"stream_options": {"include_usage": True}, "response_format": {"type": "x"}, "messages": []}, "stream_options"
    ),
    Bad({"response_format": {"type": "x"}, "messages": [], "n": 0}, "response_format.type"),
    Bad({"messages": [], "model": 5, "n": 0}, "messages"),
    Bad({"temperature": 5, "seed": "x", "n": 0}, "n"),
    Bad({"top_p": 5, "temperature": 5}, "temperature"),
    Bad({"min_tokens": -1, "top_k": -5}, "top_k"),
    Bad({"safety_identifier": 5, "store": "x"}, "store", TYPE),
    Bad({"n": 2, "temperature": 0, "min_tokens": 5, "max_tokens": 4}, "n"),
    Bad({"n": 2, "temperature": 0, "top_p": 5}, "top_p"),
]
