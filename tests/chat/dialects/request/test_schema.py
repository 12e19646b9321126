"""The request schema: every field in the specified order, exact answers to bad values, and a plain no to what comes later."""

import pytest
from django.conf import settings

from chat.dialects.request.schema import ChatCompletionRequest, request_check
from chat.errors import ApiError

SPECIFIED_ORDER = [
    "messages",
    "model",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "tools",
    "tool_choice",
    "reasoning_effort",
    "include_reasoning",
    "parallel_tool_calls",
    "user",
    "use_beam_search",
    "top_k",
    "min_p",
    "repetition_penalty",
    "length_penalty",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "allowed_token_ids",
    "bad_words",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "structured_outputs",
    "priority",
    "request_id",
    "logits_processors",
    "return_tokens_as_token_ids",
    "return_token_ids",
    "cache_salt",
    "kv_transfer_params",
    "vllm_xargs",
    "thinking_token_budget",
    "stream_interval",
    "logprob_token_ids",
    "return_prompt_text",
    "truncation_side",
    "repetition_detection",
    "media_io_kwargs",
    "store",
    "metadata",
    "service_tier",
    "prediction",
    "modalities",
    "audio",
    "functions",
    "function_call",
    "verbosity",
    "web_search_options",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
]

NOT_NULL = [
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
]

MESSAGES = [{"role": "user", "content": "hi"}]


def check(**fields):
    return request_check({"messages": MESSAGES, **fields})


def refused(**fields) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(**fields)
    return caught.value


def test_fields_are_checked_in_the_specified_order():
    assert list(ChatCompletionRequest().fields) == SPECIFIED_ORDER


@pytest.mark.parametrize("name", SPECIFIED_ORDER)
def test_null_equals_absent_but_for_the_fields_typed_without_it(name):
    if name in NOT_NULL:
        error = refused(**{name: None})
        assert (error.code, error.param) == ("invalid_type", name)
    else:
        assert check(**{name: None}) == check()


def test_unknown_fields_are_ignored():
    assert check(best_of=10**9, api_base="http://10.0.0.1", **{"🙂": 1}) == check()


BAD = [
    ({"temperature": -0.1}, "invalid_value", "temperature"),
    ({"temperature": 2.1}, "invalid_value", "temperature"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"top_p": 0}, "invalid_value", "top_p"),
    ({"top_p": 1.01}, "invalid_value", "top_p"),
    ({"top_k": -2}, "invalid_value", "top_k"),
    ({"top_k": 2.5}, "invalid_type", "top_k"),
    ({"min_p": -0.1}, "invalid_value", "min_p"),
    ({"presence_penalty": 3}, "invalid_value", "presence_penalty"),
    ({"frequency_penalty": -2.5}, "invalid_value", "frequency_penalty"),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"seed": 2**63}, "invalid_value", "seed"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 1_000_000_000}, "invalid_value", "n"),
    ({"n": 2, "temperature": 0}, "invalid_value", "n"),
    ({"n": 128, "max_tokens": 10_000}, "invalid_value", "n"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
    ({"max_tokens": 4, "min_tokens": 5}, "invalid_value", "min_tokens"),
    ({"min_tokens": -1}, "invalid_value", "min_tokens"),
    ({"stop": ""}, "invalid_value", "stop"),
    ({"stop": 5}, "invalid_type", "stop"),
    ({"stop": ["a", 5]}, "invalid_type", "stop.1"),
    ({"stop": ["x" * 1025]}, "invalid_value", "stop.0"),
    ({"stop": ["x"] * 33}, "invalid_value", "stop"),
    ({"stop_token_ids": [1, -1]}, "invalid_value", "stop_token_ids.1"),
    ({"stop_token_ids": [2**64]}, "invalid_value", "stop_token_ids.0"),
    ({"stop_token_ids": [1] * 1025}, "invalid_value", "stop_token_ids"),
    ({"logprobs": 5}, "invalid_type", "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": "5"}, "invalid_type", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "invalid_value", "top_logprobs"),
    ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
    ({"stream_options": {"include_usage": True}, "stream": "false"}, "invalid_value", "stream_options"),
    ({"stream_options": {"include_usage": "maybe"}, "stream": True}, "invalid_type", "stream_options.include_usage"),
    ({"stream": "perhaps"}, "invalid_type", "stream"),
    ({"user": 5}, "invalid_type", "user"),
    ({"user": "a\0b"}, "invalid_value", "user"),
    ({"model": "m" * 257}, "invalid_value", "model"),
    ({"model": 7}, "invalid_type", "model"),
    ({"request_id": "a b"}, "invalid_value", "request_id"),
    ({"request_id": "x" * 129}, "invalid_value", "request_id"),
    ({"request_id": "line\n"}, "invalid_value", "request_id"),
    ({"cache_salt": ""}, "invalid_value", "cache_salt"),
    ({"cache_salt": 5}, "invalid_type", "cache_salt"),
    ({"cache_salt": "a\x00"}, "invalid_value", "cache_salt"),
    ({"cache_salt": "a" * 129}, "invalid_value", "cache_salt"),
    ({"metadata": {"k": 5}}, "invalid_type", "metadata.k"),
    ({"metadata": {"k" * 65: "v"}}, "invalid_value", "metadata"),
    ({"metadata": {str(i): "v" for i in range(17)}}, "invalid_value", "metadata"),
    ({"metadata": []}, "invalid_type", "metadata"),
    ({"modalities": []}, "invalid_value", "modalities"),
    ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    ({"service_tier": "gold"}, "invalid_value", "service_tier"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "invalid_value", "tool_choice"),
    ({"tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
    ({"function_call": "auto"}, "invalid_value", "function_call"),
    ({"functions": [{"name": "f"}], "tools": [{}]}, "invalid_value", "functions"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "invalid_value", "continue_final_message"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "invalid_value", "structured_outputs"),
    ({"response_format": "json"}, "invalid_type", "response_format"),
    ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "invalid_value", "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "invalid_value", "response_format.json_schema.name"),
    ({"vllm_xargs": {"a": {"b": 1}}}, "invalid_type", "vllm_xargs.a"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": "hi"}, "invalid_type", "messages"),
    ({"messages": [{}] * 10_001}, "invalid_value", "messages"),
]


@pytest.mark.parametrize(("fields", "code", "param"), BAD, ids=[f"{param}-{index}" for index, (_, _, param) in enumerate(BAD)])
def test_a_bad_value_names_its_field(fields, code, param):
    error = refused(**fields)
    assert (error.status, error.code, error.param) == (400, code, param)
    assert param.split(".")[0] in error.message


def test_missing_messages_are_a_missing_parameter():
    with pytest.raises(ApiError) as caught:
        request_check({"model": "m"})
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "messages")


GOOD = [
    {"temperature": "0.5"},
    {"n": "2", "temperature": 1},
    {"top_k": -1},
    {"seed": -1},
    {"seed": -(2**63)},
    {"stop": "x"},
    {"stop": []},
    {"stream_options": {}},
    {"stream": "true", "stream_options": {"include_usage": None, "continuous_usage_stats": 1}},
    {"tools": [], "tool_choice": "auto"},
    {"tool_choice": "none"},
    {"functions": [], "function_call": "none"},
    {"response_format": {"type": "text"}},
    {"logit_bias": {}},
    {"kv_transfer_params": {"do_remote_decode": False}},
    {"modalities": ["text"], "audio": {"voice": "ash", "format": "wav"}},
    {"store": True, "metadata": {"k": "v"}, "prompt_cache_retention": "24h", "safety_identifier": "u"},
    {"service_tier": "auto"},
    {"reasoning_effort": None},
    {"cache_salt": "@/\\"},
    {"vllm_xargs": {"a": [1, "b"], "c": True}},
    {"parallel_tool_calls": False},
    {"length_penalty": 3},
]


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_a_good_value_passes(fields):
    assert check(**fields)


LATER = {
    "logit_bias": {"5": 1},
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "reasoning_effort": "low",
    "include_reasoning": False,
    "use_beam_search": True,
    "spaces_between_special_tokens": False,
    "truncate_prompt_tokens": 5,
    "prompt_logprobs": 0,
    "allowed_token_ids": [5],
    "bad_words": ["x"],
    "echo": True,
    "continue_final_message": True,
    "documents": [{"title": "t"}],
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"enable_thinking": False},
    "mm_processor_kwargs": {"a": 1},
    "structured_outputs": {"regex": "a"},
    "logits_processors": ["x"],
    "return_tokens_as_token_ids": True,
    "return_token_ids": True,
    "kv_transfer_params": {"remote_host": "10.0.0.1"},
    "thinking_token_budget": 5,
    "stream_interval": 4,
    "return_prompt_text": True,
    "truncation_side": "right",
    "repetition_detection": {"max_pattern_size": 4, "min_count": 3},
    "media_io_kwargs": {"image": {}},
    "service_tier": "flex",
    "prediction": {"type": "content", "content": "x"},
    "functions": [{"name": "f"}],
    "verbosity": "low",
    "web_search_options": {"search_context_size": "low"},
}


@pytest.mark.parametrize(("name", "value"), LATER.items(), ids=LATER.keys())
def test_a_field_that_comes_later_is_refused_by_name_never_dropped(name, value):
    error = refused(**{name: value})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert "not supported" in error.message


def test_at_most_ten_problems_are_told_and_the_first_field_leads():
    fields = dict.fromkeys(
        ("temperature", "top_p", "top_k", "min_p", "n", "seed", "max_tokens", "user", "stop", "metadata", "priority", "min_tokens"), [[]]
    )
    error = refused(**fields)
    assert error.param == "max_tokens"
    assert error.message.count(";") == 9
    assert len(error.message) <= 16_384


def test_continuous_usage_switches_usage_on_unless_it_is_refused():
    def options(**given):
        return check(stream=True, stream_options=given)["stream_options"]

    assert options(continuous_usage_stats=True) == {"include_usage": True, "continuous_usage_stats": True}
    assert options(continuous_usage_stats=True, include_usage=False) == {"include_usage": False, "continuous_usage_stats": False}


def test_one_field_per_limit_of_the_settings():
    assert refused(stop=["x"] * (settings.LIGHTCONE_LIMITS.max_stop_strings + 1)).param == "stop"
