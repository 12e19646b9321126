"""The shipped processors against their plain definitions, also with rejected drafts."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api.request import ProcessorCall, SamplingParams
from engine.sampling.processors.registry import ProcessorRegistry
from tests.engine.sampling.processors.making import VOCAB_SIZE, allowed, forbidden
from tests.engine.sampling.reference import make_sequence

TOKENS = st.integers(0, 3)
OUTPUTS = st.lists(TOKENS, max_size=14)


def repeats(output_ids, size, window_size, always=()):
    """Return the tokens that would complete an n-gram which is already in the window."""
    window = output_ids[-window_size:] if window_size else output_ids
    ngrams = {tuple(window[start : start + size]) for start in range(len(window) - size + 1)}
    before = tuple(output_ids[len(output_ids) - size + 1 :])
    return {
        token_id for token_id in range(VOCAB_SIZE) if len(before) == size - 1 and (*before, token_id) in ngrams
    } - set(always)


@given(OUTPUTS, st.integers(1, 4), st.integers(0, 10), st.sets(TOKENS, max_size=2))
def test_no_ngram_comes_twice_in_the_window(output_ids, size, window_size, always):
    kwargs = {"ngram_size": size, "window_size": window_size} | (
        {"whitelist_token_ids": sorted(always)} if always else {}
    )
    assert forbidden("no_repeat_ngram", output_ids, **kwargs) == repeats(output_ids, size, window_size, always)


@given(OUTPUTS, OUTPUTS, st.integers(0, 14), TOKENS, st.integers(1, 3))
def test_ngram_guard_forgets_rejected_drafts(output_ids, drafts, num_kept, drawn, size):
    call = ProcessorCall("no_repeat_ngram", (size,))
    chain = ProcessorRegistry().chain(make_sequence(1, SamplingParams(processors=(call,))), VOCAB_SIZE)
    for length in range(len(drafts) + 1):
        chain.apply(output_ids + drafts[:length], torch.zeros(VOCAB_SIZE))
    final = output_ids + drafts[:num_kept] + [drawn]
    row = torch.zeros(VOCAB_SIZE)
    chain.apply(final, row)
    assert set(row.isneginf().nonzero().flatten().tolist()) == repeats(final, size, 0)


def test_the_ngram_guard_reads_missing_arguments_from_free_values():
    assert forbidden("no_repeat_ngram", [5, 6, 5], free={"ngram_size": 2}) == {6}
    assert forbidden("no_repeat_ngram", [5, 6, 5], free={"ngram_size": 2, "whitelist_token_ids": [6]}) == set()


@given(st.lists(st.lists(TOKENS, min_size=1, max_size=4), min_size=1, max_size=5), st.lists(TOKENS, max_size=4))
def test_trie_allows_continuations_and_stop_ids_after_a_complete_sequence(sequences, output_ids):
    size = len(output_ids)
    expected = {sequence[size] for sequence in sequences if sequence[:size] == output_ids and len(sequence) > size}
    is_off = not any(sequence[:size] == output_ids for sequence in sequences)
    if is_off or output_ids in sequences:
        expected |= {40, 41}
    assert allowed("token_trie", output_ids, sequences, stop_ids=(40, 41, 10**6)) == expected
