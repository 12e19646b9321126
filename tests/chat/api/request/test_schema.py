"""The request schema: fields in the specified order, exact errors for bad values, unsupported fields refused."""

import json
from dataclasses import replace

import pytest
from django.conf import settings

from chat.api.request.parse import request_parse
from chat.api.request.schema import ChatCompletionRequest
from chat.errors import ApiError
from tests.chat.api.request.bad_requests import BAD
from tests.chat.api.request.bad_values import MESSAGES, NOT_NULL, Bad, nested, tool

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
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_whitespace_pattern",
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


def check(**fields):
    return request_parse({"messages": MESSAGES, **fields})


def refused(**fields) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(**fields)
    return caught.value


def test_fields_are_checked_in_the_specified_order():
    assert list(ChatCompletionRequest().fields) == SPECIFIED_ORDER


@pytest.mark.parametrize("name", SPECIFIED_ORDER)
def test_null_equals_absent_except_for_non_nullable_fields(name):
    if name in NOT_NULL:
        error = refused(**{name: None})
        assert (error.code, error.param) == ("invalid_type", name)
    else:
        assert check(**{name: None}) == check()


def test_unknown_fields_are_ignored_and_named():
    """A misspelt field was silently accepted without effect."""
    parsed = check(best_of=10**9, api_base="http://10.0.0.1", nothing=None, **{"🙂": 1})
    assert parsed.delivery.ignored == ("best_of", "api_base", "🙂")
    assert replace(parsed, delivery=replace(parsed.delivery, ignored=())) == check()


def assert_refused(bad: Bad, **more) -> None:
    with pytest.raises(ApiError) as caught:
        request_parse(bad.body() | more)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, bad.code, bad.param)
    assert error.message.startswith(bad.param)
    assert bad.says in error.message
    assert len(error.message) <= 4_000


@pytest.mark.parametrize("bad", BAD, ids=[bad.name for bad in BAD])
def test_a_bad_value_names_its_field_the_limit_and_the_remedy(bad):
    assert_refused(bad)


def test_bad_values_are_refused_alike_for_streams():
    for bad in BAD:
        if bad.may_stream:
            assert_refused(bad, stream=True)


def test_the_table_of_bad_values_covers_every_field():
    assert len(BAD) >= 300
    named = {bad.param.split(".")[0] for bad in BAD}
    assert set(SPECIFIED_ORDER) - named == set()


def test_missing_messages_are_a_missing_parameter():
    with pytest.raises(ApiError) as caught:
        request_parse({"model": "m"})
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
    {"min_tokens": "3", "max_tokens": 3.0},
    {"top_logprobs": 0, "logprobs": False},
    {"top_logprobs": None},
    {"logprob_token_ids": []},
    {"prompt_logprobs": 0, "stream": True},
    {"truncate_prompt_tokens": -1},
    {"allowed_token_ids": [0]},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"documents": []},
    {"web_search_options": None},
    {"structured_outputs": {"disable_any_whitespace": False}, "response_format": {"type": "json_object"}},
    {"structured_outputs": {"whitespace_pattern": " ?"}, "tools": [tool()], "tool_choice": "required"},
    {"structured_outputs": {"regex": "a", "_backend": "x", "_backend_was_auto": True}},
    {"tools": [tool(parameters=nested(64))]},
    {"tools": [tool(parameters={"type": ["object", "null"]})]},
    {"tools": [tool(parameters={"additionalProperties": False, "not": {}})]},
    {"use_beam_search": True, "n": 4, "temperature": 0, "tools": [tool()]},
    {"use_beam_search": True, "response_format": {"type": "text"}},
    {"thinking_token_budget": -1},
    {"service_tier": "scale"},
]


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_a_valid_value_is_accepted(fields):
    assert check(**fields)


def test_at_most_ten_problems_are_reported_with_the_first_field_as_param():
    fields = dict.fromkeys(
        (
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "n",
            "seed",
            "max_tokens",
            "user",
            "stop",
            "metadata",
            "priority",
            "min_tokens",
        ),
        [[]],
    )
    error = refused(**fields)
    assert error.param == "max_tokens"
    assert error.message.count(";") == 9
    assert len(error.message) <= 16_384


def test_continuous_usage_switches_usage_on_unless_it_is_refused():
    def options(**given):
        response = check(stream=True, stream_options=given).response
        return response.include_usage, response.continuous_usage

    assert options(continuous_usage_stats=True) == (True, True)
    assert options(continuous_usage_stats=True, include_usage=False) == (False, False)


def test_the_limit_of_stop_strings_follows_the_settings():
    assert refused(stop=["x"] * (settings.LIGHTCONE_LIMITS.max_stop_strings + 1)).param == "stop"


def test_errors_stay_small_for_any_echoed_value():
    long = "🙂\\" * 50_000
    error = refused(
        vllm_xargs={long: None},
        metadata={long: 1},
        documents=[{long: 5}],
        stop=[long],
        user=[long],
        verbosity=long,
        n=long,
    )
    assert (
        len(json.dumps({"error": error.described(), "message": error.message}, ensure_ascii=False).encode()) <= 16_384
    )
    assert len(refused(documents=[{long: 5}]).param) <= 200
