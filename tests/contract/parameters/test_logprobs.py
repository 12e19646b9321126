"""Log-probabilities of answers and prompts, and token ids."""

from __future__ import annotations

import pytest

from tests.contract.parameters.conftest import QUESTION


@pytest.mark.parameter("logprobs")
def test_every_token_has_its_logprob_and_bytes(ask):
    choice = ask.choice(logprobs=True)
    entries = choice["logprobs"]["content"]
    assert len(entries) == 8
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == choice["message"]["content"]
    assert all(entry["logprob"] <= 0 and entry["top_logprobs"] == [] for entry in entries)
    assert ask.choice()["logprobs"] is None
    assert ask.refusal(logprobs=5)[0] == "logprobs"


@pytest.mark.parameter("top_logprobs")
def test_alternatives_are_the_most_likely_first(ask):
    for entry in ask.logprobs(top_logprobs=4):
        values = [other["logprob"] for other in entry["top_logprobs"]]
        assert len(values) == 4
        assert values == sorted(values, reverse=True)
        assert (entry["token"], entry["logprob"]) == (entry["top_logprobs"][0]["token"], values[0]), "greedy"
    assert ask.refusal(top_logprobs=2)[0] == "top_logprobs"
    for bad in (21, -2, -1):
        assert ask.refusal(logprobs=True, top_logprobs=bad)[0] == "top_logprobs"


@pytest.mark.parameter("logprob_token_ids")
def test_logprobs_of_chosen_ids_are_at_every_position(ask):
    ids = ask.token_ids()
    entries = ask.logprobs(logprob_token_ids=[ids[0], ids[2]], return_tokens_as_token_ids=True)
    for entry in entries:
        assert {other["token"] for other in entry["top_logprobs"]} == {f"token_id:{ids[0]}", f"token_id:{ids[2]}"}
    own = {other["token"]: other["logprob"] for other in entries[0]["top_logprobs"]}
    assert own[f"token_id:{ids[0]}"] == pytest.approx(entries[0]["logprob"], abs=1e-4)
    assert ask.refusal(logprob_token_ids=[1])[0] == "logprob_token_ids"
    assert ask.refusal(logprobs=True, logprob_token_ids=[999_999])[0].startswith("logprob_token_ids")


@pytest.mark.parameter("prompt_logprobs")
def test_scores_of_a_prompt_equal_those_of_the_same_tokens_when_generated(ask):
    said = ask.choice(logprobs=True, return_token_ids=True)
    history = [*QUESTION, {"role": "assistant", "content": said["message"]["content"]}]
    answer = ask.answer(
        messages=history, continue_final_message=True, prompt_logprobs=2, return_token_ids=True, max_tokens=1
    )
    scores, ids = answer["prompt_logprobs"], answer["prompt_token_ids"]
    assert len(scores) == len(ids) == answer["usage"]["prompt_tokens"]
    assert scores[0] is None
    assert ids[-8:] == said["token_ids"]
    for entry, token_id, generated in zip(scores[-8:], ids[-8:], said["logprobs"]["content"], strict=True):
        own = entry[str(token_id)]
        assert own["rank"] == 1
        assert own["logprob"] == pytest.approx(generated["logprob"], abs=0.05)
        assert own["decoded_token"] == generated["token"]
        assert len(entry) == 2, "the token is the first of the two best"
    assert all(set(entry) >= {str(token_id)} for entry, token_id in zip(scores[1:], ids[1:], strict=True))


@pytest.mark.parameter("prompt_logprobs")
def test_prompt_scores_stream_with_the_first_chunk_and_only_alone(ask):
    first, *others = ask.chunks(prompt_logprobs=0)
    assert all(len(entry) == 1 for entry in first["prompt_logprobs"][1:])
    assert not any("prompt_logprobs" in chunk for chunk in others)
    assert ask.answer()["prompt_logprobs"] is None
    assert ask.refusal(prompt_logprobs=2, stream=True)[0] == "prompt_logprobs"
    assert ask.refusal(prompt_logprobs=21)[0] == "prompt_logprobs"


@pytest.mark.parameter("return_token_ids")
def test_token_ids_of_prompt_and_answer_come_back(ask):
    answer = ask.answer(return_token_ids=True)
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    ids = answer["choices"][0]["token_ids"]
    assert len(ids) == 8
    first, *others = ask.chunks(return_token_ids=True)
    assert first["prompt_token_ids"] == answer["prompt_token_ids"]
    assert [token_id for chunk in others for token_id in chunk["choices"][0].get("token_ids", ())] == ids
    plain = ask.answer()
    assert (plain["prompt_token_ids"], plain["choices"][0]["token_ids"]) == (None, None)


@pytest.mark.parameter("return_tokens_as_token_ids")
def test_tokens_may_be_named_by_their_ids(ask):
    ids = ask.token_ids()
    entries = ask.logprobs(top_logprobs=1, return_tokens_as_token_ids=True)
    assert [entry["token"] for entry in entries] == [f"token_id:{token_id}" for token_id in ids]
    assert all(entry["top_logprobs"][0]["token"].startswith("token_id:") for entry in entries)


@pytest.mark.parameter("return_prompt_text")
def test_the_rendered_prompt_comes_back(ask):
    answer = ask.answer(return_prompt_text=True)
    assert QUESTION[0]["content"] in answer["prompt_text"]
    assert answer["prompt_text"].endswith("<|im_start|>assistant\n")
    assert ask.chunks(return_prompt_text=True)[0]["prompt_text"] == answer["prompt_text"]
    assert "prompt_text" not in ask.answer()
