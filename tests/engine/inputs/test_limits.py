"""Requests beyond the model's limits are refused with the value, the limit and the remedy."""

import pytest

from engine.api import GenerationRequest, LogprobOptions, SamplingParams, StopRules
from engine.api.errors import ErrorCode, RequestError
from engine.inputs.limits import (
    ContextLimits,
    check_alternatives,
    check_prompt_ids,
    check_token_ids,
    choice_token_limit,
)

LIMITS = ContextLimits(max_model_len=4096, logits_width=1000)


def limit(num_prompt_tokens, num_choices=1, **rules):
    request = GenerationRequest("run", "model", (), 0.0, stop=StopRules(**rules), num_choices=num_choices)
    return choice_token_limit(request, num_prompt_tokens, LIMITS)


def refusal(*args, **rules):
    with pytest.raises(RequestError) as caught:
        limit(*args, **rules)
    return caught.value


def test_context_length_exceeded_has_the_message_that_clients_search_for():
    assert refusal(4800, max_tokens=200).message == (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4800 in the messages, "
        "200 in the completion). Please reduce the length of the messages or completion. (context_length_exceeded)"
    )
    without_limit = refusal(5000)
    assert "you requested 5000 tokens (5000 in the messages)." in without_limit.message
    assert (without_limit.code, without_limit.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages")


def test_a_prompt_must_leave_room_for_one_token():
    assert limit(4095) == 1
    assert refusal(4096).code == ErrorCode.CONTEXT_LENGTH_EXCEEDED


def test_a_prompt_alone_may_fill_the_context():
    assert limit(4096, max_tokens=0) == limit(5, max_tokens=0, must_fit=True) == 0
    assert refusal(4097, max_tokens=0).code == ErrorCode.CONTEXT_LENGTH_EXCEEDED


def test_the_limit_is_lowered_to_what_the_prompt_leaves():
    assert limit(4000, max_tokens=200) == 96
    assert limit(4000) == 96
    assert limit(10, max_tokens=200) == 200
    assert limit(4000, max_tokens=4097) == 96
    assert limit(4000, max_tokens=10**9) == 96


def test_prompt_and_limit_beyond_the_context_are_refused_if_they_must_fit():
    assert limit(4000, max_tokens=96, must_fit=True) == 96
    assert limit(4000, must_fit=True) == 96
    error = refusal(4000, max_tokens=97, must_fit=True)
    assert (error.code, error.param) == (ErrorCode.CONTEXT_LENGTH_EXCEEDED, "messages")
    assert "you requested 4097 tokens (4000 in the messages, 97 in the completion)." in error.message
    assert refusal(10, max_tokens=10**9, must_fit=True).code == ErrorCode.CONTEXT_LENGTH_EXCEEDED


def test_absent_limit_is_the_servers_default_or_the_rest_of_the_context():
    assert limit(10, absent_max_tokens=2048) == 2048
    assert limit(10, absent_max_tokens=131_072) == 4086
    assert limit(10, max_tokens=200, absent_max_tokens=100) == 200


@pytest.mark.parametrize(
    ("rules", "param"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 0, "min_tokens": 1}, "min_tokens"),
        ({"max_tokens": 10, "min_tokens": 11}, "min_tokens"),
        ({"min_tokens": 4096}, "min_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(rules, param):
    error = refusal(10, **rules)
    assert (error.code, error.param) == (ErrorCode.INVALID_VALUE, param)


@pytest.mark.parametrize("token_id", [-1, 1000, 1001, 10**12, 2**63])
@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("stop_token_ids", lambda i: {"stop": StopRules(stop_token_ids=(5, i), min_tokens=5)}),
        ("allowed_token_ids", lambda i: {"sampling": SamplingParams(allowed_token_ids=(5, i))}),
        ("logit_bias", lambda i: {"sampling": SamplingParams(logit_bias=((5, 1.0), (i, 1.0)))}),
        ("logprob_token_ids", lambda i: {"logprobs": LogprobOptions(True, 0, (5, i))}),
    ],
)
def test_an_id_without_a_logit_is_refused_by_the_name_of_its_list(param, fields, token_id):
    """Hostile 2.1, 2.3, 2.4: such an id would be read or written in the row of a neighbour."""
    check_token_ids(GenerationRequest("run", "model", (), 0.0, **fields(999)), LIMITS)
    with pytest.raises(RequestError, match="0 to 999") as caught:
        check_token_ids(GenerationRequest("run", "model", (), 0.0, **fields(token_id)), LIMITS)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_VALUE, param)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (LogprobOptions(True, -1, max_all=999), "top_logprobs"),
        (LogprobOptions(prompt=-1, max_all=999), "prompt_logprobs"),
        (LogprobOptions(True, -1, max_all=1000), None),
        (LogprobOptions(True, 20, max_all=20), None),
        (LogprobOptions(True, -1), None),
    ],
)
def test_the_whole_vocabulary_counts_as_its_size(options, param):
    request = GenerationRequest("run", "model", (), 0.0, logprobs=options)
    if param is None:
        check_alternatives(request, LIMITS)
        return
    with pytest.raises(RequestError, match="1000 tokens") as caught:
        check_alternatives(request, LIMITS)
    assert caught.value.param == param


def test_an_empty_list_of_allowed_ids_is_refused():
    with pytest.raises(RequestError) as caught:
        check_token_ids(
            GenerationRequest("run", "model", (), 0.0, sampling=SamplingParams(allowed_token_ids=())), LIMITS
        )
    assert caught.value.param == "allowed_token_ids"


def test_a_token_of_the_tokenizer_that_the_model_lacks_is_refused():
    """Its index error in the embedding ended every sequence of the step."""
    check_prompt_ids([0, 999], LIMITS)
    with pytest.raises(RequestError, match="1000") as caught:
        check_prompt_ids([5, 1000, 7], LIMITS)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_VALUE, "messages")


def test_an_empty_prompt_is_refused():
    assert refusal(0).param == "messages"
