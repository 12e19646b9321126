"""The choice of the next token."""

from __future__ import annotations

from collections import Counter

import pytest

DRAWN = {"temperature": 1, "max_tokens": 16}
LONG = {"max_tokens": 64, "ignore_eos": True}


@pytest.fixture(scope="module")
def greedy_ids(ask) -> list[int]:
    return ask.token_ids()


@pytest.mark.parameter("temperature")
def test_temperature_zero_is_greedy_and_a_higher_one_draws(ask):
    assert ask.text(seed=1) == ask.text(seed=2)
    drawn = [
        {ask.text(temperature=temperature, seed=seed, max_tokens=12) for seed in range(3)} for temperature in (0.01, 2)
    ]
    assert (len(drawn[0]), len(drawn[1])) == (1, 3)
    for bad in (-0.1, 2.1):
        assert ask.refusal(temperature=bad)[0] == "temperature"


@pytest.mark.parametrize("field", [{"top_p": 1e-6}, {"top_k": 1}, {"min_p": 1}], ids=str)
@pytest.mark.parameter("top_p", "top_k", "min_p")
def test_a_filter_that_leaves_one_token_makes_any_draw_greedy(ask, field):
    assert ask.text(temperature=2, seed=3, **field) == ask.text()


@pytest.mark.parametrize("field", [{"top_k": 0}, {"top_k": -1}, {"min_p": 0}], ids=str)
@pytest.mark.parameter("top_k", "min_p")
def test_a_filter_that_is_off_changes_no_draw(ask, field):
    assert ask.text(seed=3, **DRAWN, **field) == ask.text(seed=3, **DRAWN)


@pytest.mark.parameter("top_p")
def test_a_top_p_of_one_switches_the_filter_of_the_model_off(ask):
    wild = {"temperature": 2, "seed": 3, "max_tokens": 16}
    assert ask.text(**wild) == ask.text(**wild, top_p=0.9) != ask.text(**wild, top_p=1)


@pytest.mark.parameter("temperature", "top_p")
def test_absent_sampling_fields_use_the_listed_model_defaults(ask):
    defaults = ask.listed()["default_parameters"]
    assert (defaults["temperature"], defaults["top_p"], defaults["max_completion_tokens"]) == (0.2, 0.9, None)
    assert ask.rendered()["sampling_params"].items() >= {"temperature": 0.2, "top_p": 0.9}.items()
    for seed in range(3):
        assert ask.text(temperature=None, seed=seed, max_tokens=16) == ask.text(
            temperature=0.2, top_p=0.9, seed=seed, max_tokens=16
        )


@pytest.mark.parametrize(
    "field", [{"top_p": 0}, {"top_p": 1.1}, {"top_k": -2}, {"min_p": -0.1}, {"min_p": 1.1}], ids=str
)
@pytest.mark.parameter("top_p", "top_k", "min_p")
def test_a_filter_out_of_its_range_is_refused(ask, field):
    assert ask.refusal(**field)[0] == next(iter(field))


@pytest.mark.parameter("top_k")
def test_every_draw_of_top_k_is_among_the_k_most_likely(ask):
    for entry in ask.logprobs(temperature=2, seed=1, top_k=3, top_logprobs=3, max_tokens=16):
        assert entry["token"] in [other["token"] for other in entry["top_logprobs"]]


@pytest.mark.parametrize(
    "field", [{"presence_penalty": 2}, {"frequency_penalty": 2}, {"repetition_penalty": 1.5}], ids=str
)
@pytest.mark.parameter("presence_penalty", "frequency_penalty", "repetition_penalty")
def test_a_penalty_makes_repeats_rarer(ask, field):
    assert len(set(ask.token_ids(**LONG, **field))) > len(set(ask.token_ids(**LONG)))


@pytest.mark.parametrize(
    "field", [{"presence_penalty": -2}, {"frequency_penalty": -2}, {"repetition_penalty": 0.5}], ids=str
)
@pytest.mark.parameter("presence_penalty", "frequency_penalty", "repetition_penalty")
def test_a_reward_makes_repeats_more(ask, field):
    drawn = {**LONG, "temperature": 1, "seed": 5}
    assert len(set(ask.token_ids(**drawn, **field))) < len(set(ask.token_ids(**drawn)))


@pytest.mark.parametrize(
    "field",
    [{"presence_penalty": 2.1}, {"frequency_penalty": -2.1}, {"repetition_penalty": 0}, {"repetition_penalty": -1}],
    ids=str,
)
@pytest.mark.parameter("presence_penalty", "frequency_penalty", "repetition_penalty")
def test_a_penalty_out_of_its_range_is_refused(ask, field):
    assert ask.refusal(**field)[0] == next(iter(field))


@pytest.mark.parameter("seed")
def test_a_seed_repeats_the_draw_and_none_does_not(ask):
    assert ask.text(seed=11, **DRAWN) == ask.text(seed=11, **DRAWN)
    assert len({ask.text(seed=seed, **DRAWN) for seed in (11, 12, 13)}) == 3
    assert len({ask.text(seed=-1, temperature=2, max_tokens=16) for _ in range(3)}) == 3


@pytest.mark.parameter("logit_bias")
def test_a_bias_forces_a_token_or_forbids_it(ask, greedy_ids):
    first, other = greedy_ids[0], greedy_ids[3]
    assert ask.token_ids(logit_bias={str(first): -100})[0] != first
    assert ask.token_ids(logit_bias={str(other): 100}) == [other] * 8
    assert ask.token_ids(logit_bias={str(other): 5000}) == [other] * 8, "clamped"
    for bad in ([], {"x": 1}, {"999999": 1}, {"-1": 1}, {"5": "much"}):
        assert ask.refusal(logit_bias=bad)[0].startswith("logit_bias")


@pytest.mark.parameter("allowed_token_ids")
def test_only_allowed_tokens_come(ask, greedy_ids):
    allowed = sorted(set(greedy_ids[:3]))
    assert set(ask.token_ids(allowed_token_ids=allowed, temperature=2, seed=1, max_tokens=20)) <= set(allowed)
    for bad in ([], [999_999], [-1], ["a"]):
        assert ask.refusal(allowed_token_ids=bad)[0].startswith("allowed_token_ids")


@pytest.mark.parameter("bad_words")
def test_a_bad_word_never_comes_alone_or_after_a_space(ask):
    assert "vast" in ask.text(max_tokens=16), "what it says by itself"
    text = ask.text(max_tokens=48, bad_words=["vast", "mysterious realm"])
    assert "vast" not in text
    assert "mysterious realm" not in text
    for bad in ([""], ["x"] * 129, [5]):
        assert ask.refusal(bad_words=bad)[0].startswith("bad_words")


@pytest.fixture(scope="module")
def processing(ask):
    """A client that may use logits processors."""
    asker = ask.with_rights("logits_processors")
    yield asker
    asker.close()


def pairs(token_ids: list[int]) -> Counter[tuple[int, int]]:
    return Counter(zip(token_ids, token_ids[1:], strict=False))


@pytest.mark.parameter("logits_processors")
def test_a_registered_processor_works_on_the_logits(ask, processing):
    guard = {"qualname": "no_repeat_ngram", "kwargs": {"ngram_size": 2}}
    assert max(pairs(ask.token_ids(**LONG)).values()) > 1
    assert max(pairs(processing.token_ids(logits_processors=[guard], **LONG)).values()) == 1
    positional = {"qualname": "no_repeat_ngram", "args": [2]}
    assert processing.token_ids(logits_processors=[positional], **LONG) == processing.token_ids(
        logits_processors=[guard], **LONG
    )


BAD_PROCESSORS = [
    ["os.system"],
    [{"qualname": "no_repeat_ngram"}],
    [{"qualname": "no_repeat_ngram", "args": ["x"]}],
    [{"qualname": "no_repeat_ngram", "args": [2], "path": 1}],
]


@pytest.mark.parametrize("bad", BAD_PROCESSORS, ids=str)
@pytest.mark.parameter("logits_processors")
def test_unregistered_processors_and_undeclared_arguments_are_refused(processing, bad):
    assert processing.refusal(logits_processors=bad)[0].startswith("logits_processors")


@pytest.mark.parameter("logits_processors")
def test_processors_need_a_right(ask):
    assert ask.refusal(logits_processors=[{"qualname": "no_repeat_ngram", "args": [2]}])[0] == "logits_processors"
    assert ask.post(logits_processors=[]).status_code == 200


@pytest.mark.parameter("vllm_xargs")
def test_processors_read_the_extra_arguments(ask, processing):
    fed = processing.token_ids(logits_processors=["no_repeat_ngram"], vllm_xargs={"ngram_size": 2}, **LONG)
    assert max(pairs(fed).values()) == 1
    assert ask.token_ids(vllm_xargs={"ngram_size": 2}, **LONG) == ask.token_ids(**LONG), "nobody reads them"
    assert ask.refusal(vllm_xargs={"a": {"b": 1}})[0].startswith("vllm_xargs")
