"""The sampler against the slow reference, and a row's independence of its neighbours."""

import dataclasses
import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.api.request import LogprobOptions, ProcessorCall, SamplingParams
from engine.messages import Thinking
from engine.sampling.draw import uniform
from engine.sampling.masks import GrammarBitmask
from engine.sampling.sampler import FAILED_TOKEN, Sampler
from tests.engine.sampling.reference import constrained, distribution, draw, make_sequence, with_request
from tests.examples import examples

ROUNDING = 1e-5
"""Distance from a border between two tokens within which both choices are right.

The sampler sums float32 exponentials, the reference float64 ones.
"""

sampling_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 1e-4, 0.3, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 1, 5, 40, 150, 10_000]),
    top_p=st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.0, 1.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.7, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3, 0.5]),
    seed=st.integers(-(2**63), 2**64),
    logit_bias=st.lists(
        st.tuples(st.integers(0, 639), st.sampled_from([-100.0, -1.5, 0.0, 3.0, 100.0])), max_size=4
    ).map(tuple),
    allowed_token_ids=st.none() | st.lists(st.integers(0, 639), min_size=1, max_size=30).map(tuple),
)
token_ids = st.lists(st.integers(0, 199), max_size=12)
bad_words = st.lists(st.lists(st.integers(0, 199), min_size=1, max_size=3), max_size=3)
thinking = st.none() | st.builds(Thinking, st.just([150]), st.just([151]), st.booleans(), st.none() | st.integers(0, 8))


@st.composite
def rows(draw):
    """A sequence and its logits, coarse ones included, so that ties happen everywhere."""
    vocab_size = 640
    output_ids = draw(token_ids)
    words = draw(bad_words)
    if words and draw(st.booleans()):
        words[0] = [*output_ids[len(output_ids) - draw(st.integers(0, min(2, len(output_ids)))) :], words[0][-1]]
    sequence = make_sequence(
        draw(st.integers(1, 10**6)),
        draw(sampling_params),
        prompt_ids=draw(token_ids) or [3],
        output_ids=output_ids,
        bad_words=words,
        thinking=draw(thinking),
        stop_ids=tuple(draw(st.lists(st.integers(0, 199), max_size=3))),
        min_tokens=draw(st.sampled_from([0, 0, 5, 20])),
        logprobs=draw(
            st.sampled_from([None, None, LogprobOptions(True, 0), LogprobOptions(True, 7), LogprobOptions(True, -1)])
        ),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(vocab_size, generator=generator) * draw(st.sampled_from([0.1, 1.0, 4.0]))
    if draw(st.booleans()):
        logits = (logits * 2).round() / 2
    return sequence, logits


def sample_crowd(crowd, **options):
    sampler = Sampler(len(crowd[0][1]), "cpu", **options)
    for sequence, _ in crowd:
        sampler.add(sequence)
    return sampler.sample(torch.stack([logits for _, logits in crowd]), [sequence for sequence, _ in crowd])


@given(st.lists(rows(), min_size=1, max_size=4, unique_by=lambda row: row[0].seq_id))
@examples(60)
def test_draw_without_sync_gives_the_same_tokens(crowd):
    assert sample_crowd(crowd, syncs=False) == sample_crowd(crowd)


@pytest.mark.parametrize("scale", [0.0, 0.001])
def test_rows_with_too_few_ranked_tokens_are_redrawn(scale):
    """A flat vocabulary leaves more to top_p than is ranked at once."""
    logits = torch.randn(4000, generator=torch.Generator().manual_seed(1)) * scale
    crowd = [(make_sequence(number, SamplingParams(top_p=0.9, seed=number)), logits) for number in range(5)]
    crowd.append((make_sequence(9, SamplingParams(top_k=3, seed=1)), logits))
    crowd.append((make_sequence(10, SamplingParams(seed=2)), logits))
    assert sample_crowd(crowd, syncs=False) == sample_crowd(crowd)


def test_a_token_drawn_ahead_equals_the_token_of_its_position():
    """Tokens before it change only the random number of its position."""
    logits = torch.randn(3, 640, generator=torch.Generator().manual_seed(1))
    params = [SamplingParams(seed=1), SamplingParams(top_p=0.8, seed=2), SamplingParams(temperature=0.0, seed=3)]
    sampler = Sampler(640, "cpu", syncs=False)
    sequences = [make_sequence(number, sampling, output_ids=[5]) for number, sampling in enumerate(params)]
    for sequence in sequences:
        sampler.add(sequence)
    assert sampler.can_run_ahead(sequences)
    ahead = sampler.finish(sampler.start(logits.clone(), sequences, num_ahead=1))
    for sequence in sequences:
        sequence.output_ids.append(6)
    assert ahead == sampler.sample(logits.clone(), sequences)


def test_a_row_is_drawn_as_the_reference_draws_it():
    """Every token is the one of the reference, up to rounding, and rounding decides in next to no row."""
    counts = Counter()

    @given(rows())
    @examples(300)
    def check(row):
        sequence, logits = row
        (token,) = sample_crowd([row])
        if max(constrained(logits.tolist(), sequence)) == -math.inf:
            assert token.is_failed
            assert token.failed_param in ("allowed_token_ids", "bad_words")
            return
        is_exact = token.token_id == draw(logits.tolist(), sequence)
        counts["rows"] += 1
        counts["rounded"] += not is_exact
        assert token.token_id in distribution(logits.tolist(), with_top_p(sequence, ROUNDING))
        assert is_exact or token.token_id in draws_within_rounding(logits.tolist(), sequence)

    check()
    assert counts["rounded"] <= 1 + 0.01 * counts["rows"]


def draws_within_rounding(logits, sequence):
    """Return the tokens that the reference draws with the random number and top_p moved by as much as rounding may."""
    moves = (-ROUNDING, 0.0, ROUNDING)
    return {draw(logits, with_top_p(sequence, change), shift) for change in moves for shift in moves}


def with_top_p(sequence, change):
    """Return the sequence with top_p changed, where it is on."""
    sampling = sequence.sampling
    changed = dataclasses.replace(sampling, top_p=sampling.top_p + change)
    return with_request(sequence, sampling=changed) if sampling.top_p < 1.0 else sequence


def params(sampling):
    return {name: getattr(sampling, name) for name in SamplingParams.__slots__}


@given(st.lists(rows(), min_size=2, max_size=9, unique_by=lambda row: row[0].seq_id))
@examples(60)
def test_a_row_is_the_same_alone_and_in_any_crowd(crowd):
    assert sample_crowd(crowd) == [sample_crowd([row])[0] for row in crowd]


@pytest.mark.parametrize("vocab_size", [640, 49152, 50257])
def test_row_is_the_same_in_a_large_batch_of_similar_rows(vocab_size):
    """The kinds of rows that a whole batch shares take shortcuts; the vocabulary is big enough for vectorised sums."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(24, vocab_size, generator=generator) * 2
    kinds = [
        {},
        {"top_p": 0.9},
        {"top_k": 50},
        {"top_k": 40, "top_p": 0.8, "min_p": 0.01},
        {"min_p": 0.05},
        {"temperature": 0.0},
    ]
    for kind in kinds:
        crowd = [(make_sequence(i, SamplingParams(seed=i, **kind)), logits[i]) for i in range(24)]
        assert sample_crowd(crowd) == [sample_crowd([row])[0] for row in crowd]
    mixed = [(make_sequence(i, SamplingParams(seed=i, **kinds[i % len(kinds)])), logits[i]) for i in range(24)]
    assert sample_crowd(mixed) == [sample_crowd([row])[0] for row in mixed]


def test_greedy_ties_go_to_the_lowest_id():
    logits = torch.zeros(1, 640)
    logits[0, [130, 70, 400]] = 5.0
    sampler = Sampler(640, "cpu")
    sequence = make_sequence(1, SamplingParams(temperature=0.0))
    sampler.add(sequence)
    assert sampler.sample(logits, [sequence])[0].token_id == 70


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.7, min_p=0.1),
        SamplingParams(temperature=0.8, top_k=5),
        SamplingParams(temperature=1.2, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=6, top_p=0.9, min_p=0.02),
    ],
)
def test_draws_follow_the_distribution(sampling):
    """Chi-square over 20,000 draws with fixed seeds and positions; 0.999 quantile by Wilson-Hilferty."""
    num_draws, rows = 20_000, 500
    logits = torch.tensor([0.5, 2.0, -1.0, 1.5, 1.4, 0.0, -0.5, 1.9, 0.7, -2.0, 0.1, 0.2])
    counts = Counter()
    sequences = [
        make_sequence(i, SamplingParams(**{**params(sampling), "seed": i * 7919}), output_ids=[]) for i in range(rows)
    ]
    sampler = Sampler(len(logits), "cpu")
    for sequence in sequences:
        sampler.add(sequence)
    for _ in range(num_draws // rows):
        for sequence, token in zip(sequences, sampler.sample(logits.repeat(rows, 1), sequences), strict=True):
            counts[token.token_id] += 1
            sequence.output_ids.append(token.token_id)
    expected = distribution(logits.tolist(), sequences[0])
    assert set(counts) == set(expected)
    statistic = sum((counts[i] - num_draws * p) ** 2 / (num_draws * p) for i, p in expected.items())
    freedom = len(expected) - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("scale", [0.0, 0.001])
def test_top_p_over_a_flat_vocabulary_is_exact_at_every_depth(scale):
    """The mass is reached only thousands of tokens down, and with scale 0 every token ties with every other."""
    vocab_size = 20_032
    logits = torch.randn(vocab_size, generator=torch.Generator().manual_seed(1)) * scale
    for seed in range(20):
        sequence = make_sequence(1, SamplingParams(top_p=0.6, seed=seed))
        (token,) = sample_crowd([(sequence, logits)])
        ranked = logits.sort(descending=True, stable=True)
        cumulative = ((ranked.values - ranked.values[0]).double().exp()).cumsum(0)
        size = int((cumulative < 0.6 * cumulative[-1]).sum()) + 1
        place = int((cumulative[:size] <= uniform(seed, 0) * cumulative[size - 1]).sum())
        assert token.token_id in ranked.indices[max(0, place - 1) : place + 2].tolist()


def test_top_p_applies_to_the_mass_that_min_p_leaves():
    """Four tokens far above a flat rest that has most of the mass of the whole vocabulary."""
    logits = torch.zeros(6400)
    logits[:4] = torch.tensor([7.0, 6.9, 6.8, 6.7])
    drawn = set()
    for seed in range(200):
        crowd = [
            (make_sequence(1, SamplingParams(top_p=0.5, min_p=0.1, seed=seed)), logits),
            (make_sequence(2, SamplingParams(top_p=0.9, seed=1)), logits),
        ]
        drawn.add(sample_crowd(crowd)[0].token_id)
    assert drawn == {0, 1}


def test_all_tokens_tied_with_the_last_of_top_k_survive():
    logits = torch.zeros(6400)
    logits[6000:] = 1.0
    drawn = set()
    for seed in range(300):
        (token,) = sample_crowd([(make_sequence(1, SamplingParams(top_k=3, seed=seed)), logits)])
        drawn.add(token.token_id)
    assert min(drawn) >= 6000
    assert len(drawn) > 150


def test_the_draw_depends_on_seed_and_position_only():
    logits = torch.randn(640, generator=torch.Generator().manual_seed(3))

    def drawn(prompt, output, seed):
        return sample_crowd([(make_sequence(1, SamplingParams(seed=seed), prompt, output), logits)])[0].token_id

    assert drawn([1], [2, 3], 9) == drawn([5, 6, 7], [8, 9], 9)
    assert len({drawn([1], [2] * position, 9) for position in range(20)}) > 5
    assert len({drawn([1], [], seed) for seed in range(20)}) > 5


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_row_with_nan_or_inf_fails_alone(poison):
    logits = torch.randn(5, 640, generator=torch.Generator().manual_seed(4))
    kinds = [{"temperature": 0.0}, {}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}]
    sound = [(make_sequence(i, SamplingParams(seed=i, **kind)), logits[i]) for i, kind in enumerate(kinds)]
    expected = sample_crowd(sound)
    for broken in range(5):
        spoiled = [(sequence, row.clone()) for sequence, row in sound]
        spoiled[broken][1][17] = poison
        result = sample_crowd(spoiled)
        assert result[broken].is_failed
        assert result[broken].token_id == FAILED_TOKEN
        assert [token for i, token in enumerate(result) if i != broken] == [
            token for i, token in enumerate(expected) if i != broken
        ]


def test_a_row_without_any_allowed_token_fails():
    sequence = make_sequence(1, SamplingParams(seed=1), stop_ids=tuple(range(64)), min_tokens=1)
    (token,) = sample_crowd([(sequence, torch.zeros(64))])
    assert token.is_failed


def test_a_temperature_just_above_greedy_is_raised():
    logits = torch.zeros(64)
    logits[5] = 0.001
    drawn = {
        sample_crowd([(make_sequence(1, SamplingParams(temperature=1e-4, seed=seed)), logits)])[0].token_id
        for seed in range(30)
    }
    assert len(drawn) > 5


def test_stop_ids_are_masked_until_min_tokens_exist():
    logits = torch.zeros(64)
    logits[9] = 50.0
    for num_output, expected in ((0, 0), (1, 0), (2, 9)):
        sequence = make_sequence(
            1, SamplingParams(temperature=0.0), output_ids=[3] * num_output, stop_ids=(9,), min_tokens=2
        )
        assert sample_crowd([(sequence, logits)])[0].token_id == expected


@given(rows())
@examples(60)
def test_greedy_follows_the_penalties(row):
    sequence, logits = row
    twin = with_request(sequence, sampling=dataclasses.replace(sequence.sampling, temperature=0.0))
    (token,) = sample_crowd([(twin, logits)])
    expected = constrained(logits.tolist(), twin)
    assert token.is_failed == (max(expected) == -math.inf)
    assert token.is_failed or expected[token.token_id] == pytest.approx(max(expected), abs=1e-5)


def test_removed_sequences_leave_no_state():
    """Sequences join, change rows and leave; each gets the tokens it gets alone, even if an id is reused."""
    vocab_size, steps = 640, 40
    kinds = [
        {"temperature": 0.0, "repetition_penalty": 1.5},
        {"top_k": 8, "frequency_penalty": 1.0},
        {},
        {"top_p": 0.7},
        {"min_p": 0.2},
    ]

    def logits_of(sequence):
        history = hash((len(sequence.output_ids), sum(sequence.output_ids), sequence.prompt_ids[0]))
        return torch.randn(vocab_size, generator=torch.Generator().manual_seed(history % 2**31)) * 2

    def make(i, seq_id):
        return make_sequence(
            seq_id,
            SamplingParams(
                seed=i,
                logit_bias=((i, 30.0),) if i % 4 == 1 else (),
                allowed_token_ids=tuple(range(i, 600, 3)) if i % 4 == 2 else None,
                processors=(ProcessorCall("no_repeat_ngram", (1 + i % 2,)),) if i % 4 == 3 else (),
                **kinds[i % len(kinds)],
            ),
            prompt_ids=[i + 1, 2, 3],
            stop_ids=(4,),
            min_tokens=i % 7,
            logprobs=LogprobOptions(i % 3 == 0, i % 5),
            bad_words=[[5 + i], [6, 7 + i]] if i % 2 else None,
            thinking=Thinking([150], [151], is_open=True, budget=i % 5) if i % 3 == 1 else None,
        )

    def solo(i, length):
        sampler, sequence, tokens = Sampler(vocab_size, "cpu"), make(i, 0), []
        sampler.add(sequence)
        for _ in range(length):
            tokens += sampler.sample(logits_of(sequence)[None], [sequence])
            sequence.output_ids.append(tokens[-1].token_id)
        return tokens

    sampler, live, results, num_made = Sampler(vocab_size, "cpu"), [], {}, 0
    free_ids = list(range(6))
    for number in range(steps):
        while free_ids and number < steps - 10 and (number + num_made) % 3:
            sequence = make(num_made, free_ids.pop())
            live.insert(number % (len(live) + 1), (num_made, sequence))
            results[num_made] = []
            sampler.add(sequence)
            num_made += 1
        if live:
            sequences = [sequence for _, sequence in live]
            tokens = sampler.sample(torch.stack([logits_of(sequence) for sequence in sequences]), sequences)
            for (i, sequence), token in zip(live, tokens, strict=True):
                results[i].append(token)
                sequence.output_ids.append(token.token_id)
        for i, sequence in list(live):
            if len(results[i]) >= 3 + i % 9:
                live.remove((i, sequence))
                sampler.remove(sequence.seq_id)
                free_ids.append(sequence.seq_id)
    assert num_made > 15
    for i, tokens in results.items():
        assert tokens == solo(i, len(tokens))


def test_sampling_no_sequences_gives_no_tokens():
    assert Sampler(64, "cpu").sample(torch.zeros(0, 64), []) == []


def greedy(seq_id=1, sampling=None, **more):
    return make_sequence(seq_id, dataclasses.replace(sampling or SamplingParams(), temperature=0.0), **more)


def sample_masked(crowd, allowed):
    """Sample with grammar masks, one word short of the vocabulary's width.

    `allowed`: row to the tokens that its grammar allows.
    """
    width = len(crowd[0][1])
    words = torch.zeros(len(allowed), -(-width // 32) - 1, dtype=torch.int32)
    for place, token_ids in enumerate(allowed.values()):
        for token_id in token_ids:
            words[place, token_id // 32] |= -(2**31) if token_id % 32 == 31 else 1 << token_id % 32
    sampler = Sampler(width, "cpu")
    for sequence, _ in crowd:
        sampler.add(sequence)
    rows = [sequence for sequence, _ in crowd]
    return sampler.sample(torch.stack([logits for _, logits in crowd]), rows, GrammarBitmask(list(allowed), words))


@given(st.sets(st.integers(0, 159), min_size=1), st.integers(0, 2**31))
@examples(50)
def test_a_grammar_restricts_its_own_row_only(allowed, seed):
    logits = torch.randn(3, 180, generator=torch.Generator().manual_seed(seed))
    crowd = [(greedy(row), logits[row]) for row in range(3)]
    tokens = sample_masked(crowd, {1: allowed})
    assert tokens[1].token_id == max(allowed, key=lambda token_id: logits[1, token_id])
    assert [tokens[0].token_id, tokens[2].token_id] == [logits[0].argmax(), logits[2].argmax()]


def test_log_probabilities_are_taken_after_the_grammar_and_before_everything_else():
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1))
    options = LogprobOptions(True, -1)
    bent = SamplingParams(logit_bias=((3, 50.0),), allowed_token_ids=(3, 4), repetition_penalty=3.0)
    sequence = greedy(1, bent, logprobs=options, thinking=Thinking([1], [5], is_open=True, budget=0))
    (token,) = sample_masked([(sequence, logits)], {0: {3, 5, 9}})
    expected = logits[[3, 5, 9]].log_softmax(0)
    reported = dict(zip(token.logprobs.top_ids, token.logprobs.top_logprobs, strict=True))
    assert token.token_id == 5
    assert [reported[3], reported[5], reported[9]] == pytest.approx(expected.tolist(), abs=1e-6)
    assert {value for token_id, value in reported.items() if token_id not in (3, 5, 9)} == {-9999.0}
    assert token.logprobs.logprob == reported[5]


def test_processed_scores_are_taken_after_masks_bias_and_penalties():
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1))
    sampling = SamplingParams(
        allowed_token_ids=(3, 4, 5), logit_bias=((4, 2.0),), presence_penalty=1.0, temperature=0.3
    )
    sequence = make_sequence(1, sampling, output_ids=[5], logprobs=LogprobOptions(True, 3), scores_processed=True)
    (token,) = sample_crowd([(sequence, logits)])
    expected = torch.tensor([logits[3], logits[4] + 2.0, logits[5] - 1.0]).log_softmax(0)
    reported = dict(zip(token.logprobs.top_ids, token.logprobs.top_logprobs, strict=True))
    assert [reported[token_id] for token_id in (3, 4, 5)] == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_forced_end_of_reasoning_overrides_every_mask():
    sampling = SamplingParams(allowed_token_ids=(3,), processors=(ProcessorCall("token_trie", ([[3]],)),))
    sequence = greedy(
        1, sampling, bad_words=[[9]], stop_ids=(9,), min_tokens=5, thinking=Thinking([1], [9], is_open=True, budget=0)
    )
    (token,) = sample_masked([(sequence, torch.zeros(64))], {0: {4}})
    assert token.token_id == 9


def test_even_the_lowest_bias_forbids_no_token():
    """Hostile 2.5: -100 on every id still samples."""
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1))
    sampling = SamplingParams(logit_bias=tuple((token_id, -100.0) for token_id in range(64)))
    assert sample_crowd([(greedy(1, sampling), logits)])[0].token_id == logits.argmax()


@pytest.mark.parametrize("penalty", [1e-300, 1e-30, 1e30, 1e300])
def test_the_most_extreme_penalty_does_not_break_a_row(penalty):
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1))
    logits[7] = 0.0
    for sampling in (
        SamplingParams(repetition_penalty=penalty),
        SamplingParams(repetition_penalty=penalty, temperature=0.0),
    ):
        (token,) = sample_crowd([(make_sequence(1, sampling, prompt_ids=list(range(20))), logits)])
        assert not token.is_failed


@pytest.mark.parametrize(
    ("param", "sampling", "more", "grammar"),
    [
        ("structured_outputs", {"allowed_token_ids": (3,)}, {}, {4}),
        ("structured_outputs", {}, {"bad_words": [[4]]}, {4}),
        ("allowed_token_ids", {"allowed_token_ids": (3,)}, {"bad_words": [[3]]}, None),
        ("logits_processors", {"processors": (ProcessorCall("token_trie", ([[3]],)),)}, {"bad_words": [[3]]}, None),
        ("bad_words", {}, {"bad_words": [[token_id] for token_id in range(64)]}, None),
        ("min_tokens", {}, {"stop_ids": tuple(range(64)), "min_tokens": 1}, None),
    ],
)
def test_a_row_whose_tokens_are_all_forbidden_fails_alone_and_names_the_field(param, sampling, more, grammar):
    logits = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    crowd = [(greedy(0), logits[0]), (greedy(1, SamplingParams(**sampling), **more), logits[1]), (greedy(2), logits[2])]
    tokens = sample_masked(crowd, {1: grammar}) if grammar else sample_crowd(crowd)
    assert [token.failed_param for token in tokens] == ["", param, ""]
    assert [token.is_failed for token in tokens] == [False, True, False]


@pytest.mark.parametrize(
    "broken",
    [
        {"sampling": SamplingParams(allowed_token_ids=(64,))},
        {"sampling": SamplingParams(logit_bias=((-1, 1.0),))},
        {"sampling": SamplingParams(), "bad_words": [[1, 64]]},
        {"sampling": SamplingParams(), "logprobs": LogprobOptions(True, 0, (2**40,))},
        {"sampling": SamplingParams(), "thinking": Thinking([1], [64], is_open=True, budget=1)},
    ],
)
def test_sequence_with_an_unknown_token_id_is_not_added(broken):
    """Hostile 2.1: the worker refuses them; if one came through, it would be written into the row of a neighbour."""
    with pytest.raises(ValueError, match="from 0 to 63"):
        Sampler(64, "cpu").add(make_sequence(1, **broken))


@given(rows(), st.lists(st.integers(0, 199), max_size=4), st.integers(0, 4), st.integers(0, 199))
@examples(60)
def test_rejected_drafts_leave_no_trace_in_the_sampler(row, drafts, num_kept, drawn):
    """Each draft has a row in one step; afterwards the output has some of the drafts and one other token."""
    sequence, logits = row
    sampler = Sampler(len(logits), "cpu")
    sampler.add(sequence)

    def at(output_ids):
        return sequence.with_output(output_ids)

    tried = [at(sequence.output_ids + drafts[:size]) for size in range(len(drafts) + 1)]
    tokens = sampler.sample(logits.repeat(len(tried), 1), tried)
    assert tokens == [sample_crowd([(copy, logits)])[0] for copy in tried]
    after = at(sequence.output_ids + drafts[:num_kept] + [drawn])
    assert sampler.sample(logits[None].clone(), [after]) == sample_crowd([(after, logits)])
