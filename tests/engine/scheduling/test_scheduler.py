import pytest

from engine.api.errors import EngineUnavailable, ErrorCode, RequestError
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting import GROUP_SIZE
from engine.sequence import SequenceStatus
from tests.engine.scheduling.sequences import (
    STOP_ID,
    OracleDrafter,
    make_scheduler,
    make_sequence,
    next_token,
    run,
    sample,
    solo_output,
    step,
)


def shape(plan):
    return [(chunk.sequence.seq_id, chunk.start, chunk.num_tokens, chunk.samples) for chunk in plan.chunks]


def test_a_prompt_is_followed_by_one_token_per_step():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, [1, 2, 3], max_tokens=3))
    plans = [shape(step(scheduler)[0]) for _ in range(3)]
    assert plans == [[(1, 0, 3, True)], [(1, 3, 1, True)], [(1, 4, 1, True)]]
    assert scheduler.plan() is None


def test_a_long_prompt_is_cut_to_the_budget_and_decodes_come_first():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_sequence(1, [1, 2], max_tokens=9, min_tokens=9))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(20))))
    plans = [shape(step(scheduler)[0]) for _ in range(3)]
    assert plans == [
        [(1, 2, 1, True), (2, 0, 7, False)],
        [(1, 3, 1, True), (2, 7, 7, False)],
        [(1, 4, 1, True), (2, 14, 6, True)],
    ]


def test_a_short_prompt_passes_a_long_one_that_takes_every_step():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_sequence(1, list(range(100, 140))))
    step(scheduler)
    scheduler.add(make_sequence(2, [1, 2, 3]))
    assert shape(step(scheduler)[0]) == [(1, 8, 5, False), (2, 0, 3, True)]


def test_long_prompts_among_themselves_keep_their_order():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    scheduler.add(make_sequence(1, list(range(100, 140))))
    scheduler.add(make_sequence(2, list(range(200, 240))))
    scheduler.add(make_sequence(3, list(range(300, 303))))
    assert shape(step(scheduler)[0]) == [(1, 0, 5, False), (3, 0, 3, True)]


def test_lower_priority_values_go_first_and_ties_by_arrival():
    scheduler = make_scheduler(max_num_seqs=1)
    for seq_id, priority in ((1, 5), (2, 0), (3, -1), (4, 0)):
        scheduler.add(make_sequence(seq_id, [seq_id], max_tokens=1, priority=priority))
    assert [finished.sequence.seq_id for finished in run(scheduler)] == [3, 2, 4, 1]


def test_stop_ids_end_a_sequence_only_past_min_tokens():
    scheduler = make_scheduler()
    early, late = make_sequence(1, [1], max_tokens=9), make_sequence(2, [1], max_tokens=9, min_tokens=2)
    scheduler.add(early)
    scheduler.add(late)
    for _ in range(3):
        plan = scheduler.plan()
        scheduler.advance(plan, {chunk.sequence.seq_id: [STOP_ID] for chunk in plan.chunks})
    assert (early.output_ids, late.output_ids) == ([STOP_ID], [STOP_ID] * 3)
    assert scheduler.stats().num_free_blocks == 64


def test_several_sampled_tokens_in_one_step_end_at_the_first_stop():
    scheduler = make_scheduler()
    sequence = make_sequence(1, [1], max_tokens=9)
    scheduler.add(sequence)
    finished = scheduler.advance(scheduler.plan(), {1: [3, STOP_ID, 4]})
    assert [reason for _, reason in finished] == ["stop"]
    assert sequence.output_ids == [3, STOP_ID]


def test_max_tokens_ends_with_length_and_frees_everything():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(1, [2], max_tokens=2))
    assert [(finished.sequence.seq_id, finished.reason) for finished in run(scheduler)] == [(1, "length")]
    assert scheduler.stats().num_free_blocks == 64


def test_the_last_prompt_token_is_computed_even_if_the_prompt_is_cached():
    scheduler = make_scheduler()
    prompt = list(range(100, 108))
    for seq_id in (1, 2):
        scheduler.add(make_sequence(seq_id, prompt, max_tokens=1))
        plan, _ = step(scheduler)
    assert shape(plan) == [(2, 4, 4, True)]


def test_cached_tokens_are_counted_once_at_first_admission():
    scheduler = make_scheduler()
    prompt = list(range(100, 110))
    first, second = make_sequence(1, prompt), make_sequence(2, prompt)
    for sequence in (first, second):
        scheduler.add(sequence)
        run(scheduler)
    assert (first.num_cached, second.num_cached) == (0, 8)
    assert scheduler.stats().num_cached_tokens == 8
    assert scheduler.stats().num_prompt_tokens == 20


def test_generated_tokens_are_found_by_the_next_turn_of_a_conversation():
    scheduler = make_scheduler()
    first = make_sequence(1, [1, 2, 3], max_tokens=8, min_tokens=8)
    scheduler.add(first)
    run(scheduler)
    second = make_sequence(2, first.prompt_ids + first.output_ids + [5])
    scheduler.add(second)
    run(scheduler)
    assert second.num_cached == 8


def test_nothing_is_shared_between_roots_nor_with_caching_off():
    for caching, root in ((True, b"other"), (False, b"tenant")):
        scheduler = make_scheduler(prefix_caching=caching)
        second = make_sequence(2, list(range(20)), cache_root=root)
        for sequence in (make_sequence(1, list(range(20))), second):
            scheduler.add(sequence)
            run(scheduler)
        assert second.num_cached == 0


def test_followers_wait_for_blocks_that_a_leader_computes_in_the_same_step():
    scheduler = make_scheduler(max_num_batched_tokens=40)
    prefix = list(range(100, 116))
    followers = [make_sequence(seq_id, [*prefix, seq_id]) for seq_id in (1, 2, 3)]
    for sequence in followers:
        scheduler.add(sequence)
    scheduler.add(make_sequence(4, [5, 6]))
    assert shape(step(scheduler)[0]) == [(1, 0, 17, True), (4, 0, 2, True)]
    assert {chunk[:3] for chunk in shape(step(scheduler)[0])} >= {(2, 16, 1), (3, 16, 1)}
    assert [sequence.num_cached for sequence in followers] == [0, 16, 16]


def test_a_follower_of_an_aborted_leader_continues_alone():
    scheduler = make_scheduler(max_num_batched_tokens=8)
    for seq_id in (1, 2):
        scheduler.add(make_sequence(seq_id, list(range(100, 120))))
    step(scheduler)
    scheduler.abort(1)
    assert shape(step(scheduler)[0]) == [(2, 8, 8, False)]


def test_the_youngest_of_the_worst_priority_is_preempted_and_resumes_identically():
    scheduler = make_scheduler(num_blocks=6, block_size=2, max_num_batched_tokens=8)
    sequences = [make_sequence(seq_id, [seq_id + 20, seq_id], max_tokens=7, min_tokens=7) for seq_id in (1, 2)]
    expected = [solo_output(sequence) for sequence in sequences]
    for sequence in sequences:
        scheduler.add(sequence)
    seen = set()
    while (step(scheduler))[0]:
        seen |= {sequence.seq_id for sequence in sequences if sequence.status is SequenceStatus.PREEMPTED}
    assert seen == {2}
    assert scheduler.stats().num_preemptions >= 1
    assert [sequence.output_ids for sequence in sequences] == expected


def test_a_preempted_sequence_finds_its_own_blocks_in_the_cache():
    scheduler = make_scheduler(num_blocks=8, block_size=2, max_num_batched_tokens=16)
    first = make_sequence(1, [21, 22, 23], max_tokens=12, min_tokens=12)
    second = make_sequence(2, [31, 32, 33, 34], max_tokens=6, min_tokens=6)
    for sequence in (first, second):
        scheduler.add(sequence)
    restarts = []
    while plan := scheduler.plan():
        restarts += [chunk.start for chunk in plan.chunks if chunk.sequence is second and chunk.num_tokens > 1]
        scheduler.advance(plan, sample(plan))
        assert scheduler.check_integrity() == ""
    assert len(second.output_ids) == 6
    assert second.num_cached == 0
    assert restarts[0] == 0


def test_a_better_priority_preempts_worse_ones():
    scheduler = make_scheduler(num_blocks=8, block_size=4, max_num_batched_tokens=32, max_num_seqs=2)
    holders = [
        make_sequence(seq_id, list(range(seq_id * 100, seq_id * 100 + 10)), 4, min_tokens=4, priority=5)
        for seq_id in (1, 2)
    ]
    urgent = make_sequence(3, list(range(300, 315)), max_tokens=1)
    expected = [solo_output(sequence) for sequence in (*holders, urgent)]
    for sequence in holders:
        scheduler.add(sequence)
    step(scheduler)
    scheduler.add(urgent)
    _, finished = step(scheduler)
    assert [end.sequence.seq_id for end in finished] == [3]
    assert [sequence.status for sequence in holders] == [SequenceStatus.RUNNING, SequenceStatus.PREEMPTED]
    run(scheduler)
    assert [sequence.output_ids for sequence in (*holders, urgent)] == expected


def test_nothing_is_preempted_for_equal_priority_or_without_making_room():
    scheduler = make_scheduler(num_blocks=8, block_size=4, max_num_batched_tokens=64)
    for seq_id, num_tokens, priority in ((1, 20, 0), (2, 4, 5)):
        scheduler.add(
            make_sequence(
                seq_id, list(range(seq_id * 100, seq_id * 100 + num_tokens)), 2, min_tokens=2, priority=priority
            )
        )
    step(scheduler)
    scheduler.add(make_sequence(3, list(range(300, 320)), priority=0))
    scheduler.add(make_sequence(4, list(range(400, 404)), priority=5))
    step(scheduler)
    assert scheduler.stats().num_preemptions == 0


def test_a_sequence_that_outgrows_the_whole_cache_ends_with_length():
    scheduler = make_scheduler(num_blocks=2, block_size=4)
    sequence = make_sequence(1, [1, 2, 3], max_tokens=100, min_tokens=100)
    scheduler.add(sequence)
    assert [finished.reason for finished in run(scheduler)] == ["length"]
    assert sequence.num_tokens == 9


def test_a_sequence_that_can_never_fit_is_refused():
    scheduler = make_scheduler(num_blocks=2, block_size=4)
    with pytest.raises(RequestError) as error:
        scheduler.add(make_sequence(1, list(range(9))))
    assert error.value.code is ErrorCode.CONTEXT_LENGTH_EXCEEDED
    with pytest.raises(RequestError):
        scheduler.add(make_sequence(2, [1], max_tokens=1, output_ids=[3]))
    assert scheduler.plan() is None


def test_a_full_queue_is_refused():
    """Free running places count first: a new core refused sequences of the core before it, which all return waiting."""
    scheduler = make_scheduler(max_waiting=1, max_num_seqs=2)
    for seq_id in (1, 2, 3):
        scheduler.add(make_sequence(seq_id, [1]))
    with pytest.raises(EngineUnavailable) as error:
        scheduler.add(make_sequence(4, [1]))
    assert error.value.code is ErrorCode.OVERLOADED


def test_abort_works_in_every_state_and_ignores_unknown_ids():
    scheduler = make_scheduler(max_num_seqs=1)
    running, waiting = make_sequence(1, [1, 2]), make_sequence(2, [1, 2])
    scheduler.add(running)
    scheduler.add(waiting)
    step(scheduler)
    assert scheduler.abort(2) is waiting
    assert scheduler.abort(1) is running
    assert scheduler.abort(1) is None
    assert scheduler.check_integrity() == ""
    assert scheduler.stats().num_free_blocks == 64


def test_a_sequence_aborted_between_plan_and_advance_gets_no_tokens():
    scheduler = make_scheduler()
    sequence = make_sequence(1, [1, 2])
    scheduler.add(sequence)
    plan = scheduler.plan()
    scheduler.abort(1)
    assert scheduler.advance(plan, sample(plan)) == []
    assert sequence.output_ids == []
    assert scheduler.stats().num_free_blocks == 64


def test_a_failed_row_ends_alone_and_its_blocks_are_not_found_again():
    scheduler = make_scheduler()
    broken, sound = make_sequence(1, list(range(100, 112))), make_sequence(2, [1, 2])
    scheduler.add(broken)
    scheduler.add(sound)
    plan = scheduler.plan()
    finished = scheduler.advance(plan, {2: [next_token(sound)]})
    assert [(end.sequence.seq_id, end.reason) for end in finished] == [(1, "failed")]
    run(scheduler)
    again = make_sequence(3, list(range(100, 112)))
    scheduler.add(again)
    run(scheduler)
    assert again.num_cached == 0


def test_a_resumed_sequence_computes_its_output_again_and_counts_it_against_the_limit():
    scheduler = make_scheduler()
    sequence = make_sequence(1, [1, 2, 3], max_tokens=4, output_ids=[9, 9])
    expected = solo_output(sequence)
    scheduler.add(sequence)
    assert shape(step(scheduler)[0]) == [(1, 0, 5, True)]
    run(scheduler)
    assert sequence.output_ids == expected


def test_all_sequences_finish_if_a_step_fits_fewer_than_max_num_seqs():
    scheduler = make_scheduler(max_num_batched_tokens=2, max_num_seqs=8)
    for seq_id in range(1, 7):
        scheduler.add(make_sequence(seq_id, [seq_id, 1, 2], max_tokens=3))
    assert len(run(scheduler)) == 6


def test_a_step_without_decodes_has_a_larger_budget():
    scheduler = Scheduler(64, 4, 8, 4, 10, True, prefill_only_token_budget=20)
    scheduler.add(make_sequence(1, list(range(30)), max_tokens=9, min_tokens=9))
    assert [shape(step(scheduler)[0]) for _ in range(2)] == [[(1, 0, 20, False)], [(1, 20, 10, True)]]
    scheduler.add(make_sequence(2, list(range(100, 130))))
    assert shape(step(scheduler)[0]) == [(1, 30, 1, True), (2, 0, 7, False)]


# Drafts


def test_drafts_are_computed_behind_the_last_token_and_only_the_accepted_ones_count():
    scheduler = make_scheduler(drafter=OracleDrafter(3, lambda place: place == 6))
    sequence = make_sequence(1, [1, 2, 3], max_tokens=9, min_tokens=9)
    expected = solo_output(sequence)
    scheduler.add(sequence)
    plan, _ = step(scheduler)
    assert (shape(plan), plan.chunks[0].draft_ids) == ([(1, 0, 3, True)], tuple(expected[:3]))
    assert (sequence.output_ids, sequence.num_computed) == (expected[:4], 6)
    plan, _ = step(scheduler)
    assert (shape(plan), plan.chunks[0].draft_ids) == ([(1, 6, 1, True)], (*expected[4:6], 99))
    assert (sequence.output_ids, sequence.num_computed) == (expected[:7], 9)


def test_a_drafted_stop_id_ends_the_sequence():
    sequence = make_sequence(1, [1, 2, 3], max_tokens=9)
    expected = solo_output(sequence)[:3]
    sequence = make_sequence(1, [1, 2, 3], max_tokens=9, stop_ids=expected[2:])
    scheduler = make_scheduler(drafter=OracleDrafter(4))
    scheduler.add(sequence)
    (finished,) = run(scheduler)
    assert (finished.reason, sequence.output_ids) == ("stop", expected)


def test_blocks_of_rejected_drafts_are_freed_and_never_shared():
    scheduler = make_scheduler(num_blocks=8, drafter=OracleDrafter(9, lambda place: True), max_num_batched_tokens=64)
    sequence = make_sequence(1, [1, 2, 3], max_tokens=20, min_tokens=20)
    scheduler.add(sequence)
    step(scheduler)
    plan = scheduler.plan()
    assert (len(plan.chunks[0].draft_ids), len(sequence.block_ids)) == (9, 4)
    scheduler.advance(plan, sample(plan))
    assert (len(sequence.block_ids), scheduler.stats().num_free_blocks) == (2, 6)
    assert len(scheduler._blocks.cache) == 1


def test_drafts_take_no_block_that_a_running_sequence_may_need():
    scheduler = make_scheduler(num_blocks=4, drafter=OracleDrafter(9))
    scheduler.add(make_sequence(1, [1, 2, 3], max_tokens=9, min_tokens=9))
    scheduler.add(make_sequence(2, [5, 6, 7], max_tokens=9, min_tokens=9))
    for _ in range(2):
        for chunk in step(scheduler)[0].chunks:
            assert chunk.draft_ids
            assert chunk.start + chunk.num_positions <= -(-(chunk.start + chunk.num_tokens) // 4) * 4


def test_drafts_leave_room_for_prompts_in_a_step():
    scheduler = make_scheduler(max_num_batched_tokens=16, drafter=OracleDrafter(9))
    scheduler.add(make_sequence(1, [1, 2, 3], max_tokens=40, min_tokens=40))
    step(scheduler)
    scheduler.add(make_sequence(2, list(range(100, 140))))
    plan, _ = step(scheduler)
    assert [(chunk.sequence.seq_id, chunk.num_tokens, len(chunk.draft_ids)) for chunk in plan.chunks] == [
        (1, 1, 4),
        (2, 11, 0),
    ]


# Groups


def served_order(scheduler, *wanted):
    """Return the order of service of sequences (number, fields) that arrive in this order, one running at a time."""
    for seq_id, fields in wanted:
        scheduler.add(make_sequence(seq_id, [seq_id], max_tokens=1, **fields))
    return [finished.sequence.seq_id for finished in run(scheduler)]


def test_waiting_sequences_of_one_group_are_served_together():
    a, b = {"group": "a"}, {"group": "b"}
    wanted = [(1, a), (2, b), (3, {}), (4, a), (5, {}), (6, b)]
    assert served_order(make_scheduler(max_num_seqs=1), *wanted) == [1, 4, 2, 6, 3, 5]


def test_a_group_is_kept_together_within_one_priority_only():
    wanted = [
        (1, {"group": "a"}),
        (2, {}),
        (3, {"group": "a", "cache_root": b"salt"}),
        (4, {"group": "a", "priority": 1}),
        (5, {}),
    ]
    assert served_order(make_scheduler(max_num_seqs=1), *wanted) == [1, 3, 2, 5, 4]


def test_a_group_delays_others_by_at_most_its_size():
    wanted = [(1, {"group": "a"}), (2, {}), *((number, {"group": "a"}) for number in range(3, 3 + 2 * GROUP_SIZE))]
    order = served_order(make_scheduler(max_num_seqs=1), *wanted)
    assert order.index(2) == GROUP_SIZE
    assert sorted(order) == [number for number, _ in wanted]


def test_new_sequences_cannot_join_a_group_that_has_started():
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add(make_sequence(1, [1], max_tokens=9, min_tokens=9, group="a"))
    step(scheduler)
    assert served_order(scheduler, (2, {}), (3, {"group": "a"})) == [1, 2, 3]
    assert not scheduler._waiting._groups


def test_a_resumed_sequence_is_served_before_new_ones():
    """Each round of beams joined the end of the queue, so that a search in a crowd never ended."""
    wanted = [
        (1, {}),
        (2, {"group": "a"}),
        (3, {"output_ids": [5], "group": "a"}),
        (4, {"output_ids": [5], "priority": 1}),
        (5, {"priority": 1}),
    ]
    scheduler = make_scheduler(max_num_seqs=1)
    for seq_id, fields in wanted:
        scheduler.add(make_sequence(seq_id, [seq_id], max_tokens=2, min_tokens=2, **fields))
    assert [finished.sequence.seq_id for finished in run(scheduler)] == [3, 1, 2, 4, 5]
