"""Sources of drafts, confidence in them, and the number of drafts by measured costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decoding.costs import EVEN_ROWS, MOST_DRAFTS, StepCosts
from engine.decoding.drafter import LookupDrafter
from engine.decoding.sources import RUN_TOKENS, PredictedText, PromptLookup
from tests.engine.decoding.table_model import TableCore
from tests.engine.scheduling.sequences import make_sequence

FLAT = StepCosts.flat()
STEEP = StepCosts({1: 1.0, 2: 2.0, 4: 4.0, 32: 32.0})
TEXT = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]


def follow(source, token_ids):
    return [source.follow(token_id) for token_id in token_ids]


def test_a_prediction_is_expected_from_its_first_token_on():
    source = PredictedText(TEXT)
    assert source.next_ids(3) == (10, 11, 12)
    assert follow(source, [10, 11]) == [True, True]
    assert source.next_ids(99) == tuple(TEXT[2:])
    assert follow(source, TEXT[2:]) == [True] * 8
    assert source.next_ids(5) == ()
    assert source.follow(5) is None


def test_a_prediction_is_found_again_after_replaced_inserted_and_left_out_tokens():
    for said in ([10, 11, 99, 13, 14], [10, 11, 98, 99, 97, 13, 14], [10, 13, 14]):
        source = PredictedText(TEXT)
        follow(source, said)
        assert source.next_ids(2) == (15, 16), said


def test_of_several_matches_in_a_prediction_the_next_one_is_used():
    source = PredictedText([1, 2, 3, 4, 1, 2, 5, 6, 1, 2, 7, 8])
    follow(source, [1, 2, 3, 9, 1, 2])
    assert source.next_ids(2) == (5, 6)


def test_lookup_expects_the_earlier_continuation():
    source = PromptLookup([1, 2, 3, 4, 5, 6])
    assert follow(source, [9, 2, 3, 4]) == [None] * 4
    assert source.next_ids(3) == (5, 6, 9)
    assert follow(source, [5, 6, 7]) == [True, True, False]
    assert source.next_ids(3) == ()


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_lookup_expects_only_continuations_of_the_same_run(prompt_ids, output_ids):
    source = PromptLookup(prompt_ids)
    follow(source, output_ids)
    text = prompt_ids + output_ids
    ahead = source.next_ids(4)
    if ahead:
        run = text[-RUN_TOKENS:]
        starts = [i for i in range(len(text) - RUN_TOKENS) if text[i : i + RUN_TOKENS] == run]
        assert ahead in [tuple(text[i + RUN_TOKENS : i + RUN_TOKENS + 4]) for i in starts]


def test_no_drafts_if_rows_cost_as_much_as_steps():
    assert STEEP.best_num_drafts([0.98] * 31, 1, 31) == 0
    assert STEEP.best_num_drafts([0.98] * 31, 8, 31) == 0


def test_number_of_drafts_grows_with_confidence_if_rows_are_free():
    lengths = [FLAT.best_num_drafts([confidence] * 31, 1, 31) for confidence in (0.01, 0.3, 0.9, 0.98)]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (0, 31)
    assert FLAT.best_num_drafts([0.98] * 9, 1, 5) == 5 == FLAT.best_num_drafts([0.98] * 5, 1, 31)


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), st.integers(1, 40), st.floats(0, 0.98), st.integers(0, 40))
def test_costs_never_fall_with_rows_and_draft_lengths_stay_within_limits(seconds, rows, confidence, limit):
    costs = StepCosts(dict(zip((1, 4, 16), seconds, strict=True)))
    assert costs.cost(rows) <= costs.cost(rows + 1)
    length = costs.best_num_drafts([confidence] * 40, rows, limit)
    assert 0 <= length <= min(limit, MOST_DRAFTS)
    assert length in (0, limit, MOST_DRAFTS) or rows + length in EVEN_ROWS


def test_costs_are_measured_with_as_many_rows_as_fit():
    asked = []
    StepCosts.measure(lambda rows: asked.append(rows) or rows / 1000, 8)
    assert asked == [1, 2, 4, 8] * 3


def test_slow_outlier_in_one_round_is_ignored():
    asked = []
    costs = StepCosts.measure(lambda rows: asked.append(rows) or (rows / 1000 if len(asked) > 6 else rows / 200), 99)
    assert [costs.cost(rows) for rows in (1, 8, 32)] == [0.001, 0.008, 0.032]


def test_model_that_is_not_quick_is_measured_once_with_many_rows():
    asked = []
    StepCosts.measure(lambda rows: asked.append(rows) or rows / 100, 99)
    assert asked == [1, 2, 4, 8, 16, 32] + [1, 2, 4, 8] * 2


@pytest.mark.parametrize(("max_rows", "expected"), [(99, [1, 8, 16, 1, 8]), (9, [1, 8, 1, 8]), (4, [1, 2, 4] * 3)])
def test_slow_model_is_measured_with_some_numbers_of_rows(max_rows, expected):
    asked = []
    StepCosts.measure(lambda rows: asked.append(rows) or 0.1, max_rows)
    assert asked == expected


def test_very_slow_model_is_measured_with_few_rows_only():
    asked = []
    costs = StepCosts.measure(lambda rows: asked.append(rows) or rows / 4, 99)
    assert asked == [1, 8] * 2
    assert costs.cost(4) == 1.0


def test_drafts_stop_where_confidence_drops():
    costs = StepCosts({1: 1.0, 32: 8.0})
    assert costs.best_num_drafts([0.9] * 3 + [0.01] * 9, 1, 31) == 3
    assert costs.best_num_drafts([0.1] + [0.98] * 9, 1, 31) == 0


def test_a_disturbed_measurement_of_few_rows_is_capped_by_that_of_more_rows():
    costs = StepCosts({1: 9.0, 2: 50.0, 4: 4.0, 32: 8.0})
    assert [costs.cost(rows) for rows in (1, 2, 4, 18, 32)] == [4.0, 4.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize("seconds", [(0.0, 0.0, 0.0), (0.0, 0.0, 0.01)])
def test_zero_measurements_of_a_coarse_clock_are_harmless(seconds):
    costs = StepCosts(dict(zip((1, 2, 4), seconds, strict=True)))
    assert 0 <= costs.best_num_drafts([0.9] * 4, 1, 4) <= 4


def test_missing_source_stops_proposing_and_recovers_when_right():
    drafter = LookupDrafter(StepCosts({1: 1.0, 4: 2.0, 32: 8.0}), prompt_lookup=False)
    text = [100 + place for place in range(60)]
    sequence = make_sequence(1, [1], max_tokens=200, draft_ids=text)
    drafter.add(sequence)
    assert drafter.propose(sequence, 1, 31)[:3] == tuple(text[:3])
    for place in range(0, 30, 3):
        sequence.output_ids += [text[place], text[place + 1], 7]
        last = drafter.propose(sequence, 1, 31)
    assert last == ()
    for place in range(30, 50):
        sequence.output_ids.append(text[place])
        last = drafter.propose(sequence, 1, 31)
    assert last[:2] == tuple(text[50:52])


def test_confidence_grows_with_the_length_of_agreement():
    costs = StepCosts({1: 1.0, 2: 1.3, 32: 9.0})
    passage = list(range(100, 140))

    def proposed(num_copied):
        drafter = LookupDrafter(costs, prompt_lookup=True)
        sequence = make_sequence(1, [*passage, 7, 8], max_tokens=200)
        drafter.add(sequence)
        sequence.output_ids += passage[:num_copied]
        return drafter.propose(sequence, 1, 16)

    assert [len(proposed(num_copied)) for num_copied in (2, 3, 4)] == [0, 0, 0]
    assert len(proposed(20)) >= 8
    assert proposed(20) == tuple(passage[20 : 20 + len(proposed(20))])
    lengths = [len(proposed(num_copied)) for num_copied in range(3, 20)]
    assert lengths == sorted(lengths)


@given(st.lists(st.integers(0, 2), min_size=3, max_size=60), st.lists(st.integers(0, 2), max_size=60))
def test_lookup_counts_the_tokens_that_agree(prompt_ids, output_ids):
    source = PromptLookup(prompt_ids)
    follow(source, output_ids)
    text = prompt_ids + output_ids
    if source._next is None:
        assert source.num_agreed == 0
    else:
        count = source.num_agreed
        assert count >= RUN_TOKENS
        assert text[source._next - count : source._next] == text[-count:]


def test_sequences_without_a_source_are_not_followed():
    for prompt_lookup in (False, True):
        drafter = LookupDrafter(FLAT, prompt_lookup)
        drafter.add(make_sequence(1, [1]))
        assert len(drafter) == prompt_lookup
        drafter.remove(1)
        drafter.remove(2)
        assert len(drafter) == 0
        assert drafter.propose(make_sequence(1, [1]), 1, 9) == ()


def test_a_right_prediction_saves_steps_for_the_same_answer():
    plain = TableCore()
    plain.add(1, [1, 2], max_tokens=60, stop_ids=[])
    plain.run()
    core = TableCore(LookupDrafter(FLAT, prompt_lookup=False))
    core.add(1, [1, 2], max_tokens=60, stop_ids=[], draft_ids=plain.tokens(1))
    core.run()
    assert core.tokens(1) == plain.tokens(1)
    assert core.runner.num_steps < 10
    assert sum(output.num_accepted for output in core.outputs[1]) > 50


def test_prompt_lookup_saves_steps_where_an_answer_repeats_itself():
    plain, core = TableCore(), TableCore(LookupDrafter(FLAT, prompt_lookup=True))
    for each in (plain, core):
        each.add(1, [1, 2], max_tokens=120, stop_ids=[])
        each.run()
    assert core.tokens(1) == plain.tokens(1)
    assert core.runner.num_steps < plain.runner.num_steps
    assert all(output.num_accepted == output.num_rejected == 0 for output in core.outputs[1])


def test_prediction_is_tried_despite_costs_until_it_misses():
    drafter = LookupDrafter(STEEP, prompt_lookup=True)
    sequence = make_sequence(1, [1], max_tokens=200, draft_ids=TEXT)
    drafter.add(sequence)
    assert drafter.propose(sequence, 1, 31) == tuple(TEXT[:4])
    assert drafter.propose(sequence, 1, 2) == tuple(TEXT[:2])
    for place in (0, 3, 6):
        sequence.output_ids += [TEXT[place], TEXT[place + 1], 99]
        last = drafter.propose(sequence, 1, 31)
    sequence.output_ids += [TEXT[8], TEXT[9], 99, TEXT[0], TEXT[1]]
    assert last == drafter.propose(sequence, 1, 31) == ()


def test_drafts_are_tried_from_the_first_token_on():
    plain = TableCore()
    plain.add(1, [1, 2], max_tokens=6, stop_ids=[])
    plain.run()
    core = TableCore(LookupDrafter(FLAT, prompt_lookup=False))
    core.add(1, [1, 2], max_tokens=6, stop_ids=[], draft_ids=plain.tokens(1))
    core.run()
    assert (core.tokens(1), core.runner.num_steps) == (plain.tokens(1), 1)
    wrong = TableCore(LookupDrafter(FLAT, prompt_lookup=False))
    wrong.add(1, [1, 2], max_tokens=6, stop_ids=[], draft_ids=[(plain.tokens(1)[0] + 1) % 20] * 5)
    wrong.run()
    assert wrong.tokens(1) == plain.tokens(1)
    assert wrong.outputs[1][0].num_rejected > 0


def test_source_proposes_no_more_than_a_step_can_verify():
    """Sources with thousands of tokens left were weighed in full at each step, which took milliseconds."""
    weighed = []

    class Costs(StepCosts):
        def best_num_drafts(self, confidences, num_rows, limit):
            weighed.append((len(list(confidences)), limit))
            return limit

    drafter = LookupDrafter(Costs({1: 1.0, 256: 1.5}), prompt_lookup=True)
    sequence = make_sequence(0, [*range(1000), *range(100)])
    drafter.add(sequence)
    assert drafter.propose(sequence, 1, 8192) == tuple(range(100, 100 + MOST_DRAFTS))
    assert drafter.propose(sequence, 1, 7) == tuple(range(100, 107))
    assert weighed == [(MOST_DRAFTS, MOST_DRAFTS), (7, 7)]
