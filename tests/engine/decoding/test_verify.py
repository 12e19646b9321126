"""Drafts, right or wrong, change the number of steps and nothing else, with any other parameter."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api import LogprobOptions, SamplingParams, StopRules
from engine.decoding.verify import draw_tokens, num_accepted
from engine.sampling.sampler import FAILED_TOKEN, SampledToken
from engine.sequence import Chunk
from tests.engine.decoding.table_model import END, VOCAB_SIZE, TableCore
from tests.engine.scheduling.sequences import make_sequence
from tests.examples import examples


class ScriptDrafter:
    """A drafter that proposes the output of an earlier run with errors: `script` by seq_id, `errors` as positions."""

    def __init__(self, script, errors, length):
        self.script, self.errors, self.length = script, errors, length

    def propose(self, sequence, num_rows, limit):
        place = len(sequence.output_ids)
        ahead = self.script[sequence.seq_id][place : place + min(limit, self.length)]
        return tuple(
            (token_id + 1) % VOCAB_SIZE if place + i in self.errors else token_id for i, token_id in enumerate(ahead)
        )


sampling = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.05]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 5),
    logit_bias=st.sampled_from([(), ((3, 2.0),)]),
)
requests = st.fixed_dictionaries(
    {
        "prompt_ids": st.lists(st.integers(0, VOCAB_SIZE - 2), min_size=1, max_size=30),
        "sampling": sampling,
        "stop": st.builds(StopRules, min_tokens=st.sampled_from([0, 6])),
        "logprobs": st.sampled_from([LogprobOptions(), LogprobOptions(enabled=True, top=2)]),
        "max_tokens": st.integers(6, 25),
        "output_ids": st.sampled_from([[], [1, 2]]),
    }
)


@examples(40)
@given(
    st.lists(requests, min_size=1, max_size=4),
    st.sets(st.integers(0, 24), max_size=6),
    st.integers(1, 12),
    st.sampled_from([16, 30, 200]),
)
def test_an_answer_is_the_same_with_and_without_drafts(wanted, errors, length, num_blocks):
    plain = TableCore(num_blocks=200)
    for seq_id, request in enumerate(wanted):
        plain.add(seq_id, **request)
    plain.run()
    script = {seq_id: request["output_ids"] + plain.tokens(seq_id) for seq_id, request in enumerate(wanted)}
    drafted = TableCore(ScriptDrafter(script, errors, length), num_blocks=num_blocks)
    for seq_id, request in enumerate(wanted):
        drafted.add(seq_id, **request)
    drafted.run()
    assert drafted.runner.num_steps <= plain.runner.num_steps or num_blocks < 200
    for seq_id in script:
        assert drafted.tokens(seq_id) == plain.tokens(seq_id)
        assert drafted.outputs[seq_id][-1].finish == plain.outputs[seq_id][-1].finish
        assert logprobs_of(drafted.outputs[seq_id]) == logprobs_of(plain.outputs[seq_id])


def logprobs_of(outputs):
    return [entry for output in outputs for entry in output.logprobs or ()]


def test_right_drafts_save_steps_and_wrong_ones_add_none():
    plain = TableCore()
    plain.add(1, [1, 2], stop_ids=[])
    plain.run()
    script = {1: plain.tokens(1)}
    right, wrong = TableCore(ScriptDrafter(script, (), 4)), TableCore(ScriptDrafter(script, range(99), 4))
    for core in (right, wrong):
        core.add(1, [1, 2], stop_ids=[], draft_ids=[1])
        core.run()
    assert (plain.runner.num_steps, right.runner.num_steps, wrong.runner.num_steps) == (20, 4, 20)
    assert sum(output.num_accepted for output in right.outputs[1]) == 16
    assert [(output.num_accepted, output.num_rejected) for output in wrong.outputs[1]][:2] == [(0, 4), (0, 4)]


def chunk_of(draft_ids, is_plain=False):
    """Return a chunk whose draws may depend on the output before them, unless `plain`."""
    sequence = make_sequence(1, [1], bad_word_ids=[] if is_plain else [[2, 3]])
    return Chunk(sequence, 0, 1, True, tuple(draft_ids))


def script_draw(*answers):
    """Return a draw that yields these tokens for any logits and records each `output_ids` it saw."""
    seen, rest = [], list(answers)

    def draw(logits, sequences):
        seen.append([list(sequence.output_ids) for sequence in sequences])
        return [SampledToken(token_id) for token_id in rest.pop(0)]

    return draw, seen


def test_every_draw_sees_the_output_before_it_and_removes_it_afterwards():
    draw, seen = script_draw([5], [6], [9])
    chunk = chunk_of([5, 6, 7])
    (tokens,) = draw_tokens(draw, torch.zeros(4, 10), [chunk], lambda sequence: None)
    assert [token.token_id for token in tokens] == [5, 6, 9]
    assert seen == [[[]], [[5]], [[5, 6]]]
    assert chunk.sequence.output_ids == []
    assert num_accepted(chunk, tokens) == 2


def test_independent_sequence_draws_all_positions_at_once():
    draw, seen = script_draw([5, 6, 9, 8])
    chunk = chunk_of([5, 6, 7], is_plain=True)
    (tokens,) = draw_tokens(draw, torch.zeros(4, 10), [chunk], lambda sequence: None)
    assert [token.token_id for token in tokens] == [5, 6, 9]
    assert seen == [[[], [5], [5, 6], [5, 6, 7]]]
    assert chunk.sequence.output_ids == []
    draw, _ = script_draw([5, END, 7, 8])
    (tokens,) = draw_tokens(
        draw,
        torch.zeros(4, 10),
        [chunk_of([5, END, 7], is_plain=True)],
        lambda sequence: sequence.output_ids[-1] == END,
    )
    assert [token.token_id for token in tokens] == [5, END]
    draw, _ = script_draw([5, FAILED_TOKEN, 7])
    (tokens,) = draw_tokens(draw, torch.zeros(3, 10), [chunk_of([5, 6], is_plain=True)], lambda sequence: None)
    assert [token.token_id for token in tokens] == [5]


def test_nothing_is_drawn_after_the_token_that_ends_a_sequence():
    draw, _ = script_draw([5], [END])
    chunk = chunk_of([5, END, 7])
    (tokens,) = draw_tokens(draw, torch.zeros(4, 10), [chunk], lambda sequence: sequence.output_ids[-1] == END)
    assert [token.token_id for token in tokens] == [5, END]
    assert num_accepted(chunk, tokens) == 2


def test_failed_position_after_others_is_left_to_the_next_step():
    draw, _ = script_draw([5], [FAILED_TOKEN])
    (tokens,) = draw_tokens(draw, torch.zeros(2, 10), [chunk_of([5])], lambda sequence: None)
    assert [token.token_id for token in tokens] == [5]
    draw, _ = script_draw([FAILED_TOKEN])
    (tokens,) = draw_tokens(draw, torch.zeros(2, 10), [chunk_of([5])], lambda sequence: None)
    assert tokens[0].is_failed


def test_a_draw_that_raises_leaves_the_sequences_as_they_were():
    def draw(logits, sequences):
        if sequences[0].output_ids:
            raise RuntimeError("out of memory")
        return [SampledToken(5)]

    chunk = chunk_of([5, 6])
    try:
        draw_tokens(draw, torch.zeros(3, 10), [chunk], lambda sequence: None)
    except RuntimeError:
        assert chunk.sequence.output_ids == []
