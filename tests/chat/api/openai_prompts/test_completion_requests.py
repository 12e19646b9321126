"""Requests of text completions: shared fields have the effect of chats, and errors name the sent field."""

import pytest

from chat.access.checks import Right
from chat.access.keys import Caller
from chat.api.openai.dialect import TEXT_COMPLETIONS
from chat.api.request.build import rights_check
from chat.api.request.parse import request_parse
from chat.api.request.schema import ChatCompletionRequest
from chat.api.request.text_schema import CompletionRequest
from chat.errors import ApiError
from engine.api import RepetitionRule
from tests.chat.api.request.building import generation_built

CALLER = Caller(1, "a", 1, 1, "1", frozenset(Right.values), min_priority=-10)

SHARED = {
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 2},
    "n": 2,
    "presence_penalty": 0.25,
    "response_format": {"type": "json_object"},
    "seed": 5,
    "stop": ["x"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 3,
    "min_p": 0.1,
    "repetition_penalty": 1.5,
    "stop_token_ids": [4],
    "include_stop_str_in_output": True,
    "ignore_eos": True,
    "min_tokens": 2,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "truncate_prompt_tokens": 7,
    "truncation_side": "right",
    "prompt_logprobs": 2,
    "allowed_token_ids": [1, 2],
    "bad_words": ["b"],
    "structured_outputs": {"regex": "a+"},
    "priority": 3,
    "logits_processors": ["p"],
    "cache_salt": "salt",
    "vllm_xargs": {"a": 1},
    "repetition_detection": {"max_pattern_size": 4, "min_count": 2},
    "service_tier": "flex",
    "prediction": {"type": "content", "content": "draft"},
    "prompt_cache_key": "k",
}


def built(**fields):
    return generation_built(TEXT_COMPLETIONS.parse({"prompt": "p", **fields}).of(0), CALLER)


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_field_has_the_same_effect_as_in_a_chat(name):
    fields = {name: SHARED[name], "max_tokens": 16}
    asked = generation_built(request_parse({"messages": [{"role": "user", "content": "hi"}], **fields}), CALLER)
    mine, plain = built(**fields), built()
    parts = (
        "sampling",
        "stop",
        "logprobs",
        "constraint",
        "num_choices",
        "beam",
        "prediction",
        "priority",
        "cache_salt",
        "group",
    )
    assert {part: getattr(mine, part) for part in parts} == {part: getattr(asked, part) for part in parts}
    assert (mine.prompt.truncate_to, mine.prompt.truncation_side) == (
        asked.prompt.truncate_to,
        asked.prompt.truncation_side,
    )
    relevant = (*parts, "prompt")
    assert any(getattr(mine, part) != getattr(plain, part) for part in relevant), "the field changes something"


def test_every_chat_field_is_shared_or_specific_to_messages():
    """Fails for a new chat field until it is assigned here."""
    chat_only = {
        *(
            "messages",
            "top_logprobs",
            "max_completion_tokens",
            "tools",
            "tool_choice",
            "reasoning_effort",
            "include_reasoning",
        ),
        *("parallel_tool_calls", "add_generation_prompt", "continue_final_message", "documents", "chat_template"),
        *(
            "chat_template_kwargs",
            "mm_processor_kwargs",
            "thinking_token_budget",
            "return_prompt_text",
            "media_io_kwargs",
            "store",
        ),
        *(
            "modalities",
            "audio",
            "functions",
            "function_call",
            "verbosity",
            "web_search_options",
            "prompt_cache_retention",
        ),
    }
    assert set(ChatCompletionRequest().fields) - set(CompletionRequest().fields) == chat_only


def test_chat_only_fields_are_unknown_to_text_completions():
    built(messages=5, tools="x", max_completion_tokens="x", thinking_token_budget=[], unheard_of=1)


def test_beam_search_and_the_best_of_several_reach_the_engine():
    assert built(use_beam_search=True, n=2, length_penalty=0.5).beam.length_penalty == 0.5
    request = built(best_of=3, n=2)
    assert (request.best_of, request.num_choices) == (3, 2)
    assert built(repetition_detection={"max_pattern_size": 4, "min_count": 2}).stop.repetition == RepetitionRule(
        4, 1, 2
    )


REFUSALS = [
    ({"prompt": None}, "invalid_type", "prompt"),
    ({}, "missing_required_parameter", "prompt"),
    ({"prompt_embeds": 5}, "invalid_type", "prompt_embeds"),
    ({"prompt_embeds": ["a", 5]}, "invalid_type", "prompt_embeds"),
    ({"prompt_embeds": []}, "invalid_value", "prompt_embeds"),
    ({"prompt_embeds": ["a"] * 129}, "invalid_value", "prompt_embeds"),
    ({"prompt_embeds": ["a"] * 100, "prompt": ["b"] * 100}, "invalid_value", "prompt_embeds"),
    ({"prompt_embeds": "a", "echo": True}, "invalid_value", "echo"),
    ({"prompt_embeds": "a", "suffix": "b"}, "invalid_value", "suffix"),
    ({"prompt_embeds": "a", "prompt_logprobs": 1}, "invalid_value", "prompt_logprobs"),
    ({"prompt_embeds": "a", "return_token_ids": True}, "invalid_value", "return_token_ids"),
    ({"prompt": 5}, "invalid_type", "prompt"),
    ({"prompt": {}}, "invalid_type", "prompt"),
    ({"prompt": []}, "invalid_value", "prompt"),
    ({"prompt": ["a", 5]}, "invalid_type", "prompt.1"),
    ({"prompt": [5, "a"]}, "invalid_type", "prompt.1"),
    ({"prompt": [5, -1]}, "invalid_value", "prompt.1"),
    ({"prompt": [5, 1.5]}, "invalid_type", "prompt.1"),
    ({"prompt": [True]}, "invalid_type", "prompt.0"),
    ({"prompt": [[5], [-1]]}, "invalid_value", "prompt.1.0"),
    ({"prompt": [[5], []]}, "invalid_value", "prompt.1"),
    ({"prompt": ["a"] * 129}, "invalid_value", "prompt"),
    ({"prompt": ["a"] * 65, "n": 2}, "invalid_value", "n"),
    ({"prompt": ["a"] * 33, "n": 2, "best_of": 4}, "invalid_value", "best_of"),
    ({"prompt": "a", "max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"prompt": "a", "max_tokens": -1, "echo": True}, "invalid_value", "max_tokens"),
    ({"prompt": "a", "max_tokens": 200_000, "n": 2}, "invalid_value", "n"),
    ({"prompt": "a", "max_tokens": 200_000, "best_of": 2}, "invalid_value", "best_of"),
    ({"prompt": "a", "best_of": 1, "n": 2}, "invalid_value", "best_of"),
    ({"prompt": "a", "best_of": 2, "stream": True}, "invalid_value", "best_of"),
    ({"prompt": "a", "best_of": 2, "temperature": 0}, "invalid_value", "best_of"),
    ({"prompt": "a", "best_of": 2, "n": 2, "use_beam_search": True}, "invalid_value", "best_of"),
    ({"prompt": "a", "best_of": 0}, "invalid_value", "best_of"),
    ({"prompt": "a", "n": 2, "temperature": 0}, "invalid_value", "n"),
    ({"prompt": "a", "logprobs": 21}, "invalid_value", "logprobs"),
    ({"prompt": "a", "logprobs": -2}, "invalid_value", "logprobs"),
    ({"prompt": "a", "logprobs": "5"}, "invalid_type", "logprobs"),
    ({"prompt": "a", "logprobs": 20, "echo": True, "n": 4}, "invalid_value", "n"),
    ({"prompt": "a", "prompt_logprobs": 0, "n": 65}, "invalid_value", "n"),
    ({"prompt": "a", "suffix": 5}, "invalid_type", "suffix"),
    ({"prompt": "a", "suffix": "b", "echo": True}, "invalid_value", "suffix"),
    ({"prompt": "a", "echo": "maybe"}, "invalid_type", "echo"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
    ({"prompt": "a", "stream": True, "prompt_logprobs": 1}, "invalid_value", "prompt_logprobs"),
    ({"prompt": "a", "logprob_token_ids": [1]}, "invalid_value", "logprob_token_ids"),
    ({"prompt": "a", "min_tokens": 17}, "invalid_value", "min_tokens"),
    ({"prompt": "a", "cache_salt": ""}, "invalid_value", "cache_salt"),
    (
        {"prompt": "a", "structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
        "invalid_value",
        "structured_outputs",
    ),
    ({"prompt": "a", "add_special_tokens": None}, "invalid_type", "add_special_tokens"),
]


@pytest.mark.parametrize(("body", "code", "param"), REFUSALS, ids=str)
def test_an_invalid_request_is_refused_with_its_field(body, code, param):
    with pytest.raises(ApiError) as refused:
        TEXT_COMPLETIONS.parse(body)
    assert (refused.value.code, refused.value.param) == (code, param)
    assert refused.value.message.startswith(param.partition(".")[0])


@pytest.mark.parametrize(
    "fields", [{"logprobs": 20, "echo": True, "n": 3}, {"logprobs": 20, "n": 128}, {"prompt_logprobs": 20}], ids=str
)
def test_only_prompt_scores_repeated_by_choices_are_limited(fields):
    assert built(**fields, max_tokens=4).num_choices == fields.get("n", 1)


def test_best_of_equal_to_n_may_stream():
    assert built(best_of=2, n=2, stream=True).num_sequences == 2


def test_chosen_ids_go_with_log_probabilities_of_no_alternatives():
    """Here 0 is a number of alternatives and asks for log-probabilities."""
    options = built(logprobs=0, logprob_token_ids=[5, 6]).logprobs
    assert (options.enabled, options.top, options.token_ids) == (True, 0, (5, 6))


@pytest.mark.parametrize("logprobs", [None, False])
def test_chosen_ids_without_log_probabilities_are_refused(logprobs):
    with pytest.raises(ApiError) as refused:
        built(logprobs=logprobs, logprob_token_ids=[5])
    assert refused.value.param == "logprob_token_ids"


@pytest.mark.parametrize(
    ("fields", "param", "sent"),
    [({"logprobs": 3}, "top_logprobs", "logprobs"), ({"logprobs": 3, "echo": True}, "prompt_logprobs", "logprobs")],
)
def test_an_engine_refusal_names_the_sent_field(fields, param, sent):
    names = TEXT_COMPLETIONS.parse({"prompt": "p", **fields}).field_names
    error = ApiError("invalid_value", f"{param} must be less", param)
    error.rename_fields(names)
    assert (error.message, error.param) == (f"{sent} must be less", sent)
    other = ApiError("invalid_value", "prompt.0 is long", "prompt.0")
    other.rename_fields(names)
    assert (other.message, other.param) == ("prompt.0 is long", "prompt.0")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"prompt_embeds": "a"}, [("a", "prompt_embeds")]),
        ({"prompt_embeds": "a", "prompt": ""}, [("a", "prompt_embeds")]),
        ({"prompt_embeds": "a", "prompt": None}, [("a", "prompt_embeds")]),
        ({"prompt_embeds": ["a", "b"]}, [("a", "prompt_embeds.0"), ("b", "prompt_embeds.1")]),
        (
            {"prompt_embeds": "a", "prompt": ["x", "y"]},
            [("a", "prompt_embeds"), (None, "prompt.0"), (None, "prompt.1")],
        ),
    ],
    ids=str,
)
def test_prompts_of_vectors_come_before_those_of_text(body, expected):
    assert [(raw.embeds, raw.param) for raw in TEXT_COMPLETIONS.parse(body).prompts] == expected


def test_vectors_need_the_setting_and_the_right(settings):
    parsed = TEXT_COMPLETIONS.parse({"prompt_embeds": "a"}).of(0)
    plain = Caller(1, "a", 1, 1, "1", frozenset({"inference"}))
    for takes, caller, words in ((False, CALLER, "LIGHTCONE_EMBEDS"), (True, plain, "Send vectors as inputs")):
        settings.LIGHTCONE_EMBEDS = takes
        with pytest.raises(ApiError) as refused:
            rights_check(parsed, model="m", caller=caller)
        assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "prompt_embeds")
        assert words in refused.value.message
    settings.LIGHTCONE_EMBEDS = True
    assert rights_check(parsed, model="m", caller=CALLER)
