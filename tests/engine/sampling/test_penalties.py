import pytest
import torch

from engine.api.request import SamplingParams
from engine.sampling.penalties import TokenCounts, apply_penalties, has_penalties
from tests.engine.sampling.reference import make_sequence, penalised


def test_many_rows_equal_the_reference_while_they_grow():
    """Also past the point where the arrays of a row grow."""
    vocab_size = 2000
    generator = torch.Generator().manual_seed(1)
    sequences = [
        make_sequence(1, SamplingParams(repetition_penalty=1.3), prompt_ids=[3, 3, 900]),
        make_sequence(
            2, SamplingParams(frequency_penalty=0.5, presence_penalty=-1.0), prompt_ids=[4, 5], output_ids=[7, 7]
        ),
        make_sequence(3, SamplingParams(repetition_penalty=0.7, frequency_penalty=-2.0, presence_penalty=2.0)),
    ]
    rows = [(row, TokenCounts(sequence, vocab_size)) for row, sequence in enumerate(sequences)]
    for _ in range(12):
        logits = torch.randn(3, vocab_size, generator=generator) * 3
        changed = logits.clone()
        apply_penalties(changed, rows, sequences)
        for row, sequence in enumerate(sequences):
            assert changed[row].tolist() == pytest.approx(penalised(logits[row].tolist(), sequence), abs=1e-4)
            sequence.output_ids += torch.randint(0, vocab_size, (50,), generator=generator).tolist()


def test_rows_without_penalties_are_not_touched():
    sequences = [
        make_sequence(1, SamplingParams()),
        make_sequence(2, SamplingParams(presence_penalty=1.0), output_ids=[5]),
    ]
    logits = torch.zeros(2, 64)
    apply_penalties(logits, [(1, TokenCounts(sequences[1], 64))], sequences)
    assert logits.nonzero().tolist() == [[1, 5]]


def test_prompt_tokens_beyond_the_logits_are_ignored():
    sequence = make_sequence(1, SamplingParams(repetition_penalty=2.0), prompt_ids=[70, 2])
    logits = torch.ones(1, 64)
    apply_penalties(logits, [(0, TokenCounts(sequence, 64))], [sequence])
    assert (logits != 1).nonzero().tolist() == [[0, 2]]


def test_an_impossible_token_stays_impossible():
    sequence = make_sequence(1, SamplingParams(repetition_penalty=0.5, presence_penalty=-2.0), output_ids=[2])
    logits = torch.full((1, 64), -torch.inf)
    apply_penalties(logits, [(0, TokenCounts(sequence, 64))], [sequence])
    assert logits.isinf().all()


@pytest.mark.parametrize("name", ["repetition_penalty", "frequency_penalty", "presence_penalty"])
def test_each_single_penalty_enables_penalties(name):
    assert has_penalties(SamplingParams(**{name: 0.5}))
    assert not has_penalties(SamplingParams())
