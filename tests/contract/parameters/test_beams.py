"""Beam search."""

from __future__ import annotations

import pytest

from tests.contract.parameters.conftest import COUNTING


def texts(ask, **fields) -> list[str]:
    return [choice["message"]["content"] for choice in ask.answer(use_beam_search=True, **fields)["choices"]]


def mean_score(choice, length_penalty: float) -> float:
    values = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    return sum(values) / len(values) ** length_penalty


@pytest.mark.parameter("use_beam_search")
def test_beams_are_sorted_by_score_distinct_and_the_same_every_time(ask):
    search = {"n": 4, "max_tokens": 8, "messages": COUNTING}
    answer = ask.answer(use_beam_search=True, logprobs=True, **search)
    scores = [mean_score(choice, 1.0) for choice in answer["choices"]]
    assert scores == sorted(scores, reverse=True)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    first = texts(ask, **search)
    assert first == texts(ask, **search, temperature=2, seed=9, top_k=2), "no draw is involved"
    assert (
        len(
            {
                tuple(choice["token_ids"])
                for choice in ask.answer(use_beam_search=True, return_token_ids=True, **search)["choices"]
            }
        )
        == 4
    )


@pytest.mark.parameter("use_beam_search")
def test_a_beam_is_at_least_as_likely_as_the_greedy_answer(ask):
    greedy = sum(entry["logprob"] for entry in ask.logprobs())
    beams = ask.answer(use_beam_search=True, n=4, logprobs=True)
    assert (
        max(sum(entry["logprob"] for entry in choice["logprobs"]["content"]) for choice in beams["choices"])
        >= greedy - 0.05
    )
    assert texts(ask, n=1) == [ask.text()], "a beam of one is greedy"


@pytest.mark.parameter("length_penalty")
def test_the_length_penalty_prefers_short_or_long_answers(ask):
    search = {"n": 4, "max_tokens": 12, "messages": COUNTING}
    for penalty in (0.0, 3.0):
        answer = ask.answer(use_beam_search=True, logprobs=True, length_penalty=penalty, **search)
        scores = [mean_score(choice, penalty) for choice in answer["choices"]]
        assert scores == sorted(scores, reverse=True)

    def num_tokens(penalty: float) -> int:
        answer = ask.answer(use_beam_search=True, return_token_ids=True, length_penalty=penalty, **search)
        return sum(len(choice["token_ids"]) for choice in answer["choices"])

    assert num_tokens(-3.0) < num_tokens(3.0)
    assert ask.text(length_penalty=5) == ask.text(), "beam search only"


@pytest.mark.parameter("use_beam_search")
def test_a_stream_of_beams_brings_each_text_in_one_piece(ask):
    seen: dict[int, list[str]] = {}
    for chunk in ask.chunks(use_beam_search=True, n=3, messages=COUNTING):
        for choice in chunk["choices"]:
            if choice["delta"].get("content"):
                seen.setdefault(choice["index"], []).append(choice["delta"]["content"])
    assert [pieces for _, pieces in sorted(seen.items())] == [[text] for text in texts(ask, n=3, messages=COUNTING)]


@pytest.mark.parameter("use_beam_search")
def test_beam_search_honours_masks_and_refuses_grammars(ask):
    banned = ask.token_ids(messages=COUNTING)[0]
    answer = ask.answer(
        use_beam_search=True, n=3, messages=COUNTING, return_token_ids=True, logit_bias={str(banned): -100}
    )
    assert all(choice["token_ids"][0] != banned for choice in answer["choices"])
    assert ask.refusal(use_beam_search=True, n=2, structured_outputs={"choice": ["a", "b"]})[0] in (
        "use_beam_search",
        "structured_outputs",
    )
