import math

import pytest
import torch

from engine.api.request import LogprobOptions, SamplingParams
from engine.sampling.sampler import Sampler
from tests.engine.sampling.reference import make_sequence


def sample(logits, options, **sampling):
    sampler = Sampler(logits.shape[1], "cpu")
    sequences = [
        make_sequence(i, SamplingParams(seed=i, **sampling), logprobs=option) for i, option in enumerate(options)
    ]
    for sequence in sequences:
        sampler.add(sequence)
    return sampler.sample(logits.clone(), sequences)


def test_values_are_the_raw_log_softmax_best_first_with_ties_by_id():
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, -4.0, 2.0]])
    (token,) = sample(logits, [LogprobOptions(True, 4)], temperature=0.0, repetition_penalty=9.0)
    norm = math.log(sum(math.exp(value) for value in logits[0].tolist()))
    assert token.logprobs.top_ids == [1, 3, 2, 5]
    assert token.logprobs.top_logprobs == pytest.approx([3 - norm, 3 - norm, 2 - norm, 2 - norm], abs=1e-6)
    assert token.logprobs.logprob == pytest.approx(logits[0, token.token_id].item() - norm, abs=1e-6)


def test_penalties_masks_and_temperature_do_not_change_the_values():
    logits = torch.randn(1, 640, generator=torch.Generator().manual_seed(1))
    plain = sample(logits, [LogprobOptions(True, -1)], temperature=1.0)[0]
    bent = sample(logits, [LogprobOptions(True, -1)], temperature=0.2, top_p=0.5, repetition_penalty=2.0)[0]
    assert plain.logprobs.top_logprobs == bent.logprobs.top_logprobs
    assert len(plain.logprobs.top_ids) == 640
    assert sorted(plain.logprobs.top_ids) == list(range(640))


def test_rows_get_exactly_the_requested_number_of_logprobs():
    logits = torch.randn(4, 640, generator=torch.Generator().manual_seed(2))
    options = [LogprobOptions(), LogprobOptions(True, 0), LogprobOptions(True, 3), LogprobOptions(True, 20)]
    tokens = sample(logits, options, temperature=1.0)
    assert tokens[0].logprobs is None
    assert [len(token.logprobs.top_ids) for token in tokens[1:]] == [0, 3, 20]
    for row, token in enumerate(tokens[1:], 1):
        assert token.logprobs.logprob == pytest.approx(logits[row].log_softmax(0)[token.token_id].item(), abs=1e-6)


def test_impossible_tokens_are_reported_as_the_least_value():
    logits = torch.full((1, 64), -math.inf)
    logits[0, 7] = 0.0
    (token,) = sample(logits, [LogprobOptions(True, 2)], temperature=0.0)
    assert (token.logprobs.top_ids, token.logprobs.top_logprobs) == ([7, 0], [0.0, -9999.0])
